package algorithms

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newOutlet(t testing.TB, ceiling Rate, concurrency int, consumer consumer) *outlet {
	t.Helper()
	rate, err := NewAdaptiveRate(Rate{1, time.Minute}, ceiling, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return &outlet{
		rate: rate, clock: mustClock(t, rate.Rate(), 5*time.Millisecond),
		consumer: consumer, concurrency: concurrency,
	}
}

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// TestAdaptiveRateSettles delivers to consumers whose capacity is known.
func TestAdaptiveRateSettles(t *testing.T) {
	ms := time.Millisecond
	for name, test := range map[string]struct {
		ceiling     Rate
		concurrency int
		consumer    consumer
		capacity    float64
	}{
		"constant latency":                {Rate{200, time.Second}, 50, &constant{20 * ms, seeded()}, 200},
		"constant latency, few in flight": {Rate{1000, time.Second}, 4, &constant{20 * ms, seeded()}, 200},
		"constant latency, slow":          {Rate{12, time.Minute}, 4, &constant{20 * ms, seeded()}, 0.2},
		"constant latency, unlimited":     {UnlimitedRate(), 8, &constant{2 * ms, seeded()}, 4000},
		"a knee at 10 in flight":          {Rate{1000, time.Second}, 50, &knee{50 * ms, seeded(), make([]int64, 10)}, 200},
		"the same, unlimited":             {UnlimitedRate(), 1000, &knee{50 * ms, seeded(), make([]int64, 10)}, 200},
		"a knee at 1 in flight":           {Rate{1000, time.Second}, 16, &knee{20 * ms, seeded(), make([]int64, 1)}, 50},
		"503 over 100/s":                  {Rate{1000, time.Second}, 50, &metered{tokens: 1, perSecond: 100, burst: 5}, 100},
		"503 over 100/s, burst 1":         {Rate{1000, time.Second}, 50, &metered{tokens: 1, perSecond: 100, burst: 1}, 100},
		"503 over 100/s, burst 100":       {Rate{1000, time.Second}, 50, &metered{tokens: 1, perSecond: 100, burst: 100}, 100},
		"503 over 4/s":                    {Rate{200, time.Second}, 50, &metered{tokens: 1, perSecond: 4, burst: 2}, 4},
		"503 over 5000/s":                 {UnlimitedRate(), 500, &metered{tokens: 1, perSecond: 5000, burst: 50}, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutlet(t, test.ceiling, test.concurrency, test.consumer)
			settle, end := 20*time.Second, 80*time.Second
			if test.capacity < 10 {
				settle, end = 10*settle, 10*end
			}
			o.run(end)
			got := o.delivered(settle, end) / test.capacity * 100
			t.Logf("%.1f %% of capacity after %s, %.2f %% refused, lowered %d times; first 10 s %.1f/s",
				got, settle, float64(o.refused)/float64(len(o.departures))*100, len(o.lowered), o.delivered(0, 10*time.Second))
			if got < 90 || got > 105 {
				t.Errorf("%.1f %% of the capacity, want 90 to 105 %%", got)
			}
			if e := CheckRate(o.departures, test.ceiling, 5*time.Millisecond); e.Broken {
				t.Errorf("%d departures in %s, at most %.2f at %s", e.Count, time.Duration(e.To-e.From), e.Allowed, test.ceiling)
			}
		})
	}
}

// TestAdaptiveRateStaysNearWhatIsDelivered has the bound on what is in flight be what
// limits: the rate does not run away from it, and follows once there is more to be had.
func TestAdaptiveRateStaysNearWhatIsDelivered(t *testing.T) {
	for _, ceiling := range []Rate{{1000, time.Second}, UnlimitedRate()} {
		for _, concurrency := range []int{1, 4, 16} {
			t.Run(fmt.Sprintf("%s, %d in flight", ceiling, concurrency), func(t *testing.T) {
				c := &constant{80 * time.Millisecond, seeded()}
				o := newOutlet(t, ceiling, concurrency, c)
				most := 0.0
				o.rates = func(_ int64, perSecond float64) { most = max(most, perSecond) }
				at := time.Duration(0)
				for _, c.takes = range []time.Duration{80 * time.Millisecond, 40 * time.Millisecond} {
					most = 0
					o.run(at + 20*time.Second)
					at += 10 * time.Minute
					o.run(at)
					got, capacity := o.delivered(at-580*time.Second, at), float64(concurrency)/c.takes.Seconds()
					t.Logf("%s each: %.1f/s delivered of %.1f/s, the rate up to %.1f/s", c.takes, got, capacity, most)
					if got < 0.95*capacity {
						t.Errorf("%s each: %.1f/s of %.1f/s", c.takes, got, capacity)
					}
					if most > 1.5*got {
						t.Errorf("%s each: the rate rose to %.1f/s, and %.1f/s were delivered", c.takes, most, got)
					}
				}
			})
		}
	}
}

