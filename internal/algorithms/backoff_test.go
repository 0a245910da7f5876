package algorithms

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	b := Backoff{Base: 200 * time.Millisecond, Max: 30 * time.Second}
	for attempt, want := range map[int]time.Duration{
		-1: 200 * time.Millisecond, 0: 200 * time.Millisecond, 1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 3: 800 * time.Millisecond,
		7: 12800 * time.Millisecond, 8: 25600 * time.Millisecond, 9: 30 * time.Second, 10: 30 * time.Second,
		1000: 30 * time.Second, math.MaxInt: 30 * time.Second,
	} {
		if least := b.Delay(attempt, 0); least != want/2 {
			t.Errorf("attempt %d waits at least %s, want %s", attempt, least, want/2)
		}
		if middle := b.Delay(attempt, 0.5); middle != want*3/4 {
			t.Errorf("attempt %d waits %s half way, want %s", attempt, middle, want*3/4)
		}
		if most := b.Delay(attempt, math.Nextafter(1, 0)); most > want || most < want-time.Microsecond {
			t.Errorf("attempt %d waits at most %s, want %s", attempt, most, want)
		}
	}
	if d := (Backoff{Base: time.Minute, Max: time.Second}).Delay(1, 0); d != time.Second/2 {
		t.Errorf("a base over the most waits %s", d)
	}
}

func TestBackoffNeverOverflows(t *testing.T) {
	for attempt := 63; attempt < 70; attempt++ {
		if d := (Backoff{Base: 1, Max: math.MaxInt64}).Delay(attempt, 0); d < 1<<61 {
			t.Errorf("attempt %d of doubling waits %d ns", attempt, d)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base: time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")),
			Max:  time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "max")),
		}
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")
		attempt := rapid.IntRange(1, 200).Draw(t, "attempt")
		d, next := b.Delay(attempt, random), b.Delay(attempt+1, random)
		if d < min(b.Base, b.Max)/2 || d > b.Max {
			t.Fatalf("%+v: attempt %d waits %s", b, attempt, d)
		}
		if next < d {
			t.Fatalf("%+v: attempt %d waits %s, the next %s", b, attempt, d, next)
		}
	})
}
