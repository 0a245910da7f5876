package algorithms

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var extremeRules = []Rule{
	{TokenBucket, Rate{1, 24 * time.Hour}, 200_000}, {TokenBucket, Rate{1_000_000_000, time.Second}, 1<<62 - 1},
	{TokenBucket, Rate{1_000_000_000, time.Second}, 1 << 61}, {GCRA, Rate{2_000_000_000, time.Second}, 1<<62 - 1}, {GCRA, Rate{1024, time.Second}, 1 << 41}, {TokenBucket, Rate{2_000_000_000, time.Second}, 1 << 61},
	{TokenBucket, Rate{1_500_000_000, time.Second}, 1<<62 - 1}, {TokenBucket, Rate{maxCount, 1}, 1<<62 - 1},
	{TokenBucket, Rate{1, maxPeriod}, 1<<62 - 1}, {TokenBucket, Rate{1, 1}, 1}, {TokenBucket, Rate{0, time.Second}, 1<<62 - 1},
	{TokenBucket, Rate{maxCount, maxPeriod}, 1<<62 - 1}, {GCRA, Rate{3, time.Second}, 5}, {LeakyBucket, Rate{2, time.Second}, 5},
	{FixedWindow, Rate{10, time.Second}, 0}, {FixedWindow, Rate{maxCount, 1}, 0}, {FixedWindow, Rate{maxCount, maxPeriod}, 0},
	{SlidingWindow, Rate{10, time.Second}, 0}, {SlidingWindow, Rate{maxCount, maxPeriod}, 0}, {SlidingWindow, Rate{5, 1}, 0},
	{SlidingWindowLog, Rate{10, time.Second}, 0}, {SlidingWindowLog, Rate{1_000_000, maxPeriod}, 0}, {SlidingWindowLog, Rate{5, 1}, 0},
	{SlidingWindowCounter, Rate{10, time.Second}, 0}, {SlidingWindowCounter, Rate{maxCount, 1}, 0}, {SlidingWindowCounter, Rate{maxCount, maxPeriod}, 0},
}

var extremeInstants = []int64{
	math.MinInt64, math.MinInt64 + 1, math.MinInt64 / 2, -1 << 61, -1 << 60, -1, 0, 1, 1 << 60, 1<<61 - 1, 1 << 61, 1 << 62, math.MaxInt64 - 1, math.MaxInt64,
}

// At every instant that there is the capacity passes once, and answers are in range.
func TestEveryInstantHasItsCapacityOnce(t *testing.T) {
	for _, r := range extremeRules {
		for _, now := range extremeInstants {
			l := mustNew(t, r)
			k, err := NewKeyed(Policy{Default: Rules{r}}, 10)
			if err != nil {
				t.Fatal(err)
			}
			whole := int64(r.Capacity())
			for i, n := range []int64{whole, 1, whole, 0, math.MaxInt64} {
				d, err := l.Take(now, n)
				kd, _, _ := k.Take(theKey, now, n)
				want := i == 0 || n == 0
				if err != nil || d.Allowed != want || kd != d || d.RetryAfter < Never || d.Reset < Never {
					t.Fatalf("%s at %d: request %d for %d: %+v, as a key %+v, %v", r, now, i, n, d, kd, err)
				}
				if d.Remaining != 0 {
					t.Errorf("%s at %d: %d left of nothing", r, now, d.Remaining)
				}
			}
			k.Sweep(now, shardCount)
			if d, _, _ := k.Take(theKey, now, 1); d.Allowed {
				t.Errorf("%s at %d: sweeping gave something back", r, now)
			}
		}
	}
}

// Whatever jumps the clock makes, the bound holds over the latest instants.
func TestNoJumpMintsAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(extremeRules).Draw(t, "rule")
		if r.Algorithm == SlidingWindowCounter {
			r.Algorithm = FixedWindow
		}
		l, err := New(r)
		if err != nil {
			t.Fatal(err)
		}
		var passed []event
		latest := int64(math.MinInt64)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now := rapid.OneOf(rapid.SampledFrom(extremeInstants), rapid.Int64()).Draw(t, "now")
			n := anyRequest(t, r.Capacity())
			if d, err := l.Take(now, n); err != nil || d.RetryAfter < Never || d.Reset < Never || d.Remaining > r.Capacity() {
				t.Fatalf("%s: %d at %d: %+v, %v", r, n, now, d, err)
			} else if d.Allowed && n > 0 {
				latest = max(latest, now)
				passed = append(passed, event{latest, uint64(n)})
			}
		}
		checkBound(t, r, passed)
	})
}

func TestEndsOfArithmetic(t *testing.T) {
	limiter := func(n uint64, per time.Duration, burst uint64) Limiter {
		return mustNew(t, Rule{TokenBucket, Rate{n, per}, burst})
	}
	// 2^65−1 token-intervals over 2: the wait in nanoseconds needs 65 bits.
	l := limiter(2, 253921, 145295143558111)
	if d, _ := l.Take(0, 145295143558111); !d.Allowed {
		t.Fatalf("a full bucket: %+v", d)
	}
	if d, _ := l.Peek(0, 145295143558111); d.Allowed || d.RetryAfter != math.MaxInt64 {
		t.Errorf("a wait of 2^64 ns: %+v, want the largest duration", d)
	}

	l = limiter(1, maxPeriod, maxBurst)
	_, _ = l.Take(0, maxBurst)
	if d, _ := l.Peek(0, maxBurst); d.Allowed || d.RetryAfter != math.MaxInt64 {
		t.Errorf("a wait of 2^116 ns: %+v, want the largest duration", d)
	}

	// Set back by more than can be waited for.
	for name, l := range map[string]Limiter{"3/s": limiter(3, time.Second, 1), "1/s": limiter(1, time.Second, 1)} {
		_, _ = l.Take(math.MaxInt64, 1)
		if d, _ := l.Peek(math.MinInt64, 1); d.Allowed || d.RetryAfter < 1<<62 {
			t.Errorf("%s: a clock set back by 2^64 ns: %+v, want more than 146 years", name, d)
		}
	}

	l = limiter(1, time.Second, 1)
	_, _ = l.Take(math.MinInt64, 1)
	if d, _ := l.Peek(math.MaxInt64, 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("after 2^64 ns: %+v, want the one token", d)
	}

	l = limiter(1_000_000_000, time.Second, maxBurst)
	_, _ = l.Take(0, maxBurst)
	if d, _ := l.Take(maxBurst, maxBurst); !d.Allowed {
		t.Errorf("2^62−1 tokens after as many ns at 10⁹/s: %+v", d)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, r := range map[string]Rule{
		"no algorithm":        {"magic", Rate{1, time.Second}, 1},
		"no period":           {TokenBucket, Rate{1, 0}, 1},
		"a negative period":   {FixedWindow, Rate{1, -1}, 0},
		"too long a period":   {SlidingWindow, Rate{1, maxPeriod + 1}, 0},
		"too large a number":  {SlidingWindowCounter, Rate{maxCount + 1, time.Second}, 0},
		"too large a burst":   {GCRA, Rate{1, time.Second}, maxBurst + 1},
		"the zero rule":       {},
		"no algorithm at all": {"", Rate{1, time.Second}, 1},
	} {
		if _, err := New(r); err == nil {
			t.Errorf("%s: %+v was accepted", name, r)
		}
		if _, err := NewKeyed(Policy{Default: Rules{r}}, 10); err == nil {
			t.Errorf("%s: %+v was accepted for keys", name, r)
		}
	}
}
