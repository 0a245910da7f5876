package algorithms

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMeterReadsASteadyRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.Int64Range(1, 100_000).Draw(t, "rate")
		steps := rapid.IntRange(2, 20).Draw(t, "steps")
		start := rapid.Int64Range(-100e9, 100e9).Draw(t, "start")
		m := NewMeter(10*time.Second, steps)
		interval := int64(time.Second) / perSecond
		chunk := max(1, int64(20*time.Millisecond)/interval)
		var now int64
		for at := start; at < start+int64(25*time.Second); at += chunk * interval {
			now = at
			m.Add(now, uint64(chunk))
			if now-start < int64(10*time.Second) {
				continue // not yet a whole window
			}
			// A chunk more or less at each edge of the shortest stretch it covers, 5 s.
			want := float64(time.Second) / float64(interval)
			slack := 2.5 * float64(chunk) / 5
			if got := m.PerSecond(now); math.Abs(got-want) > slack {
				t.Fatalf("%g a second after %s, want %g ± %g", got, time.Duration(now-start), want, slack)
			}
		}
		if got := m.PerSecond(now + int64(20*time.Second)); got != 0 {
			t.Fatalf("%g a second after two windows of silence", got)
		}
	})
}

func TestMeterCases(t *testing.T) {
	at := func(d time.Duration) int64 { return int64(d) }
	m := NewMeter(10*time.Second, 10)
	if got := m.PerSecond(at(time.Hour)); got != 0 {
		t.Errorf("%g a second before the first event", got)
	}
	// A young meter takes at least a step as its time: 5 at once are 5 a second.
	m.Add(at(time.Hour), 5)
	if got := m.PerSecond(at(time.Hour)); got != 5 {
		t.Errorf("%g a second at the first event, want 5", got)
	}
	if got := m.PerSecond(at(time.Hour + 2*time.Second)); got != 2.5 {
		t.Errorf("%g a second after 2 s, want 2.5", got)
	}
	if got := m.PerSecond(at(time.Hour + 5*time.Second)); got != 1 {
		t.Errorf("%g a second after 5 s, want 1", got)
	}
	if got := m.PerSecond(at(time.Hour + 10*time.Second)); got != 0 {
		t.Errorf("%g a second when the window has passed, want 0", got)
	}
	if m.Total() != 5 {
		t.Errorf("total %d, want 5", m.Total())
	}
}

// A clock that steps back makes no spike and loses no event.
func TestMeterWhenTheClockStepsBack(t *testing.T) {
	m := NewMeter(5*time.Second, 10)
	second := int64(time.Second)
	for now := int64(0); now < 100*second; now += second / 10 {
		m.Add(now, 1)
	}
	steady := m.PerSecond(100 * second)
	for _, back := range []int64{99 * second, 50 * second, second, 0, -1000 * second} {
		if got := m.PerSecond(back); math.Abs(got-steady) > 2 {
			t.Errorf("%g a second at %d s, it was %g", got, back/second, steady)
		}
	}
	m.Add(second, 10)
	if got := m.PerSecond(second); got <= steady || got > steady+4 {
		t.Errorf("%g a second after ten more events, it was %g", got, steady)
	}
	if m.Total() != 1010 {
		t.Errorf("total %d, want 1010", m.Total())
	}
}
