package algorithms

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"os"
	"testing"
	"time"
)

// vector is one case of testdata/limiters.json: values derived by hand and checked
// with exact rationals. Time starts at 0; retry_after_ns is -1 for never.
type vector struct {
	ID        string       `json:"id"`
	Algorithm string       `json:"algorithm"`
	Limit     uint64       `json:"limit"`
	PeriodNs  int64        `json:"period_ns"`
	Burst     uint64       `json:"burst"`
	Note      string       `json:"note"`
	Steps     []vectorStep `json:"steps"`
}

type vectorStep struct {
	T          int64    `json:"t_ns"`
	N          int64    `json:"n"`
	Allowed    bool     `json:"allowed"`
	Remaining  *uint64  `json:"remaining"`
	RetryAfter *big.Int `json:"retry_after_ns"` // one is beyond 63 bits
	Delay      *int64   `json:"delay_ns"`
	Error      string   `json:"error"`
	Set        *struct {
		Limit    uint64 `json:"limit"`
		PeriodNs int64  `json:"period_ns"`
		Burst    uint64 `json:"burst"`
	} `json:"set"`
}

func readVectors(t *testing.T, algorithm string) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/limiters.json")
	if err != nil {
		t.Fatal(err)
	}
	var all, kept []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Algorithm == algorithm {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		t.Fatalf("no vectors for %s", algorithm)
	}
	return kept
}

func mustBucket(t testing.TB, n uint64, per time.Duration, burst uint64) TokenBucket {
	t.Helper()
	b, err := NewTokenBucket(Rule{TokenBucketName, Rate{n, per}, burst})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTokenBucketVectors(t *testing.T) {
	for _, v := range readVectors(t, "token_bucket") {
		t.Run(v.ID, func(t *testing.T) {
			limit := mustBucket(t, v.Limit, time.Duration(v.PeriodNs), v.Burst)
			var b Bucket
			for i, s := range v.Steps {
				if s.Set != nil {
					changed := mustBucket(t, s.Set.Limit, time.Duration(s.Set.PeriodNs), s.Set.Burst)
					changed.Rebase(&b, s.T, limit)
					limit = changed
					continue
				}
				d, err := limit.Take(&b, s.T, s.N)
				if s.Error != "" {
					if !errors.Is(err, ErrNegative) {
						t.Errorf("step %d: error %v, want %v", i, err, ErrNegative)
					}
					continue
				}
				if err != nil || d.Allowed != s.Allowed {
					t.Fatalf("step %d: %+v, %v; want allowed %v (%s)", i, d, err, s.Allowed, v.Note)
				}
				if s.Remaining != nil && d.Remaining != *s.Remaining {
					t.Errorf("step %d: remaining %d, want %d (%s)", i, d.Remaining, *s.Remaining, v.Note)
				}
				if s.RetryAfter != nil && d.RetryAfter != saturated(s.RetryAfter) {
					t.Errorf("step %d: retry after %d, want %d (%s)", i, d.RetryAfter, s.RetryAfter, v.Note)
				}
			}
		})
	}
}

func saturated(ns *big.Int) time.Duration {
	if !ns.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(ns.Int64())
}

// The queue's cases: each arrival that has room departs as soon as it conforms.
// How much room there is, is not the clock's to say.
func TestDepartureClockVectors(t *testing.T) {
	for _, v := range readVectors(t, "leaky_bucket_queue") {
		t.Run(v.ID, func(t *testing.T) {
			c := mustClock(t, Rate{v.Limit, time.Duration(v.PeriodNs)}, 0)
			for i, s := range v.Steps {
				if !s.Allowed {
					continue
				}
				wait := c.Wait(s.T)
				if s.Delay == nil || int64(wait) != *s.Delay {
					t.Fatalf("step %d: delay %s, want %d ns (%s)", i, wait, *s.Delay, v.Note)
				}
				if !c.Depart(s.T+int64(wait), 1) {
					t.Fatalf("step %d: refused after its delay", i)
				}
			}
		})
	}
}
