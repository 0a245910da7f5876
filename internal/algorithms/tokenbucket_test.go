package algorithms

import (
	"math"
	"math/big"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// rationalBucket is a token bucket in exact rationals: the meaning, without the
// machine.
type rationalBucket struct {
	perNs, burst, tokens *big.Rat
	at                   int64
	used                 bool
}

func newRational(r Rate, burst uint64) *rationalBucket {
	return &rationalBucket{
		perNs: new(big.Rat).SetFrac(new(big.Int).SetUint64(r.N), big.NewInt(int64(r.Per))),
		burst: new(big.Rat).SetInt(new(big.Int).SetUint64(burst)),
	}
}

func span(from, to int64) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Sub(big.NewInt(to), big.NewInt(from)))
}

// filled is the bucket at the instant now.
func (m rationalBucket) filled(now int64) rationalBucket {
	switch {
	case !m.used:
		m.tokens, m.at, m.used = m.burst, now, true
	case now > m.at:
		grown := new(big.Rat).Mul(span(m.at, now), m.perNs)
		m.tokens, m.at = minRat(grown.Add(grown, m.tokens), m.burst), now
	}
	return m
}

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// take changes the bucket only if it admits.
func (m *rationalBucket) take(now, n int64) Decision {
	f := m.filled(now)
	want := new(big.Rat).SetInt64(n)
	short := new(big.Rat).Sub(want, f.tokens)
	if short.Sign() <= 0 {
		f.tokens = new(big.Rat).Neg(short)
		*m = f
		return Decision{Allowed: true, Remaining: floor(m.tokens).Uint64()}
	}
	d := Decision{Remaining: floor(f.tokens).Uint64(), RetryAfter: Never}
	if want.Cmp(f.burst) <= 0 && f.perNs.Sign() > 0 {
		wait := short.Quo(short, f.perNs)
		wait.Add(wait, span(now, f.at))
		d.RetryAfter = saturated(new(big.Int).Neg(floor(wait.Neg(wait))))
	}
	return d
}

// floor rounds towards minus infinity.
func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

var anyPeriod = rapid.OneOf(
	rapid.Int64Range(1, 1000),
	rapid.SampledFrom([]int64{1e6, 250e6, 1e9, 60e9, 3600e9, 86400e9, int64(maxPeriod)}),
	rapid.Int64Range(1, int64(maxPeriod)),
)

var anyRate = rapid.Custom(func(t *rapid.T) Rate {
	r := Rate{Per: time.Duration(anyPeriod.Draw(t, "per"))}
	most := uint64(r.Per) // one a nanosecond
	r.N = rapid.OneOf(rapid.Uint64Range(0, min(20, most)), rapid.Uint64Range(0, most)).Draw(t, "n")
	return r
})

var anyBurst = rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 1<<62-1), rapid.Just(uint64(200_000)))

// anyStep moves the clock: little, far, back, or to the edge of the last hint.
func anyStep(t *rapid.T, now int64, hint time.Duration) int64 {
	step := rapid.OneOf(
		rapid.Int64Range(0, 10), rapid.Int64Range(0, int64(time.Hour)), rapid.Int64Range(-int64(time.Minute), 0),
		rapid.Int64Range(0, int64(10*maxPeriod)), rapid.SampledFrom([]int64{-2, -1}),
	).Draw(t, "step")
	if step < 0 && step >= -2 && hint > 0 {
		step += int64(hint) + 1 // one before it, or at it
	}
	if step > 0 && now > math.MaxInt64-step {
		return math.MaxInt64
	}
	return now + step
}

func anyRequest(t *rapid.T, burst uint64) int64 {
	b := int64(burst)
	return rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, b), rapid.SampledFrom([]int64{b, b + 1})).Draw(t, "tokens")
}

func TestTokenBucketAgreesWithRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pace, burst := anyRate.Draw(t, "rate"), anyBurst.Draw(t, "burst")
		limit, err := NewTokenBucket(Rule{TokenBucketName, pace, burst})
		if err != nil {
			t.Fatal(err)
		}
		exact := newRational(pace, burst)
		var b Bucket
		now := rapid.Int64Range(-1e18, 1e18).Draw(t, "start")
		var hint time.Duration
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = anyStep(t, now, hint)
			n := anyRequest(t, burst)
			got, err := limit.Take(&b, now, n)
			if want := exact.take(now, n); err != nil || got != want {
				t.Fatalf("%d of %s burst %d at %d: %+v, %v; exactly %+v", n, pace, burst, now, got, err, want)
			}
			hint = got.RetryAfter
		}
	})
}