// A consumer whose throughput falls by the square of what it has too much is lost
// within two answers: nothing but the bound on what is in flight keeps it. It still
// comes back each time.
func TestAdaptiveRateAgainstThrashing(t *testing.T) {
	o := newOutlet(t, Rate{1000, time.Second}, 16, &thrashing{takes: 50 * time.Millisecond, most: 10})
	o.run(80 * time.Second)
	if got := o.delivered(20*time.Second, 80*time.Second) / 2; got < 70 {
		t.Errorf("%.1f %% of the capacity, want 70 %% at least", got)
	}
}

// TestAdaptiveRateAfterAnOutage has the consumer away for 30 s.
func TestAdaptiveRateAfterAnOutage(t *testing.T) {
	for name, test := range map[string]struct {
		consumer consumer
		capacity float64
	}{
		"constant latency":       {&constant{20 * time.Millisecond, seeded()}, 200},
		"a knee at 10 in flight": {&knee{50 * time.Millisecond, seeded(), make([]int64, 10)}, 200},
		"503 over 100/s":         {&metered{tokens: 5, perSecond: 100, burst: 5}, 100},
		"503 over 4/s":           {&metered{tokens: 1, perSecond: 4, burst: 2}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			const from, until = 30 * time.Second, 60 * time.Second
			o := newOutlet(t, Rate{200, time.Second}, 50, &away{test.consumer, int64(from), int64(until)})
			o.breaker = &breaker{}
			least := 200.0
			o.rates = func(now int64, perSecond float64) {
				if now > int64(from) && now < int64(until) {
					least = min(least, perSecond)
				}
			}
			o.run(from)
			probes := o.refused
			o.run(until)
			probes = o.refused - probes
			o.run(100 * time.Second)
			back := time.Duration(0)
			for at := until; back == 0 && at < 90*time.Second; at += 100 * time.Millisecond {
				if o.delivered(at, at+2*time.Second) >= 0.9*test.capacity {
					back = at - until
				}
			}
			got := o.delivered(until+10*time.Second, until+40*time.Second) / test.capacity * 100
			t.Logf("%d refused during the outage, rate down to %.1f/s, back at 90 %% after %s; %.1f %% from 10 s on", probes, least, back, got)
			if back == 0 || back >= 10*time.Second {
				t.Errorf("at 90 %% of its capacity again after %s, want less than 10 s", back)
			}
			if got < 90 || got > 105 {
				t.Errorf("%.1f %% of the capacity after 10 s", got)
			}
			if probes > 30 {
				t.Errorf("%d deliveries during the outage", probes)
			}
		})
	}
}

