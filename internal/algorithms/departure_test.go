package algorithms

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustClock(t testing.TB, r Rate, tolerance time.Duration) *DepartureClock {
	t.Helper()
	c, err := NewDepartureClock(r, tolerance)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pace is a rate that an outlet may have, above 0.
var pace = rapid.Custom(func(t *rapid.T) Rate {
	return rapid.SampledFrom([]Rate{
		{1, time.Second}, {3, time.Second}, {200, time.Second}, {12, time.Minute}, {7, 250 * time.Millisecond},
		{999_983, time.Second}, {1_000_000_000, time.Second}, {1, 24 * time.Hour},
	}).Draw(t, "rate")
})

// run drives a clock as an outlet does, with all that may befall it, and keeps
// the log of departures in segments of one rate each.
type run struct {
	t         *rapid.T
	clock     *DepartureClock
	tolerance time.Duration
	batch     uint64
	now       int64
	rates     []Rate
	logs      [][]Departure
}

func (r *run) rate() Rate { return r.rates[len(r.rates)-1] }

func (r *run) setRate(to Rate) {
	r.rates, r.logs = append(r.rates, to), append(r.logs, nil)
}

func (r *run) depart() {
	n := rapid.Uint64Range(1, r.batch).Draw(r.t, "n")
	if r.clock.Depart(r.now, n) {
		last := len(r.logs) - 1
		r.logs[last] = append(r.logs[last], Departure{r.now, n})
	}
}

func (r *run) step() {
	t := r.t
	interval := float64(r.rate().Per) / float64(r.rate().N)
	switch rapid.SampledFrom([]string{"wait", "wait", "late", "early", "any", "idle", "again", "rate", "restore"}).Draw(t, "what") {
	case "wait": // wakes exactly when it may
		r.now += int64(r.clock.Wait(r.now))
		r.depart()
	case "late":
		r.now += int64(r.clock.Wait(r.now)) + rapid.Int64Range(0, 3*int64(r.tolerance)+1).Draw(t, "late")
		r.depart()
	case "early":
		if wait := int64(r.clock.Wait(r.now)); wait > 0 {
			r.now += wait - 1
			if r.clock.Depart(r.now, 1) {
				t.Fatalf("departed 1 ns before the wait was over")
			}
		}
	case "any":
		r.now += rapid.Int64Range(0, int64(3*interval)+1).Draw(t, "on")
		r.depart()
	case "idle":
		r.now += int64(interval * rapid.Float64Range(1, 1000).Draw(t, "intervals"))
		r.depart()
	case "again": // asks in the same instant
		r.depart()
	case "rate":
		to := pace.Draw(t, "to")
		if err := r.clock.SetRate(to); err != nil {
			t.Fatal(err)
		}
		r.setRate(to)
	case "restore": // a successor with the same rate takes over
		stored := rapid.OneOf(
			rapid.Just(r.clock.Next()), rapid.Just(int64(0)), rapid.Int64(),
			rapid.Int64Range(r.now-1e9, r.now+1e9),
		).Draw(t, "stored")
		successor, err := NewDepartureClock(r.rate(), r.tolerance)
		if err != nil {
			t.Fatal(err)
		}
		successor.Restore(stored, r.now, r.batch)
		most := 2*float64(r.batch)*interval + 2
		if wait := float64(successor.Wait(r.now)); wait > most {
			t.Fatalf("stands still for %g ns after a restart, at most two batches are %g", wait, most)
		}
		r.clock = successor
	}
}

func TestDepartureClockKeepsItsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{
			t: t, batch: rapid.Uint64Range(1, 8).Draw(t, "batch"),
			tolerance: time.Duration(rapid.SampledFrom([]int64{0, 1, 5e6, 1e9}).Draw(t, "tolerance")),
			now:       rapid.Int64Range(-1e15, 1e15).Draw(t, "start"),
		}
		r.setRate(pace.Draw(t, "first"))
		var err error
		if r.clock, err = NewDepartureClock(r.rate(), r.tolerance); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			r.step()
		}
		// Within one rate that rate holds, across changes the largest of them.
		for i := range r.rates {
			var log []Departure
			largest := r.rates[i]
			for j := i; j < len(r.rates); j++ {
				if r.rates[j].PerSecond() > largest.PerSecond() {
					largest = r.rates[j]
				}
				log = append(log, r.logs[j]...)
				if e := CheckRate(log, largest, r.tolerance); e.Broken {
					t.Fatalf("%d departures from %d to %d at %s, tolerance %s: at most %g", e.Count, e.From, e.To, largest, r.tolerance, e.Allowed)
				}
			}
		}
	})
}

