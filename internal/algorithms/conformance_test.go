package algorithms

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// worstWindow looks at every closed window between two departures: the most by
// which what left, in time at the rate, exceeds the window.
func worstWindow(log []Departure, r Rate) (worst *big.Rat) {
	for _, first := range log {
		for _, last := range log {
			if last.At < first.At {
				continue
			}
			var count uint64
			for _, d := range log {
				if first.At <= d.At && d.At <= last.At {
					count += d.N
				}
			}
			took := new(big.Rat).SetFrac(new(big.Int).Mul(new(big.Int).SetUint64(count), big.NewInt(int64(r.Per))), new(big.Int).SetUint64(r.N))
			took.Sub(took, span(first.At, last.At))
			if worst == nil || took.Cmp(worst) > 0 {
				worst = took
			}
		}
	}
	return worst
}

func TestCheckRateAgreesWithEveryWindow(t *testing.T) {
	broken, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := Rate{rapid.Uint64Range(1, 20).Draw(t, "n"), time.Duration(rapid.Int64Range(1, 1000).Draw(t, "per"))}
		tolerance := rapid.Int64Range(0, 100).Draw(t, "tolerance")
		log := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Departure {
			return Departure{rapid.Int64Range(-2000, 2000).Draw(t, "at"), rapid.Uint64Range(1, 4).Draw(t, "count")}
		}), 1, 25).Draw(t, "log")
		given := slices.Clone(log)
		e := CheckRate(log, r, time.Duration(tolerance))
		if !slices.Equal(given, log) {
			t.Fatal("the log was changed")
		}

		var largest, count uint64
		for _, d := range log {
			largest = max(largest, d.N)
			if e.From <= d.At && d.At <= e.To {
				count += d.N
			}
		}
		worst := worstWindow(log, r)
		limit := new(big.Rat).SetFrac(new(big.Int).Mul(new(big.Int).SetUint64(largest), big.NewInt(int64(r.Per))), new(big.Int).SetUint64(r.N))
		limit.Add(limit, new(big.Rat).SetInt64(tolerance))
		if want := worst.Cmp(limit) > 0; e.Broken != want {
			t.Fatalf("broken %v, want %v: %+v", e.Broken, want, e)
		}
		if count != e.Count {
			t.Fatalf("says %d left from %d to %d, it was %d", e.Count, e.From, e.To, count)
		}
		// The window it names is a worst one.
		at := new(big.Rat).SetFrac(new(big.Int).Mul(new(big.Int).SetUint64(count), big.NewInt(int64(r.Per))), new(big.Int).SetUint64(r.N))
		if at.Sub(at, span(e.From, e.To)).Cmp(worst) != 0 {
			t.Fatalf("the window from %d to %d is not the worst: %s, %s", e.From, e.To, at, worst)
		}
		if e.Broken {
			broken++
		} else {
			kept++
		}
	})
	if broken == 0 || kept == 0 {
		t.Errorf("%d logs broke the rate, %d kept it: the draw proves nothing", broken, kept)
	}
}

func TestCheckRateFindsTheWindow(t *testing.T) {
	ms := int64(time.Millisecond)
	every := func(interval, n int64) (log []Departure) {
		for i := range n {
			log = append(log, Departure{i * interval, 1})
		}
		return log
	}
	perSecond := Rate{10, time.Second}
	cases := []struct {
		name      string
		log       []Departure
		rate      Rate
		tolerance time.Duration
		broken    bool
		from, to  int64
		count     uint64
	}{
		{name: "on time", log: every(100*ms, 1000), rate: perSecond},
		{name: "one 1 ns early", log: append(every(100*ms, 10), Departure{1000*ms - 1, 1}), rate: perSecond, broken: true, from: 0, to: 1000*ms - 1, count: 11},
		{name: "early by the tolerance", log: append(every(100*ms, 10), Departure{995 * ms, 1}), rate: perSecond, tolerance: 5 * time.Millisecond},
		{name: "early by the tolerance and 1 ns", log: append(every(100*ms, 10), Departure{995*ms - 1, 1}), rate: perSecond, tolerance: 5 * time.Millisecond, broken: true, from: 0, to: 995*ms - 1, count: 11},
		{name: "two at once", log: []Departure{{0, 1}, {500 * ms, 1}, {500 * ms, 1}}, rate: perSecond, broken: true, from: 500 * ms, to: 500 * ms, count: 2},
		{name: "a batch is one departure", log: []Departure{{0, 5}, {500 * ms, 5}}, rate: perSecond},
		{name: "a batch too soon", log: []Departure{{0, 5}, {500*ms - 1, 5}}, rate: perSecond, broken: true, from: 0, to: 500*ms - 1, count: 10},
		{name: "a burst after idling", log: append(every(100*ms, 5), Departure{60000 * ms, 1}, Departure{60000*ms + 1, 1}), rate: perSecond, broken: true, from: 60000 * ms, to: 60000*ms + 1, count: 2},
		{name: "in any order", log: []Departure{{100 * ms, 1}, {0, 1}, {199 * ms, 1}}, rate: perSecond, broken: true, from: 0, to: 199 * ms, count: 3},
		{name: "a little too fast all along", log: every(100*ms-1000, 1000), rate: perSecond, broken: true, from: 0, to: 999 * (100*ms - 1000), count: 1000},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := CheckRate(c.log, c.rate, c.tolerance)
			if e.Broken != c.broken {
				t.Fatalf("%+v, want broken %v", e, c.broken)
			}
			if c.broken && (e.From != c.from || e.To != c.to || e.Count != c.count || float64(e.Count) <= e.Allowed) {
				t.Errorf("%+v, want %d from %d to %d, more than allowed", e, c.count, c.from, c.to)
			}
		})
	}
	if e := CheckRate(nil, perSecond, 0); e.Broken {
		t.Errorf("an empty log: %+v", e)
	}
	if e := CheckRate([]Departure{{0, 1000}, {0, 1000}}, UnlimitedRate(), 0); e.Broken {
		t.Errorf("without a bound: %+v", e)
	}
}