// TestAdaptiveRateFollows has the capacity change under it.
func TestAdaptiveRateFollows(t *testing.T) {
	m := &metered{tokens: 5, burst: 5}
	o := newOutlet(t, Rate{1000, time.Second}, 50, m)
	o.breaker = &breaker{}
	at := time.Duration(0)
	for _, capacity := range []float64{100, 20, 400, 395, 100, 800} {
		m.perSecond = capacity
		o.run(at + 20*time.Second)
		at += 40 * time.Second
		refused, sent := o.refused, len(o.departures)
		o.run(at)
		got := o.delivered(at-20*time.Second, at) / capacity * 100
		t.Logf("%g/s: %.1f %% from 20 to 40 s, %.2f %% refused", capacity, got, float64(o.refused-refused)/float64(len(o.departures)-sent)*100)
		if got < 90 || got > 105 {
			t.Errorf("%g/s: %.1f %% of the capacity 20 s after the change", capacity, got)
		}
	}
	k := &knee{50 * time.Millisecond, seeded(), make([]int64, 10)}
	o = newOutlet(t, Rate{1000, time.Second}, 50, k)
	at = 0
	for _, each := range []time.Duration{50, 25, 80, 20} { // ms: 200, 400, 125, 500/s
		k.takes = each * time.Millisecond
		capacity := 10 / k.takes.Seconds()
		o.run(at + 20*time.Second)
		at += 40 * time.Second
		o.run(at)
		got := o.delivered(at-20*time.Second, at) / capacity * 100
		t.Logf("10 at once for %s: %.1f %% from 20 to 40 s", k.takes, got)
		if got < 90 || got > 105 {
			t.Errorf("10 at once for %s: %.1f %% of the capacity 20 s after the change", k.takes, got)
		}
	}
}

// adaptiveUnderTest is one from 1/min to 200/s, target 100 ms.
func adaptiveUnderTest(t testing.TB) *AdaptiveRate {
	t.Helper()
	return newOutlet(t, Rate{200, time.Second}, 1, nil).rate
}

// atFull brings it to its ceiling and returns the instant.
func atFull(t testing.TB, a *AdaptiveRate) int64 {
	t.Helper()
	now := int64(time.Hour)
	for a.Reason() != RateConfigured {
		a.Depart(now, 1, true)
		a.Observe(now+1e6, Answer{Started: now, Took: 1e6, Done: 1})
		if now += 5e6; now > int64(time.Hour+time.Minute) {
			t.Fatalf("at %s after a minute without trouble", a.Rate())
		}
	}
	return now
}

func wantRate(t testing.TB, a *AdaptiveRate, least, most float64, why RateReason) {
	t.Helper()
	if r := a.Rate().PerSecond(); r < least || r > most || a.Reason() != why {
		t.Errorf("%s for %s; want %g to %g for %s", a.Rate(), a.Reason(), least, most, why)
	}
}

func TestAdaptiveRateSlowStart(t *testing.T) {
	a := adaptiveUnderTest(t)
	wantRate(t, a, 10, 10, RateSlowStart)
	for n := range 25 { // each answer is one a second more
		now := int64(n) * 1e8
		a.Depart(now, 1, true)
		a.Observe(now+1e6, Answer{Started: now, Took: 1e6, Done: 1})
		wantRate(t, a, float64(11+n), float64(11+n), RateSlowStart)
	}
	now := atFull(t, a)
	wantRate(t, a, 200, 200, RateConfigured)

	// After idling it begins low again.
	if now += int64(9 * time.Second); a.Depart(now, 1, false) {
		t.Error("lowered after 9 s without use")
	}
	now += int64(11 * time.Second)
	if !a.Depart(now, 1, false) {
		t.Error("not lowered after 20 s without use")
	}
	wantRate(t, a, 10, 10, RateUnused)

	// A floor or a ceiling beyond the start is where it begins.
	for _, test := range []struct{ floor, ceiling, want Rate }{
		{Rate{50, time.Second}, Rate{200, time.Second}, Rate{50, time.Second}},
		{Rate{1, time.Hour}, Rate{12, time.Minute}, Rate{12, time.Minute}},
		{Rate{3, time.Second}, Rate{3, time.Second}, Rate{3, time.Second}},
	} {
		a, err := NewAdaptiveRate(test.floor, test.ceiling, time.Second)
		if err != nil || a.Rate() != test.want {
			t.Errorf("%s to %s begins at %s, %v; want %s", test.floor, test.ceiling, a.Rate(), err, test.want)
		}
	}
}

// What is not used does not grow, and what was not used for long is given up.
func TestAdaptiveRateIsNotWoundUp(t *testing.T) {
	a := adaptiveUnderTest(t)
	for n := range 1000 { // one a second, never held back
		now := int64(n) * 1e9
		a.Depart(now, 1, false)
		a.Observe(now+1e6, Answer{Started: now, Took: 1e6, Done: 1})
	}
	wantRate(t, a, 10, 10, RateUnused)
	now := atFull(t, a)
	for range 20 {
		now += int64(time.Second)
		a.Depart(now, 1, false)
		a.Observe(now+1e6, Answer{Started: now, Took: 1e6, Done: 1})
	}
	wantRate(t, a, 10, 10, RateUnused)
}