// Woken within the tolerance every time, it loses nothing: after w, w·rate have
// left, whatever the fraction of the interval.
func TestDepartureClockReachesItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom([]Rate{{200, time.Second}, {3, time.Second}, {10_000, time.Second}, {7, 250 * time.Millisecond}}).Draw(t, "rate")
		tolerance := 5 * time.Millisecond
		c, err := NewDepartureClock(r, tolerance)
		if err != nil {
			t.Fatal(err)
		}
		const start = int64(time.Hour)
		now, last := start, start
		var left uint64
		for range 500 {
			// A timer that fires late by up to the tolerance, then as many as conform.
			now += int64(c.Wait(now)) + rapid.Int64Range(0, int64(tolerance)).Draw(t, "late")
			for c.Depart(now, 1) {
				left++
				last = now
			}
		}
		w := time.Duration(last - start)
		if least := uint64(w.Seconds() * r.PerSecond()); left < least {
			t.Fatalf("%d left in %s at %s, want at least %d", left, w, r, least)
		}
	})
}

func TestDepartureClockDoesNotDrift(t *testing.T) {
	for _, r := range []Rate{{3, time.Second}, {7, time.Minute}, {999_983, time.Second}} {
		// With no tolerance at all, the rest of the nanosecond in which a departure
		// began to conform would be lateness.
		c := mustClock(t, r, 1)
		c.Depart(1, 1)
		for k := int64(1); k <= 100_000; k++ {
			at := (k*int64(r.Per) + int64(r.N) - 1) / int64(r.N)
			if got := c.Next(); got != at {
				t.Fatalf("%s: departure %d at %d, want %d", r, k, got, at)
			}
			if c.Depart(at-1, 1) || !c.Depart(at, 1) {
				t.Fatalf("%s: departure %d not at %d", r, k, at)
			}
		}
	}
}

// Idling, a pause or an outage earns nothing (uber-go/ratelimit#106).
func TestDepartureClockEarnsNothingByIdling(t *testing.T) {
	c := mustClock(t, Rate{10, time.Second}, 5*time.Millisecond)
	c.Depart(0, 1)
	now := int64(time.Minute)
	var departures []int64
	for len(departures) < 50 {
		now += int64(c.Wait(now))
		if !c.Depart(now, 1) {
			t.Fatal("refused after its wait")
		}
		departures = append(departures, now)
	}
	for i := 1; i < len(departures); i++ {
		if gap := time.Duration(departures[i] - departures[i-1]); gap < 95*time.Millisecond {
			t.Fatalf("departures %d and %d are %s apart", i-1, i, gap)
		}
	}
	if took := time.Duration(departures[49] - departures[0]); took < 4895*time.Millisecond || took > 4900*time.Millisecond {
		t.Errorf("50 departures took %s, want 49 intervals less the tolerance", took)
	}
}

// A rate that goes up does not leave the old one's gap to be waited out, and one that
// goes down holds from the last departure on.
func TestDepartureClockSetRate(t *testing.T) {
	c := mustClock(t, Rate{1, time.Hour}, 0)
	c.Depart(0, 1)
	change := func(r Rate, now int64, want time.Duration) {
		t.Helper()
		if err := c.SetRate(r); err != nil {
			t.Fatal(err)
		}
		if got := c.Wait(now); got != want {
			t.Errorf("at %s and %s after the last departure: wait %s, want %s", r, time.Duration(now), got, want)
		}
	}
	second := int64(time.Second)
	change(Rate{10, time.Second}, 0, 100*time.Millisecond)
	change(Rate{10, time.Second}, second, 0)
	change(Rate{1, time.Minute}, second, 59*time.Second)
	change(Rate{0, time.Second}, second, math.MaxInt64)
	change(UnlimitedRate(), 0, 0)
	change(Rate{2, time.Second}, 0, 500*time.Millisecond)
	c.Depart(second, 4) // a batch takes its n at the new rate too
	change(Rate{8, time.Second}, second, 500*time.Millisecond)
	c.Restore(0, second, 4)
	change(Rate{4, time.Second}, second, time.Second)
}

