package algorithms

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestTokenBucketAtTheEndsOfArithmetic(t *testing.T) {
	// 2^65−1 token-intervals over 2: the wait in nanoseconds needs 65 bits.
	limit := mustBucket(t, 2, 253921, 145295143558111)
	var b Bucket
	if d, _ := limit.Take(&b, 0, 145295143558111); !d.Allowed {
		t.Fatalf("a full bucket: %+v", d)
	}
	if d, _ := limit.Look(b, 0, 145295143558111); d.Allowed || d.RetryAfter != math.MaxInt64 {
		t.Errorf("a wait of 2^64 ns: %+v, want the largest duration", d)
	}

	limit = mustBucket(t, 1, maxPeriod, 1<<62)
	b = Bucket{}
	limit.Take(&b, 0, 1<<62)
	if d, _ := limit.Look(b, 0, 1<<62); d.Allowed || d.RetryAfter != math.MaxInt64 {
		t.Errorf("a wait of 2^116 ns: %+v, want the largest duration", d)
	}

	limit = mustBucket(t, 1, time.Second, 1)
	b = Bucket{}
	limit.Take(&b, math.MaxInt64, 1)
	if d, _ := limit.Look(b, math.MinInt64, 1); d.Allowed || d.RetryAfter != math.MaxInt64 {
		t.Errorf("a clock set back by 2^64 ns: %+v, want the largest duration", d)
	}

	b = Bucket{}
	limit.Take(&b, math.MinInt64, 1)
	if d, _ := limit.Look(b, math.MaxInt64, 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("after 2^64 ns: %+v, want the one token", d)
	}

	limit = mustBucket(t, 1_000_000_000, time.Second, 1<<62)
	b = Bucket{}
	limit.Take(&b, 0, 1<<62)
	if d, _ := limit.Take(&b, 1<<62, 1<<62); !d.Allowed {
		t.Errorf("2^62 tokens after 2^62 ns at 10⁹/s: %+v", d)
	}
}

func TestTokenBucketRefusesNegativeRequests(t *testing.T) {
	limit := mustBucket(t, 10, time.Second, 10)
	var b Bucket
	limit.Take(&b, 0, 10)
	if _, err := limit.Take(&b, 0, -5); !errors.Is(err, ErrNegative) {
		t.Errorf("error %v, want %v", err, ErrNegative)
	}
	if d, _ := limit.Look(b, 0, 1); d.Allowed {
		t.Error("asking for -5 tokens gave some back")
	}
}

func TestNewTokenBucketRefuses(t *testing.T) {
	for name, r := range map[string]Rate{
		"unlimited": UnlimitedRate(), "no period": {1, 0}, "a negative period": {1, -1}, "more than 10⁹/s": {3_000_000_000, 2 * time.Second},
	} {
		if _, err := NewTokenBucket(Rule{TokenBucketName, r, 1}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
