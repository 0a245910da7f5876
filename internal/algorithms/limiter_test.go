package algorithms

import (
	"errors"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// forEach runs f for every algorithm.
func forEach(t *testing.T, f func(t *testing.T, algorithm string)) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) { f(t, name) })
	}
}

const theKey = "acme"

// Each algorithm, by itself and as one key of many that is swept and moved about, says
// what its exact model says; Peek says what Take does, and changes nothing.
func TestLimitersAgreeWithTheirModels(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		rapid.Check(t, func(t *rapid.T) {
			r := someRule(algorithm).Draw(t, "rule")
			exact := newModel(r)
			single, err := New(r)
			if err != nil {
				t.Fatal(err)
			}
			keyed, err := NewKeyed(Policy{Default: Rules{r}}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			back := rapid.Bool().Draw(t, "the clock steps back")
			now := anyStart.Draw(t, "start")
			var last Decision
			for range rapid.IntRange(1, 40).Draw(t, "steps") {
				now = anyWalk(t, now, r, last, back)
				n := anyRequest(t, r.Capacity())
				if rapid.Bool().Draw(t, "a glance ahead") {
					_, _ = single.Peek(now+int64(maxPeriod), n)
					_, _, _ = keyed.Peek(theKey, now+int64(maxPeriod), n)
				}
				if !back && rapid.Bool().Draw(t, "swept") {
					_, _, _ = keyed.Take("another", now, 1)
					keyed.Sweep(now, shardCount)
				}
				peeked, _ := single.Peek(now, n)
				got, err := single.Take(now, n)
				keyPeeked, _, _ := keyed.Peek(theKey, now, n)
				keyGot, _, keyErr := keyed.Take(theKey, now, n)
				wantPeek := exact.decide(now, n, false)
				want := exact.decide(now, n, true)
				if err != nil || keyErr != nil || want != wantPeek || got != want || peeked != want || keyGot != want || keyPeeked != want {
					t.Fatalf("%d of %s at %d: Take %+v, %v, Peek %+v; as a key %+v, %v, Peek %+v; exactly %+v (peeked %+v)",
						n, r, now, got, err, peeked, keyGot, keyErr, keyPeeked, want, wantPeek)
				}
				last = got
			}
		})
	})
}

// Whatever the clock does: in no window more than the rate and the burst, or the limit.
// What passes after a step back counts as at the latest instant at which something was
// taken.
func TestLimitersNeverPassTheirBound(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		if algorithm == SlidingWindowCounter {
			t.Skip("it is an estimate; see TestCounterPassesAtMostTwice")
		}
		rapid.Check(t, func(t *rapid.T) {
			r := someRule(algorithm).Draw(t, "rule")
			l, err := New(r)
			if err != nil {
				t.Fatal(err)
			}
			var passed []event
			latest, now := int64(math.MinInt64), anyStart.Draw(t, "start")
			var d Decision
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				now = anyWalk(t, now, r, d, true)
				n := anyRequest(t, r.Capacity())
				if d, _ = l.Take(now, n); d.Allowed && n > 0 {
					latest = max(latest, now)
					passed = append(passed, event{latest, uint64(n)})
				}
			}
			checkBound(t, r, passed)
		})
	})
}

func checkBound(t rapid.TB, r Rule, passed []event) {
	t.Helper()
	pace := newBucketModel(r).pace
	for i := range passed {
		sum := new(big.Int)
		for _, e := range passed[i:] {
			sum.Add(sum, new(big.Int).SetUint64(e.n))
			most := new(big.Rat).SetInt(new(big.Int).SetUint64(r.Capacity()))
			switch {
			case r.bucket():
				most.Add(most, new(big.Rat).Mul(span(passed[i].at, e.at), pace))
			case r.Algorithm == FixedWindow && floorDiv(e.at, int64(r.Rate.Per)) != floorDiv(passed[i].at, int64(r.Rate.Per)),
				uint64(e.at)-uint64(passed[i].at) >= uint64(r.Rate.Per):
				continue
			}
			if new(big.Rat).SetInt(sum).Cmp(most) > 0 {
				t.Fatalf("%s: %s passed from %d to %d, at most %s", r, sum, passed[i].at, e.at, most.FloatString(3))
			}
		}
	}
}

