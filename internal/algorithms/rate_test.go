package algorithms

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	cases := []struct {
		in   string
		want Rate
		out  string // String of it
	}{
		{"200/s", Rate{200, time.Second}, "200/s"},
		{"12/m", Rate{12, time.Minute}, "12/m"},
		{"5/h", Rate{5, time.Hour}, "5/h"},
		{"1/d", Rate{1, 24 * time.Hour}, "1/d"},
		{"1/24h", Rate{1, 24 * time.Hour}, "1/d"},
		{"1/8784h", Rate{1, 366 * 24 * time.Hour}, "1/8784h0m0s"},
		{"100/250ms", Rate{100, 250 * time.Millisecond}, "100/250ms"},
		{"1/1h30m", Rate{1, 90 * time.Minute}, "1/1h30m0s"},
		{"3/1.5s", Rate{3, 1500 * time.Millisecond}, "3/1.5s"},
		{"0.5/s", Rate{1, 2 * time.Second}, "0.5/s"},
		{"2.50/s", Rate{5, 2 * time.Second}, "2.5/s"},
		{"0.1/s", Rate{1, 10 * time.Second}, "0.1/s"},
		{"1.000000001/s", Rate{1_000_000_001, 1_000_000_000 * time.Second}, ""},
		{"100.0/s", Rate{100, time.Second}, "100/s"},
		{"0.5/m", Rate{1, 2 * time.Minute}, ""},
		{"1/7s", Rate{1, 7 * time.Second}, "1/7s"},
		{"0/s", Rate{0, time.Second}, "0/s"},
		{"0.0/s", Rate{0, time.Second}, "0/s"},
		{"007/s", Rate{7, time.Second}, "7/s"},
		{"1000000000/s", Rate{1_000_000_000, time.Second}, "1000000000/s"},
		{"1/1ns", Rate{1, 1}, "1/1ns"},
		{"33/33ns", Rate{33, 33}, "33/33ns"}, // 10⁹ a second, exactly
		{"unlimited", UnlimitedRate(), "unlimited"},
	}
	for _, c := range cases {
		got, err := ParseRate(c.in)
		if c.in == "1.000000001/s" { // 10⁹ s are more than 366 days
			if err == nil {
				t.Errorf("%s: %+v, want an error", c.in, got)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.in, got, err, c.want)
		}
		if c.out != "" && got.String() != c.out {
			t.Errorf("%s: written %s, want %s", c.in, got, c.out)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	const forms, period = "it accepts a rate like 200/s", "s, m, h, d or a duration like 250ms"
	cases := []struct{ in, names string }{
		{"", "a rate like 200/s"}, {"200", "a rate like 200/s"}, {"fast", "a rate like 200/s"}, {"10s", "a rate like 200/s"},
		{"Unlimited", "a rate like 200/s"}, {"80%", "a rate like 200/s"},
		{"/s", forms}, {"a/s", forms}, {" 10/s", forms}, {"10 /s", forms}, {"1_000/s", forms}, {"1e3/s", forms}, {"1e400/s", forms},
		{"NaN/s", forms}, {"Inf/s", forms}, {"-1/s", forms}, {"+5/s", forms}, {"0x10/s", forms}, {"6O/s", forms}, {".5/s", forms},
		{"5./s", forms}, {"1.2.3/s", forms}, {"0.1234567890/s", forms}, {"9223372036854775808/s", forms}, {"99999999999999999999/s", forms},
		{"200/", period}, {"200/x", period}, {"200/S", period}, {"200/s ", period}, {"200/10", period}, {"200/0s", period},
		{"200/-1s", period}, {"200/+1s", period}, {"200/.5s", period}, {"200/s/s", period}, {"1/8785h", "up to 366 days"}, {"1/366d", period},
		{"1000000001/s", "the most is 1000000000/s"}, {"2/1ns", "the most is 1000000000/s"},
		{"0.000000001/s", "the least is 1 in 366 days"}, {"0.1/8784h", "the least is 1 in 366 days"},
	}
	for _, c := range cases {
		got, err := ParseRate(c.in)
		if err == nil {
			t.Errorf("%q was accepted as %s", c.in, got)
		} else if !strings.Contains(err.Error(), c.names) {
			t.Errorf("%q: the error does not say %q: %v", c.in, c.names, err)
		}
	}
}

func samePace(a, b Rate) bool {
	if a.IsUnlimited() || b.IsUnlimited() {
		return a == b
	}
	cross := func(n uint64, per time.Duration) *big.Int {
		return new(big.Int).Mul(new(big.Int).SetUint64(n), big.NewInt(int64(per)))
	}
	return cross(a.N, b.Per).Cmp(cross(b.N, a.Per)) == 0
}

func TestRateIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRate.Draw(t, "rate")
		if rapid.Bool().Draw(t, "whole seconds") {
			r.Per = max(time.Second, r.Per.Truncate(time.Second))
			r.N = min(r.N, 1_000_000)
		}
		back, err := ParseRate(r.String())
		if err != nil || !samePace(back, r) {
			t.Fatalf("%d in %d ns is written %s and read as %+v, %v", r.N, r.Per, r, back, err)
		}
	})
}

func TestRateInJSON(t *testing.T) {
	type config struct{ Rate Rate }
	var c config
	if err := json.Unmarshal([]byte(`{"Rate":"0.5/s"}`), &c); err != nil || c.Rate != (Rate{1, 2 * time.Second}) {
		t.Errorf("%+v, %v", c, err)
	}
	if text, err := json.Marshal(c); err != nil || string(text) != `{"Rate":"0.5/s"}` {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"Rate":"fast"}`), &c); err == nil {
		t.Error("fast was accepted")
	}
}

func TestRatePerSecond(t *testing.T) {
	for in, want := range map[string]float64{"200/s": 200, "12/m": 0.2, "100/250ms": 400, "0/s": 0, "unlimited": math.Inf(1)} {
		r, err := ParseRate(in)
		if err != nil || r.PerSecond() != want {
			t.Errorf("%s is %g a second, want %g (%v)", in, r.PerSecond(), want, err)
		}
	}
	if got := (Rate{}).PerSecond(); got != 0 {
		t.Errorf("the zero rate is %g a second", got)
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"200/s", "12/m", "0.5/s", "100/250ms", "unlimited", "1/8784h", "0.000001/1h", "7/7s", "0/d", "1/", "999999.999999999/s", "3/1.5s", "1/1µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			if r != (Rate{}) {
				t.Errorf("%q: %+v beside the error %v", s, r, err)
			}
			return
		}
		if !r.IsUnlimited() && (r.Per <= 0 || r.Per > maxPeriod || r.N > uint64(r.Per)) {
			t.Errorf("%q: %+v is out of bounds", s, r)
		}
		if _, err := NewDepartureClock(r, 0); err != nil {
			t.Errorf("%q was accepted, but paces nothing: %v", s, err)
		}
		if back, err := ParseRate(r.String()); err != nil || !samePace(back, r) {
			t.Errorf("%q is written %s and read as %+v, %v", s, r, back, err)
		}
	})
}
