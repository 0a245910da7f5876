package algorithms

import (
	"math"
	"testing"
	"time"
)

// The fraction of a nanosecond that one rate left behind means nothing to the
// next: from the change on, its interval is exact.
func TestDepartureClockChangesItsRate(t *testing.T) {
	c := mustClock(t, Rate{999_983, time.Second}, 5*time.Millisecond)
	now := int64(0)
	for range 10_000 { // past what the tolerance lets go at once
		now += int64(c.Wait(now))
		c.Depart(now, 1)
	}
	if err := c.SetRate(Rate{1, time.Second}); err != nil {
		t.Fatal(err)
	}
	first := now + int64(c.Wait(now))
	c.Depart(first, 1)
	if gap := c.Wait(first); gap != time.Second {
		t.Errorf("the first interval of 1/s is %s", gap)
	}
}

// What is stored may be lost, old, or from a clock that has been set back since.
func TestDepartureClockRestores(t *testing.T) {
	const now = int64(time.Hour)
	second := int64(time.Second)
	cases := []struct {
		name   string
		stored int64
		batch  uint64
		want   int64 // wait in tenths of a second at 10/s
	}{
		{"lost", math.MinInt64, 1, 1},
		{"long ago", 0, 1, 1},
		{"lost, and no batch named", math.MinInt64, 0, 1},
		{"just now", now, 1, 1},
		{"an interval ahead", now + second/10, 1, 2},
		{"far ahead: the clock was set back", now + 3600*second, 1, 2},
		{"the end of time", math.MaxInt64, 1, 2},
		{"lost, and batches of 5", math.MinInt64, 5, 5},
		{"ahead by a batch of 5", now + second/2, 5, 10},
		{"far ahead, and batches of 5", math.MaxInt64, 5, 10},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			clock := mustClock(t, Rate{10, time.Second}, 5*time.Millisecond)
			clock.Restore(c.stored, now, c.batch)
			if got := int64(clock.Wait(now)); got != c.want*second/10 {
				t.Errorf("waits %s, want %d tenths of a second", time.Duration(got), c.want)
			}
		})
	}
}