// The counter takes the window before as evenly spread. Where it was not, a window of
// a period holds more than the limit, but never more than twice.
func TestCounterPassesAtMostTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRule(SlidingWindowCounter).Draw(t, "rule")
		l, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		var passed []event
		var d Decision
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = anyWalk(t, now, r, d, false)
			n := anyRequest(t, r.Capacity())
			if d, _ = l.Take(now, n); d.Allowed {
				passed = append(passed, event{now, uint64(n)})
			}
		}
		for i := range passed {
			sum := uint64(0)
			for _, e := range passed[i:] {
				if e.at-passed[i].at < int64(r.Rate.Per) {
					sum += e.n
				}
			}
			if sum > 2*r.Rate.N {
				t.Fatalf("%s: %d passed within a period from %d on", r, sum, passed[i].at)
			}
		}
	})
}

// 1024/s is an interval of a half nanosecond more than whole ones. On a clock that
// counts from 1970 it refills as any other, till the year 2116.
func TestBucketsRefillToday(t *testing.T) {
	for _, pace := range []string{"1000/s", "1024/s", "400000000/s", "3/s", "1/d"} {
		for _, year := range []int{1900, 1970, 2026, 2044, 2115} {
			r := mustRule(t, "token-bucket:"+pace+",burst=7")
			k := mustKeyed(t, r.String(), 10)
			now := int64(year-1970) * 365 * 86400e9
			for i := range 3 {
				if d, _, _ := k.Take(theKey, now, 7); !d.Allowed {
					t.Fatalf("%s in %d: refill %d: %+v", r, year, i, d)
				}
				d, _, _ := k.Peek(theKey, now, 7)
				if want := time.Duration(ceil(new(big.Rat).Quo(big.NewRat(7, 1), newBucketModel(r).pace)).Int64()); d.RetryAfter != want {
					t.Fatalf("%s in %d: %+v, want a wait of %s", r, year, d, want)
				}
				now += int64(d.RetryAfter)
			}
		}
	}
}

// More asked is never easier, waiting never makes it harder. Who waits as told passes,
// who comes 1 ns early does not. After Reset, and not 1 ns before, the limiter is as
// one that was never used.
func TestHintsAreExact(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		rapid.Check(t, func(t *rapid.T) {
			r := someRule(algorithm).Draw(t, "rule")
			if algorithm == SlidingWindow && rapid.Bool().Draw(t, "many requests") {
				r.Rate = Rate{N: 400, Per: max(r.Rate.Per, 1000)} // past 128 instants
			}
			l, err := New(r)
			if err != nil {
				t.Fatal(err)
			}
			peek := func(now, n int64) Decision {
				d, err := l.Peek(now, n)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			now := anyStart.Draw(t, "start")
			for range rapid.IntRange(0, 150).Draw(t, "crowd") {
				now += rapid.Int64Range(0, max(1, int64(r.Rate.Per)/200)).Draw(t, "gap")
				_, _ = l.Take(now, 1)
			}
			var last Decision
			for range rapid.IntRange(1, 20).Draw(t, "steps") {
				now = anyWalk(t, now, r, last, true)
				last, _ = l.Take(now, anyRequest(t, r.Capacity()))
			}
			a, b := anyRequest(t, r.Capacity()), anyRequest(t, r.Capacity())
			a, b = min(a, b), max(a, b)
			less, more := peek(now, a), peek(now, b)
			if more.Allowed && !less.Allowed || Longer(less.RetryAfter, more.RetryAfter) {
				t.Fatalf("%s: %d tokens %+v, %d tokens %+v", r, a, less, b, more)
			}
			wait := int64(anyWalk(t, 0, r, last, false))
			if later := peek(now+wait, b); more.Allowed && !later.Allowed || !more.Allowed && more.RetryAfter != Never && later.RetryAfter != max(0, more.RetryAfter-time.Duration(wait)) && more.RetryAfter != math.MaxInt64 {
				t.Fatalf("%s: %d tokens now %+v, %d ns later %+v", r, b, more, wait, later)
			}
			if w := more.RetryAfter; w > 0 && int64(w) < math.MaxInt64/8 {
				if !peek(now+int64(w), b).Allowed || peek(now+int64(w)-1, b).Allowed {
					t.Fatalf("%s: %d tokens are told to wait %d: %+v then, %+v 1 ns before", r, b, w, peek(now+int64(w), b), peek(now+int64(w)-1, b))
				}
			}
			whole := int64(r.Capacity())
			state := peek(now, 0)
			unused := func(at int64) bool {
				return peek(at, 0) == Decision{Allowed: true, Remaining: r.Capacity()} && peek(at, whole).Allowed
			}
			switch w := int64(state.Reset); {
			case w == 0 && !unused(now), w > 0 && w < math.MaxInt64/8 && (!unused(now+w) || unused(now+w-1)):
				t.Fatalf("%s: %+v, but then %+v, and 1 ns before %+v", r, state, peek(now+w, whole), peek(now+w-1, whole))
			case state.Reset == Never && unused(now+int64(maxPeriod)):
				t.Fatalf("%s: never as before, it says", r)
			}
		})
	})
}

