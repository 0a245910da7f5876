package algorithms

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseRules(t *testing.T) {
	one := func(n uint64, per time.Duration, burst uint64) Rules {
		return Rules{{TokenBucket, Rate{n, per}, burst}}
	}
	cases := []struct {
		in   string
		want Rules
		out  string
	}{
		{"unlimited", nil, "unlimited"},
		{"token-bucket:100/s", one(100, time.Second, 100), "token-bucket:100/s"},
		{"token-bucket:1000/s,burst=2000", one(1000, time.Second, 2000), "token-bucket:1000/s,burst=2000"},
		{"token-bucket:100/s,burst=100", one(100, time.Second, 100), "token-bucket:100/s"},
		{"token-bucket:0/s", one(0, time.Second, 0), "token-bucket:0/s"},
		{"token-bucket:0/s,burst=5", one(0, time.Second, 5), "token-bucket:0/s,burst=5"},
		{"token-bucket:0/s,burst=0", one(0, time.Second, 0), "token-bucket:0/s"},
		{"gcra:10/m,burst=3", Rules{{GCRA, Rate{10, time.Minute}, 3}}, "gcra:10/m,burst=3"},
		{"leaky-bucket:10/m", Rules{{LeakyBucket, Rate{10, time.Minute}, 10}}, "leaky-bucket:10/m"},
		{"fixed-window:100/h;sliding-window-log:5/s", Rules{{FixedWindow, Rate{100, time.Hour}, 0}, {SlidingWindowLog, Rate{5, time.Second}, 0}}, "fixed-window:100/h;sliding-window-log:5/s"},
		{"sliding-window:0/s", Rules{{SlidingWindow, Rate{0, time.Second}, 0}}, "sliding-window:0/s"},
		{"sliding-window-counter:100/2s", Rules{{SlidingWindowCounter, Rate{100, 2 * time.Second}, 0}}, "sliding-window-counter:100/2s"},
		{"token-bucket:1/24h", one(1, 24*time.Hour, 1), "token-bucket:1/d"},
		// The burst is n where none is given, so n must be written as it was read.
		{"token-bucket:100/2s", one(100, 2*time.Second, 100), "token-bucket:100/2s"},
		{"token-bucket:7/7s", one(7, 7*time.Second, 7), "token-bucket:7/7s"},
		{"token-bucket:1/2s", one(1, 2*time.Second, 1), "token-bucket:1/2s"},
		{"token-bucket:3/1.5s", one(3, 1500*time.Millisecond, 3), "token-bucket:3/1.5s"},
		{
			"token-bucket:10/s;token-bucket:100/m,burst=20",
			append(one(10, time.Second, 10), one(100, time.Minute, 20)...),
			"token-bucket:10/s;token-bucket:100/m,burst=20",
		},
	}
	for _, c := range cases {
		got, err := ParseRules(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.in, diff)
		}
		if got.String() != c.out {
			t.Errorf("%s: written %s, want %s", c.in, got, c.out)
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	const form = "it accepts <algorithm>:<n>/<period>[,burst=<n>], several joined by ';', or unlimited"
	cases := []struct{ in, names string }{
		{"", form}, {"100/s", form}, {"token-bucket", form}, {"token-bucket:1/s;", form}, {";token-bucket:1/s", form},
		{"token-bucket:1/s;unlimited", form}, {"none", form},
		{"token_bucket:1/s", "there are token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-window-log, sliding-window-counter"}, {"Token-Bucket:1/s", "there are token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-window-log, sliding-window-counter"},
		{" token-bucket:1/s", "there are token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-window-log, sliding-window-counter"}, {"magic:1/s", `no algorithm "magic"`},
		{"token-bucket:", "a rate like 200/s"}, {"token-bucket:100", "a rate like 200/s"}, {"token-bucket:1/x", "s, m, h, d"},
		{"token-bucket:0.5/s", "must be whole"}, {"token-bucket:1.0/s", "must be whole"},
		{"token-bucket:unlimited", "unlimited stands alone"},
		{"token-bucket:1/s,", "burst=<n>"}, {"token-bucket:1/s,5", "burst=<n>"}, {"token-bucket:1/s,burst=", "burst=<n>"},
		{"token-bucket:1/s,burst=-1", "burst=<n>"}, {"token-bucket:1/s,burst=+5", "burst=<n>"}, {"token-bucket:1/s,burst=1e3", "burst=<n>"},
		{"token-bucket:1/s,burst=1_000", "burst=<n>"}, {"token-bucket:1/s, burst=5", "burst=<n>"}, {"token-bucket:1/s,burst=5,burst=6", "burst=<n>"},
		{"token-bucket:1/s,burst=9223372036854775808", "burst=<n>"}, {"token-bucket:1/s,bust=5", "burst=<n>"},
		{"token-bucket:1/s,burst=0", "to refuse all, write token-bucket:0/s"}, {"gcra:1/s,burst=0", "write gcra:0/s"},
		{"fixed-window:10/s,burst=5", "burst is for token-bucket, gcra and leaky-bucket"}, {"sliding-window:10/s,", "has no options"},
		{"sliding-window-log:1000001/d", "take sliding-window"}, {"token-bucket:1/s;token-bucket:1/s", "twice"},
		{"gcra:1/s;gcra:2/s;gcra:3/s;gcra:4/s;gcra:5/s;gcra:6/s;gcra:7/s;gcra:8/s;gcra:9/s", "more than 8"},
	}
	for _, c := range cases {
		got, err := ParseRules(c.in)
		if err == nil {
			t.Errorf("%q was accepted as %s", c.in, got)
		} else if !strings.Contains(err.Error(), c.names) {
			t.Errorf("%q: the error does not say %q: %v", c.in, c.names, err)
		}
	}
}

func TestRulesAreReadAsWritten(t *testing.T) {
	rule := rapid.Custom(func(t *rapid.T) Rule {
		r := anyRule(rapid.SampledFrom(Names()).Draw(t, "algorithm")).Draw(t, "rule")
		if rapid.Bool().Draw(t, "whole seconds") {
			r.Rate.Per = max(time.Second, r.Rate.Per.Truncate(time.Second))
			r.Rate.N = min(r.Rate.N, 1_000_000)
		}
		if r.bucket() && (rapid.Bool().Draw(t, "default burst") || r.Burst == 0) {
			r.Burst = r.Rate.N
		}
		if r.Algorithm == SlidingWindowLog {
			r.Rate.N = min(r.Rate.N, maxLogged)
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		rules := Rules(rapid.SliceOfNDistinct(rule, 0, 3, rapid.ID).Draw(t, "rules"))
		back, err := ParseRules(rules.String())
		if err != nil || !slices.Equal(back, rules) {
			t.Fatalf("%+v is written %s and read as %+v, %v", []Rule(rules), rules, []Rule(back), err)
		}
	})
}

func FuzzParseRules(f *testing.F) {
	for _, s := range []string{
		"token-bucket:1000/s,burst=2000", "token-bucket:100/250ms;token-bucket:5/m", "unlimited", "token-bucket:0/s,burst=1",
		"gcra:7/7s", "leaky-bucket:1/2s,burst=4", "fixed-window:1/1.5s", "sliding-window:5/h", "sliding-window-log:5/h;sliding-window-counter:5/d", "token-bucket:1/8784h,burst=4611686018427387903", ";", "token-bucket:,",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rules, err := ParseRules(s)
		if err != nil {
			return
		}
		if _, err := NewKeyed(Policy{Default: rules}, 10); err != nil {
			t.Errorf("%q was accepted, but limits nothing: %v", s, err)
		}
		if back, err := ParseRules(rules.String()); err != nil || !slices.Equal(back, rules) {
			t.Errorf("%q is written %s and read as %+v, %v", s, rules, []Rule(back), err)
		}
	})
}