func TestTokenBucketNeverPassesItsRate(t *testing.T) {
	type taken struct{ at, n int64 }
	rapid.Check(t, func(t *rapid.T) {
		pace, burst := anyRate.Draw(t, "rate"), rapid.Uint64Range(0, 1000).Draw(t, "burst")
		limit, err := NewTokenBucket(Rule{TokenBucketName, pace, burst})
		if err != nil {
			t.Fatal(err)
		}
		var (
			b      Bucket
			log    []taken
			now    int64
			latest = int64(math.MinInt64)
			hint   time.Duration
		)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = anyStep(t, now, hint)
			n := anyRequest(t, burst)
			d, _ := limit.Take(&b, now, n)
			if hint = d.RetryAfter; d.Allowed {
				latest = max(latest, now) // a clock that steps back lengthens no window
				log = append(log, taken{latest, n})
			}
		}
		for i := range log {
			sum := new(big.Rat)
			for _, last := range log[i:] {
				sum.Add(sum, new(big.Rat).SetInt64(last.n))
				bound := newRational(pace, burst)
				most := span(log[i].at, last.at)
				most.Mul(most, bound.perNs).Add(most, bound.burst)
				if sum.Cmp(most) > 0 {
					t.Fatalf("%s burst %d: %s tokens from %d to %d, at most %s", pace, burst, sum, log[i].at, last.at, most)
				}
			}
		}
	})
}

// golang.org/x/time/rate means the same as long as its floating point is exact:
// eighths of a second, whole rates, a clock that only goes on.
func TestTokenBucketAgreesWithXTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.IntRange(1, 1000).Draw(t, "rate")
		burst := rapid.IntRange(1, 1000).Draw(t, "burst")
		limit, err := NewTokenBucket(Rule{TokenBucketName, Rate{uint64(perSecond), time.Second}, uint64(burst)})
		if err != nil {
			t.Fatal(err)
		}
		oracle := rate.NewLimiter(rate.Limit(perSecond), burst)
		origin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		var b Bucket
		var now time.Duration
		for range 50 {
			now += time.Duration(rapid.IntRange(0, 9).Draw(t, "eighths")) * time.Second / 8
			n := rapid.IntRange(0, burst+1).Draw(t, "tokens")
			got, _ := limit.Take(&b, int64(now), int64(n))
			want := oracle.AllowN(origin.Add(now), n)
			left := uint64(oracle.TokensAt(origin.Add(now)))
			if got.Allowed != want || got.Remaining != left {
				t.Fatalf("%d tokens at %s: %+v; x/time says %v and %d left", n, now, got, want, left)
			}
		}
	})
}

// Whoever waits as told passes, whoever comes 1 ns early does not: also at rates
// whose interval is no whole number of nanoseconds.
func TestTokenBucketRetryAfterIsExact(t *testing.T) {
	for _, perSecond := range []uint64{1, 3, 7, 20, 999, 999_983, 300_000_001, 700_000_000, 1_000_000_000} {
		limit := mustBucket(t, perSecond, time.Second, 1)
		var b Bucket
		now := int64(12345)
		for i := range 2000 {
			if d, _ := limit.Take(&b, now, 1); !d.Allowed {
				t.Fatalf("%d/s: refusal %d after waiting as told: %+v", perSecond, i, d)
			}
			d, _ := limit.Take(&b, now, 1)
			if d.Allowed || d.RetryAfter <= 0 {
				t.Fatalf("%d/s: %+v right after the only token", perSecond, d)
			}
			if early, _ := limit.Take(&b, now+int64(d.RetryAfter)-1, 1); early.Allowed {
				t.Fatalf("%d/s: admitted 1 ns early", perSecond)
			}
			now += int64(d.RetryAfter)
		}
	}
}

func TestTokenBucketDoesNotDrift(t *testing.T) {
	for _, pace := range []Rate{{3, time.Second}, {7, time.Minute}, {999_983, time.Second}, {1, time.Hour}} {
		// One place more than is used: what comes in past the burst is lost, and
		// that includes the rest of the nanosecond in which a token became whole.
		limit := mustBucket(t, pace.N, pace.Per, 2)
		var b Bucket
		limit.Take(&b, 0, 2)
		for k := int64(1); k <= 100_000; k++ {
			// The k-th token after the first is whole at k·per/n, rounded up.
			at := (k*int64(pace.Per) + int64(pace.N) - 1) / int64(pace.N)
			if d, _ := limit.Look(b, at-1, 1); d.Allowed {
				t.Fatalf("%s: token %d a nanosecond early", pace, k)
			}
			if d, _ := limit.Take(&b, at, 1); !d.Allowed {
				t.Fatalf("%s: token %d late by %s", pace, k, d.RetryAfter)
			}
		}
	}
}

// A caller who keeps asking is not starved by its own refusals (golang/go#52584).
func TestTokenBucketRefusalsTakeNothing(t *testing.T) {
	limit := mustBucket(t, 10, time.Second, 10)
	var b Bucket
	admitted := 0
	for now := int64(0); now <= int64(10*time.Second); now += int64(100 * time.Microsecond) {
		d, _ := limit.Take(&b, now, 1)
		if d.Allowed {
			admitted++
		} else if d.RetryAfter > 100*time.Millisecond {
			t.Fatalf("the hint grew to %s", d.RetryAfter)
		}
	}
	if admitted != 110 {
		t.Errorf("%d admitted in 10 s at 10/s with a burst of 10, want 110", admitted)
	}
}
