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
	Limit     int64        `json:"limit"`
	PeriodNs  int64        `json:"period_ns"`
	Burst     uint64       `json:"burst"`
	Note      string       `json:"note"`
	Steps     []vectorStep `json:"steps"`
}

type vectorStep struct {
	T          int64    `json:"t_ns"`
	N          int64    `json:"n"`
	Allowed    bool     `json:"allowed"`
	Remaining  *int64   `json:"remaining"`      // 3 are negative, against the file's own conventions
	RetryAfter *big.Int `json:"retry_after_ns"` // one is beyond 63 bits
	Delay      *int64   `json:"delay_ns"`
	Error      string   `json:"error"`
	Set        *struct {
		Limit    int64  `json:"limit"`
		PeriodNs int64  `json:"period_ns"`
		Burst    uint64 `json:"burst"`
	} `json:"set"`
}

// vectorNames are the algorithms as the file names them.
var vectorNames = map[string]string{
	"token_bucket": TokenBucket, "gcra": GCRA, "leaky_bucket_meter": LeakyBucket, "fixed_window": FixedWindow,
	"sliding_window": SlidingWindow, "sliding_window_log": SlidingWindowLog, "sliding_window_counter": SlidingWindowCounter,
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/limiters.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 101 {
		t.Fatalf("%d vectors, want 101", len(all))
	}
	return all
}

func vectorRule(algorithm string, limit, periodNs int64, burst uint64) Rule {
	if limit < 0 {
		return Rule{Algorithm: algorithm, Rate: UnlimitedRate()}
	}
	return Rule{Algorithm: algorithm, Rate: Rate{N: uint64(limit), Per: time.Duration(periodNs)}, Burst: burst}
}

// A limiter by itself, and one key of many, give the same answers.
func TestVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		algorithm, ok := vectorNames[v.Algorithm]
		if !ok {
			continue // the queue's
		}
		rule := vectorRule(algorithm, v.Limit, v.PeriodNs, v.Burst)
		t.Run(v.ID, func(t *testing.T) {
			single, err := New(rule)
			if err != nil {
				t.Fatal(err)
			}
			keyed, err := NewKeyed(Policy{Default: Rules{rule}}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			changed := false
			for i, s := range v.Steps {
				if s.Set != nil {
					rule = vectorRule(algorithm, s.Set.Limit, s.Set.PeriodNs, s.Set.Burst)
					if err := keyed.Change(Policy{Default: Rules{rule}}, s.T); err != nil {
						t.Fatal(err)
					}
					changed = true
					continue
				}
				d, by, err := keyed.Take("acme", s.T, s.N)
				if s.Error == "" && *by != rule {
					t.Errorf("step %d: judged by %s, want %s", i, by, rule)
				}
				s.check(t, i, d, err, v.Note)
				if !changed {
					peeked, peekErr := single.Peek(s.T, s.N)
					d, err := single.Take(s.T, s.N)
					s.check(t, i, d, err, v.Note)
					if d != peeked || (err == nil) != (peekErr == nil) {
						t.Errorf("step %d: Peek says %+v, %v, Take %+v, %v", i, peeked, peekErr, d, err)
					}
				}
			}
		})
	}
}

func (s vectorStep) check(t *testing.T, i int, d Decision, err error, note string) {
	t.Helper()
	if s.Error != "" {
		if !errors.Is(err, ErrNegative) {
			t.Errorf("step %d: error %v, want %v", i, err, ErrNegative)
		}
		return
	}
	if err != nil || d.Allowed != s.Allowed {
		t.Fatalf("step %d: %+v, %v; want allowed %v (%s)", i, d, err, s.Allowed, note)
	}
	if s.Remaining != nil && d.Remaining != uint64(max(0, *s.Remaining)) {
		t.Errorf("step %d: remaining %d, want %d (%s)", i, d.Remaining, *s.Remaining, note)
	}
	if s.RetryAfter != nil && d.RetryAfter != saturated(s.RetryAfter) {
		t.Errorf("step %d: retry after %d, want %d (%s)", i, d.RetryAfter, s.RetryAfter, note)
	}
}

func saturated(ns *big.Int) time.Duration {
	if !ns.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(ns.Int64())
}

func TestLeakyQueueVectors(t *testing.T) {
	cases := 0
	for _, v := range readVectors(t) {
		if v.Algorithm != "leaky_bucket_queue" {
			continue
		}
		cases++
		t.Run(v.ID, func(t *testing.T) {
			rate := Rate{uint64(v.Limit), time.Duration(v.PeriodNs)}
			q, err := NewLeakyQueue(rate, v.Burst)
			if err != nil {
				t.Fatal(err)
			}
			c := mustClock(t, rate, 0)
			for i, s := range v.Steps {
				delay, d, err := q.Offer(s.T, s.N)
				s.check(t, i, d, err, v.Note)
				if !s.Allowed {
					continue
				}
				if s.Delay == nil || int64(delay) != *s.Delay {
					t.Fatalf("step %d: delay %s, want %d ns (%s)", i, delay, *s.Delay, v.Note)
				}
				// The shaper's clock lets the same arrival go at the same instant.
				if wait := c.Wait(s.T); wait != delay || !c.Depart(s.T+int64(wait), 1) {
					t.Fatalf("step %d: the departure clock says %s, the queue %s", i, wait, delay)
				}
			}
		})
	}
	if cases != 4 {
		t.Errorf("%d cases of the queue, want 4", cases)
	}
}