func TestOddRequests(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		r := Rule{Algorithm: algorithm, Rate: Rate{10, time.Second}}
		if r.bucket() {
			r.Burst = 10
		}
		l := mustNew(t, r)
		k := mustKeyed(t, r.String(), 10)
		take := func(n int64) (Decision, error) {
			d, err := l.Take(5, n)
			kd, _, kerr := k.Take(theKey, 5, n)
			if d != kd || !errors.Is(kerr, err) {
				t.Errorf("%d tokens: %+v, %v; as a key %+v, %v", n, d, err, kd, kerr)
			}
			return d, err
		}
		if d, err := take(11); err != nil || d.Allowed || d.RetryAfter != Never || d.Remaining != 10 {
			t.Errorf("more than there ever are: %+v, %v", d, err)
		}
		if d, _ := take(math.MaxInt64); d.Allowed || d.RetryAfter != Never || d.Remaining != 10 {
			t.Errorf("the most that can be asked for: %+v", d)
		}
		if d, _ := take(10); !d.Allowed || d.Remaining != 0 {
			t.Errorf("all: %+v", d)
		}
		for _, n := range []int64{-1, -5, math.MinInt64} {
			if _, err := take(n); !errors.Is(err, ErrNegative) {
				t.Errorf("%d tokens: error %v, want %v", n, err, ErrNegative)
			}
		}
		if d, _ := take(0); !d.Allowed || d.Remaining != 0 || d.RetryAfter != 0 {
			t.Errorf("0 of an empty one: %+v", d)
		}
		if d, _ := take(1); d.Allowed {
			t.Errorf("a negative request gave something back: %+v", d)
		}
		// A caller who keeps asking is not starved by its own refusals, nor by the
		// time it asks for.
		for now := int64(5); now < 3e9; now += 1e6 {
			if d, _ := l.Peek(now, 10); d.RetryAfter > 2*time.Second {
				t.Fatalf("the hint grew to %s", d.RetryAfter)
			}
			_, _ = l.Take(now, 11)
		}
		if d, _ := l.Take(3e9, 10); !d.Allowed {
			t.Errorf("refusals took something: %+v", d)
		}
	})
}

// The case in which x/time/rate gives a token for every step back and forth
// (golang/go#56287).
func TestAClockThatAlternatesMintsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		r := Rule{Algorithm: algorithm, Rate: Rate{1, time.Second}}
		if r.bucket() {
			r.Burst = 1
		}
		l := mustNew(t, r)
		admitted := 0
		for range 100 {
			_, _ = l.Take(19e9, 0)
			for _, now := range []int64{19e9, 20e9} {
				if d, _ := l.Take(now, 1); d.Allowed {
					admitted++
				}
			}
		}
		if admitted > 2 {
			t.Errorf("%d admitted in two seconds at 1/s", admitted)
		}
	})
}

