package units

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseShare(t *testing.T) {
	cases := []struct {
		in        string
		of, share uint64
		out       string
	}{
		{"80%", 10_000, 8000, "80%"}, {"200%", 10_000, 20_000, "200%"}, {"0%", 10_000, 0, "0%"}, {"100%", math.MaxUint64, math.MaxUint64, "100%"},
		{"80%", 1, 0, "80%"}, {"33%", 10, 3, "33%"}, {"99%", 10, 9, "99%"}, // rounded down
		{"100000%", 7, 7000, "100000%"}, {"200%", math.MaxUint64, math.MaxUint64, "200%"}, {"100000%", math.MaxUint64, math.MaxUint64, "100000%"},
		{"8000", 10_000, 8000, "8000"}, {"8000", 5, 8000, "8000"}, {"0", 5, 0, "0"}, {"007%", 100, 7, "7%"},
		{"18446744073709551615", 5, math.MaxUint64, "18446744073709551615"},
	}
	for _, c := range cases {
		s, err := ParseShare(c.in)
		if err != nil || s.Of(c.of) != c.share || s.String() != c.out {
			t.Errorf("%s of %d: %d, written %s, %v; want %d, written %s", c.in, c.of, s.Of(c.of), s, err, c.share, c.out)
		}
	}
	if Percent(80).Of(50) != 40 || Absolute(80).Of(50) != 80 || (Share{}).Of(50) != 0 {
		t.Error("the constructors and the parser differ")
	}
}

func TestParseShareRefuses(t *testing.T) {
	for _, in := range []string{
		"", "%", "80 %", " 80%", "80% ", "80%%", "0.8", "80.5%", "-1", "-80%", "+5", "+5%", "1_000", "1e3", "1e400", "NaN", "Inf", "0x10",
		"6O%", "10s", "64MiB", "100001%", "18446744073709551616", "18446744073709551616%", "high",
	} {
		if s, err := ParseShare(in); err == nil {
			t.Errorf("%q was accepted as %s", in, s)
		} else if !strings.Contains(err.Error(), "a percentage like 80% or a whole number like 8000") || !strings.Contains(err.Error(), in) {
			t.Errorf("%q: the error does not say so, or not what is accepted: %v", in, err)
		}
	}
}

func TestShareIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent := rapid.Uint64Range(0, maxPercent).Draw(t, "percent")
		total := rapid.Uint64().Draw(t, "total")
		want := new(big.Int).Mul(new(big.Int).SetUint64(percent), new(big.Int).SetUint64(total))
		want.Div(want, big.NewInt(100))
		if most := new(big.Int).SetUint64(math.MaxUint64); want.Cmp(most) > 0 {
			want = most
		}
		if got := Percent(percent).Of(total); got != want.Uint64() {
			t.Fatalf("%d%% of %d is %d, want %s", percent, total, got, want)
		}
	})
}

func TestShareIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Absolute(rapid.Uint64().Draw(t, "n"))
		if rapid.Bool().Draw(t, "percent") {
			s = Percent(rapid.Uint64Range(0, maxPercent).Draw(t, "n"))
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Share
		if err := json.Unmarshal(text, &back); err != nil || back != s {
			t.Fatalf("%s is written %s and read as %s, %v", s, text, back, err)
		}
	})
}

func FuzzParseShare(f *testing.F) {
	for _, s := range []string{"80%", "8000", "0", "100000%", "100001%", "18446744073709551615", "%", "-1", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		share, err := ParseShare(s)
		if err != nil {
			if share != (Share{}) {
				t.Errorf("%q: %s beside the error %v", s, share, err)
			}
			return
		}
		if back, err := ParseShare(share.String()); err != nil || back != share {
			t.Errorf("%q is written %s and read as %s, %v", s, share, back, err)
		}
	})
}