// One burst of failures is one decrease (vllm-project/aibrix#2451), and what started
// under the old rate says nothing of the new one (envoyproxy/envoy#11579).
func TestAdaptiveRateLowersOnceAWindow(t *testing.T) {
	a := adaptiveUnderTest(t)
	now := atFull(t, a)
	overloaded := func(started, at int64) bool {
		return a.Observe(at, Answer{Started: started, Took: at - started, Trouble: RateOverload})
	}
	at := now + int64(10*time.Millisecond)
	if !overloaded(now, at) {
		t.Fatal("an overload did not lower it")
	}
	was := a.Rate()
	wantRate(t, a, 100, 180, RateOverload)
	for n := range 200 {
		if overloaded(at-int64(n)*1e6, at+int64(n)*1e7) { // late ones, up to 2 s
			t.Fatalf("delivery %d from before lowered it again", n)
		}
	}
	a.Depart(at+2e8, 1, true)
	if overloaded(at+2e8, at+201e6) {
		t.Error("one that started within 250 ms of the decrease lowered it again")
	}
	if a.Rate() != was {
		t.Errorf("%s, want %s still", a.Rate(), was)
	}
	// Nothing was answered since: an outage, and that once.
	if !overloaded(at+3e8, at+301e6) {
		t.Error("nothing gets through, and it was not lowered")
	}
	wantRate(t, a, 10, 10, RateOutage)
	for n := int64(1); n < 100; n++ {
		if overloaded(at+n*1e9, at+n*1e9+1e6) {
			t.Fatal("a probe in an outage lowered it")
		}
	}
	wantRate(t, a, 10, 10, RateOutage)
}

// A call that took long is followed by a window as long.
func TestAdaptiveRateWindowAfterATimeout(t *testing.T) {
	a := adaptiveUnderTest(t)
	now := atFull(t, a)
	timeout := func(at int64) bool {
		return a.Observe(at, Answer{Started: at - 1e9, Took: 10e9, Trouble: RateTimeout})
	}
	if !timeout(now + 1e9) {
		t.Fatal("a timeout did not lower it")
	}
	if a.Reason() != RateTimeout {
		t.Errorf("lowered for %s", a.Reason())
	}
	a.Observe(now+2e9, Answer{Started: now + 2e9 - 1e6, Took: 1e6, Done: 1})
	if timeout(now + 11e9) {
		t.Error("lowered again within 10 s of a timeout of 10 s")
	}
	if !timeout(now + 13e9) {
		t.Error("not lowered 12 s after a timeout of 10 s")
	}
}

// Half of the calls may miss the target, and a fault of the message never counts.
func TestAdaptiveRateWhatIsNoTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(n int) Answer
		lower  bool
	}{
		"every second call slow": {func(n int) Answer { return Answer{Took: 1e6 + int64(n%2)*1e9, Done: 1} }, false},
		"two of three slow":      {func(n int) Answer { return Answer{Took: 1e6 + int64(min(n%3, 1))*1e9, Done: 1} }, true},
		"poison":                 {func(int) Answer { return Answer{Took: 1e6, Failed: 1} }, false},
		"slow poison":            {func(int) Answer { return Answer{Took: 1e9, Failed: 1} }, false},
		"poison in batches":      {func(int) Answer { return Answer{Took: 1e6, Done: 99, Failed: 1} }, false},
		"a slow batch":           {func(int) Answer { return Answer{Took: 2e8, Done: 100} }, true},
		"exactly the target":     {func(int) Answer { return Answer{Took: 1e8, Done: 1} }, false},
		"more than the target":   {func(int) Answer { return Answer{Took: 1e8 + 1, Done: 1} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := adaptiveUnderTest(t)
			now := atFull(t, a)
			lowered := false
			for n := range 200 {
				now += 5e6
				a.Depart(now, 1, true)
				s := test.answer(n)
				s.Started = now
				lowered = a.Observe(now+s.Took, s) || lowered
			}
			if lowered != test.lower {
				t.Errorf("lowered %t, at %s for %s", lowered, a.Rate(), a.Reason())
			}
		})
	}
}

