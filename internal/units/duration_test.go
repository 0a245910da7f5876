package units

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	cases := []struct {
		in   string
		want time.Duration
		out  string
	}{
		{"250ms", 250 * time.Millisecond, "250ms"}, {"10s", 10 * time.Second, "10s"}, {"2m", 2 * time.Minute, "2m"}, {"1h30m", 90 * time.Minute, "1h30m"},
		{"0", 0, "0s"}, {"0s", 0, "0s"}, {"1h", time.Hour, "1h"}, {"24h", 24 * time.Hour, "24h"}, {"1h0m5s", time.Hour + 5*time.Second, "1h0m5s"},
		{"90s", 90 * time.Second, "1m30s"}, {"600s", 10 * time.Minute, "10m"}, {"1h20m", 80 * time.Minute, "1h20m"}, {"10h", 10 * time.Hour, "10h"},
		{"1.5s", 1500 * time.Millisecond, "1.5s"}, {"100us", 100 * time.Microsecond, "100µs"}, {"1ns", 1, "1ns"},
		{"9223372036854775807ns", math.MaxInt64, "2562047h47m16.854775807s"},
	}
	for _, c := range cases {
		got, err := ParseDuration(c.in)
		if err != nil || got != c.want || FormatDuration(got) != c.out {
			t.Errorf("%s: %d, written %s, %v; want %d, written %s", c.in, got, FormatDuration(got), err, c.want, c.out)
		}
	}
}

func TestParseDurationRefuses(t *testing.T) {
	for _, in := range []string{
		"", "10", "1.5", "00", ".", "s", "10 s", " 10s ", "10S", "10sec", "1d", "-1s", "+5s", "-0", "+0", "1h-5m", "1_000s", "1e3s", "NaN", "Inf",
		"0x10s", "6Os", "80%", "64MiB", "-9223372036854775808ns", "9e9h", "99999999h 1s",
	} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q was accepted as %s", in, got)
		} else if !strings.Contains(err.Error(), "a number with a unit, like 250ms, 10s, 2m or 1h30m") || !strings.Contains(err.Error(), in) {
			t.Errorf("%q: the error does not say so, or not what is accepted: %v", in, err)
		}
	}
}

func TestParseDurationRefusesWhatIsTooLong(t *testing.T) {
	for _, in := range []string{"9223372036854775808ns", "2562048h", "99999999h", "2562047h1h", "99999999999999999999.5h"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q was accepted as %s", in, got)
		} else if !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), in) {
			t.Errorf("%q: the error does not say so: %v", in, err)
		}
	}
}

func TestDurationIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(0, math.MaxInt64/int64(unit)).Draw(t, "n"))
		s := FormatDuration(d)
		back, err := ParseDuration(s)
		if err != nil || back != d {
			t.Fatalf("%d is written %s and read as %d, %v", d, s, back, err)
		}
		if strings.HasSuffix(s, "m0s") || strings.HasSuffix(s, "h0m") {
			t.Fatalf("%d is written %s", d, s)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"250ms", "1h30m", "0", "10", "-1s", "1h-5m", ".5s", "1.s", "2562048h", "1µs", "0.9223372036854775808h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		if d < 0 {
			t.Errorf("%q is %s", s, d)
		}
		if s != "0" && strings.Trim(s, "0123456789.") == "" {
			t.Errorf("%q has no unit and is %s", s, d)
		}
		if back, err := ParseDuration(FormatDuration(d)); err != nil || back != d {
			t.Errorf("%q is written %s and read as %s, %v", s, FormatDuration(d), back, err)
		}
	})
}