// golang.org/x/time/rate means the same as long as its floating point is exact:
// eighths of a second, whole rates, a clock that only goes on.
func TestBucketsAgreeWithXTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.IntRange(1, 1000).Draw(t, "rate")
		burst := rapid.IntRange(1, 1000).Draw(t, "burst")
		name := rapid.SampledFrom([]string{TokenBucket, GCRA, LeakyBucket}).Draw(t, "algorithm")
		limit, err := New(Rule{name, Rate{uint64(perSecond), time.Second}, uint64(burst)})
		if err != nil {
			t.Fatal(err)
		}
		oracle := rate.NewLimiter(rate.Limit(perSecond), burst)
		origin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		var now time.Duration
		for range 50 {
			now += time.Duration(rapid.IntRange(0, 9).Draw(t, "eighths")) * time.Second / 8
			n := rapid.IntRange(0, burst+1).Draw(t, "tokens")
			got, _ := limit.Take(int64(now), int64(n))
			want := oracle.AllowN(origin.Add(now), n)
			left := uint64(oracle.TokensAt(origin.Add(now)))
			if got.Allowed != want || got.Remaining != left {
				t.Fatalf("%d tokens at %s: %+v; x/time says %v and %d left", n, now, got, want, left)
			}
		}
	})
}

// The k-th token is whole at k·per/n, rounded up, whatever k.
func TestBucketsDoNotDrift(t *testing.T) {
	for _, pace := range []Rate{{3, time.Second}, {7, time.Minute}, {999_983, time.Second}, {300_000_001, time.Second}, {1, time.Hour}, {2, time.Second}} {
		// One place more than is used: what comes in past the burst is lost, and
		// that includes the rest of the nanosecond in which a token became whole.
		l := mustNew(t, Rule{TokenBucket, pace, 2})
		_, _ = l.Take(0, 2)
		for k := int64(1); k <= 20_000; k++ {
			at := (k*int64(pace.Per) + int64(pace.N) - 1) / int64(pace.N)
			if d, _ := l.Peek(at-1, 1); d.Allowed && at-1 > (k-1)*int64(pace.Per)/int64(pace.N) {
				t.Fatalf("%s: token %d a nanosecond early", pace, k)
			}
			if d, _ := l.Take(at, 1); !d.Allowed {
				t.Fatalf("%s: token %d late by %s", pace, k, d.RetryAfter)
			}
		}
	}
}

// The sliding window is the log up to 128 instants. Beyond them it never passes more,
// and holds nothing that the log would let pass had its window been a 64th longer.
func TestSlidingWindowAgainstTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.SampledFrom([]int64{100, 6400, 1e9, 60e9}).Draw(t, "per")
		limit := rapid.Uint64Range(1, 400).Draw(t, "limit")
		r := Rule{Algorithm: SlidingWindow, Rate: Rate{limit, time.Duration(per)}}
		window, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		longer := per + (per+cells-1)/cells
		truth := &logModel{limit: new(big.Int).SetUint64(limit), period: per}
		now, merged := int64(0), false
		for range 300 {
			now += rapid.Int64Range(0, max(1, per/100)).Draw(t, "gap")
			merged = merged || truth.instants(now) >= mergedFrom
			d, _ := window.Take(now, 1)
			exact := truth.left(now, 1).Sign() >= 0
			if d.Allowed && !exact {
				t.Fatalf("%s: more than %d in a window at %d", r, limit, now)
			}
			truth.period = longer
			sure := truth.left(now, 1).Sign() >= 0
			truth.period = per
			if sure && !d.Allowed || !merged && exact != d.Allowed {
				t.Fatalf("%s: held at %d: %+v", r, now, d)
			}
			if d.Allowed {
				truth.entries = append(truth.entries, event{now, 1})
			}
		}
	})
}