// A target that is never met ends at the floor, and not below; it is no baseline that
// follows (failsafe-go#127).
func TestAdaptiveRateHoldsItsTarget(t *testing.T) {
	o := newOutlet(t, Rate{200, time.Second}, 50, &constant{150 * time.Millisecond, seeded()})
	o.run(time.Hour)
	wantRate(t, o.rate, 1.0/60, 1.0/60, RateLatency)
	if n := o.delivered(30*time.Minute, time.Hour) * 60; n < 0.9 {
		t.Errorf("%.2f deliveries a minute at the floor of one", n)
	}
}

// Whatever comes: between its bounds, and one decrease a window.
func TestAdaptiveRateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor, ceiling := pace.Draw(t, "floor"), pace.Draw(t, "ceiling")
		if floor.PerSecond() > ceiling.PerSecond() {
			floor, ceiling = ceiling, floor
		}
		target := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "target"))
		a, err := NewAdaptiveRate(floor, ceiling, target)
		if err != nil {
			t.Fatal(err)
		}
		now := rapid.Int64Range(-1e15, 1e15).Draw(t, "start")
		lowered, any := int64(0), false
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, 1e6), rapid.Int64Range(0, 1e9), rapid.Int64Range(-1e9, 1e12)).Draw(t, "on")
			if rapid.Bool().Draw(t, "departs") {
				a.Depart(now, 1, rapid.Bool().Draw(t, "held"))
				continue
			}
			took := rapid.OneOf(rapid.Int64Range(0, 2*int64(target)), rapid.Int64Range(0, int64(time.Hour))).Draw(t, "took")
			s := Answer{
				Started: now - took, Took: took, Done: rapid.Uint64Range(0, 1000).Draw(t, "done"), Failed: rapid.Uint64Range(0, 3).Draw(t, "failed"),
				Trouble: rapid.SampledFrom([]RateReason{RateConfigured, RateConfigured, RateOverload, RateTimeout, RateRetryAfter}).Draw(t, "trouble"),
			}
			if a.Observe(now, s) {
				if any && s.Started < lowered+int64(250*time.Millisecond) {
					t.Fatalf("lowered at %d, and again by a delivery that started at %d", lowered, s.Started)
				}
				lowered, any = now, true
			}
			r := a.Rate()
			if err := r.valid(); err != nil || r.PerSecond() > ceiling.PerSecond() || r.PerSecond() < floor.PerSecond() {
				t.Fatalf("%s is not between %s and %s: %v", r, floor, ceiling, err)
			}
		}
	})
}

func TestAdaptiveRateArguments(t *testing.T) {
	second := Rate{1, time.Second}
	for name, test := range map[string]struct {
		floor, ceiling Rate
		target         time.Duration
	}{
		"no floor":               {Rate{0, time.Second}, second, 1},
		"a floor over the rate":  {Rate{2, time.Second}, second, 1},
		"no target":              {second, second, 0},
		"a rate without period":  {second, Rate{1, 0}, 1},
		"a floor without period": {Rate{}, second, 1},
	} {
		if _, err := NewAdaptiveRate(test.floor, test.ceiling, test.target); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestAdaptiveRateAllocatesNothing(t *testing.T) {
	a := adaptiveUnderTest(t)
	now := atFull(t, a)
	if n := testing.AllocsPerRun(1000, func() { now = step(a, now) }); n > 0 {
		t.Errorf("%g allocations a delivery", n)
	}
}

func step(a *AdaptiveRate, now int64) int64 {
	a.Depart(now, 1, true)
	a.Observe(now+1e6, Answer{Started: now, Took: 1e6, Done: 1})
	_ = a.Rate()
	return now + 5e6
}

func BenchmarkAdaptiveRate(b *testing.B) {
	a := adaptiveUnderTest(b)
	now := int64(0)
	for b.Loop() {
		now = step(a, now)
	}
}