func TestDepartureClockRefusalChangesNothing(t *testing.T) {
	c := mustClock(t, Rate{10, time.Second}, 0)
	c.Depart(0, 1)
	for range 1000 {
		if c.Depart(1, 5) {
			t.Fatal("departed after 1 ns")
		}
	}
	if c.Wait(1) != 100*time.Millisecond-1 || c.Next() != int64(100*time.Millisecond) {
		t.Errorf("wait %s, next %d after refusals", c.Wait(1), c.Next())
	}
}

func TestDepartureClockAtTheEnds(t *testing.T) {
	shut := mustClock(t, Rate{0, time.Second}, time.Second)
	if shut.Wait(0) != math.MaxInt64 || shut.Depart(math.MaxInt64, 1) {
		t.Error("a rate of 0 let something go")
	}
	open := mustClock(t, UnlimitedRate(), 0)
	for range 1000 {
		if open.Wait(0) != 0 || !open.Depart(0, 1_000_000) {
			t.Fatal("an unlimited rate held something back")
		}
	}
	if fresh := mustClock(t, Rate{1, time.Hour}, 0); fresh.Next() != math.MinInt64 || fresh.Wait(42) != 0 {
		t.Error("the first departure must go at once")
	}
	// So many that the next instant is beyond all instants: never, not at once.
	far := mustClock(t, Rate{1, 24 * time.Hour}, 0)
	far.Depart(-1, math.MaxUint64)
	for _, now := range []int64{-1, math.MinInt64, math.MaxInt64 - 1} {
		if far.Wait(now) <= 0 || far.Depart(now, 1) {
			t.Errorf("departed at %d, before the end of time", now)
		}
	}
	late := mustClock(t, Rate{1, time.Second}, 0)
	if !late.Depart(math.MaxInt64-10, 1) || late.Depart(math.MaxInt64-1, 1) {
		t.Error("near the end of time the interval was not kept")
	}
	for name, make := range map[string]func() error{
		"a rate without a period": func() error { _, err := NewDepartureClock(Rate{}, 0); return err },
		"a negative tolerance":    func() error { _, err := NewDepartureClock(Rate{1, time.Second}, -1); return err },
		"a change to no period":   func() error { return open.SetRate(Rate{1, 0}) },
		"a rate over 10⁹/s":       func() error { return open.SetRate(Rate{2, 1}) },
	} {
		if make() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Lateness from before an instant is not made up; what is ahead of the clock is not moved.
func TestDepartureClockForgoes(t *testing.T) {
	c, err := NewDepartureClock(Rate{N: 200, Per: time.Second}, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ms := func(n float64) int64 { return int64(n * float64(time.Millisecond)) }
	leave := func(at float64) {
		t.Helper()
		if !c.Depart(ms(at), 1) {
			t.Fatalf("no departure at %g ms: %s to wait", at, c.Wait(ms(at)))
		}
	}
	leave(1000)
	c.Forgo(ms(1000)) // the next is at 1000: nothing to give up
	if got := c.Next(); got != ms(1000) {
		t.Fatalf("next at %d", got)
	}
	leave(1000)
	c.Forgo(ms(1001))
	if got := c.Next(); got != ms(1005) {
		t.Fatalf("what is ahead was moved to %d", got)
	}
	c.Forgo(ms(1100) - ms(1))
	leave(1100)
	if got, want := c.Wait(ms(1100)), 4*time.Millisecond; got != want {
		t.Errorf("%s to wait after a departure that made up 1 ms, want %s", got, want)
	}
}