// At 128 instants it is still the log, at 129 no more.
func TestSlidingWindowMergesPast128Instants(t *testing.T) {
	const step = 1000
	for _, limit := range []int64{mergedFrom, mergedFrom + 1} {
		l := mustNew(t, Rule{Algorithm: SlidingWindow, Rate: Rate{uint64(limit), time.Duration(limit * step)}})
		late := false
		for i := range 3 * limit {
			now := i * step // as each is a period old, there is room for one more
			if i >= limit && !late {
				if d, _ := l.Peek(now-1, 1); d.Allowed {
					t.Fatalf("limit %d: request %d passes early", limit, i)
				}
			}
			if d, _ := l.Take(now, 1); !d.Allowed {
				late = true
			}
		}
		if late != (limit > mergedFrom) {
			t.Errorf("limit %d: held too long %v", limit, late)
		}
	}
}

// All that there is of small counters: every count before, every count now, every
// instant, every request.
func TestCounterExhaustively(t *testing.T) {
	for period := int64(1); period <= 5; period++ {
		for limit := int64(0); limit <= 5; limit++ {
			r := Rule{Algorithm: SlidingWindowCounter, Rate: Rate{uint64(limit), time.Duration(period)}}
			for previous := range limit + 1 {
				for first := range period {
					for current := range limit + 1 {
						l, exact := mustNew(t, r), newModel(r)
						both := func(now, n int64) {
							got, _ := l.Take(now, n)
							if want := exact.decide(now, n, true); got != want {
								t.Fatalf("%s, %d before, %d at %d: %d at %d: %+v, exactly %+v", r, previous, current, first, n, now, got, want)
							}
						}
						both(0, previous)
						both(period+first, current)
						for now := first; now < 2*period; now++ {
							for n := range limit + 2 {
								got, _ := l.Peek(period+now, n)
								if want := exact.decide(period+now, n, false); got != want {
									t.Fatalf("%s, %d before, %d at %d: %d at %d: %+v, exactly %+v", r, previous, current, first, n, now, got, want)
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestBurstIsAdmittedOnce(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		r := Rule{Algorithm: algorithm, Rate: Rate{400, time.Hour}}
		if r.bucket() {
			r.Burst = 400
		}
		l := mustNew(t, r)
		k := mustKeyed(t, r.String(), 10)
		var single, keyed atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 300 {
					if d, _ := l.Take(0, 1); d.Allowed {
						single.Add(1)
					}
					if d, _, _ := k.Take(theKey, 0, 1); d.Allowed {
						keyed.Add(1)
					}
					_, _ = l.Peek(0, 1)
					_, _, _ = k.Peek(theKey, 0, 1)
				}
			})
		}
		wg.Wait()
		if single.Load() != 400 || keyed.Load() != 400 {
			t.Errorf("%d admitted of one burst of 400, %d as a key", single.Load(), keyed.Load())
		}
	})
}

func TestLeakyQueueBounds(t *testing.T) {
	if _, err := NewLeakyQueue(UnlimitedRate(), 1); err == nil {
		t.Error("an unlimited queue was accepted")
	}
	if _, err := NewLeakyQueue(Rate{0, time.Second}, 1); err == nil {
		t.Error("a queue that never drains was accepted")
	}
	if _, err := NewLeakyQueue(Rate{1, time.Second}, maxBurst); err == nil {
		t.Error("a queue of 2^62 places was accepted")
	}
	q, err := NewLeakyQueue(Rate{3, time.Second}, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, -1} {
		if _, _, err := q.Offer(0, n); !errors.Is(err, ErrNegative) {
			t.Errorf("%d arrivals: %v", n, err)
		}
	}
	// What leaves keeps its distance: the k-th of those that came at once leaves k
	// intervals later.
	for k := range int64(6) {
		delay, d, err := q.Offer(0, 1)
		if want := time.Duration((k*1e9 + 2) / 3); err != nil || !d.Allowed || delay != want || d.Remaining != uint64(5-k) {
			t.Errorf("arrival %d: delay %s, %+v, %v; want %s", k, delay, d, err, want)
		}
	}
	if _, d, _ := q.Offer(0, 1); d.Allowed || d.RetryAfter != 333_333_334 {
		t.Errorf("one more: %+v", d)
	}
}
