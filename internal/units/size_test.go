package units

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	cases := []struct {
		in   string
		want Size
		out  string
	}{
		{"64MiB", 64 * MiB, "64MiB"}, {"1GiB", GiB, "1GiB"}, {"512KiB", 512 * KiB, "512KiB"}, {"2TiB", 2 * TiB, "2TiB"},
		{"10MB", 10_000_000, "10000000B"}, {"1KB", 1000, "1000B"}, {"1GB", 1_000_000_000, "1000000000B"}, {"1TB", 1_000_000_000_000, "976562500KiB"},
		{"1000B", 1000, "1000B"}, {"0B", 0, "0B"}, {"0MiB", 0, "0B"}, {"007B", 7, "7B"},
		{"1024B", KiB, "1KiB"}, {"1536KiB", 1536 * KiB, "1536KiB"}, {"1024MiB", GiB, "1GiB"},
		{"9223372036854775807B", math.MaxInt64, "9223372036854775807B"}, {"8388607TiB", 8388607 * TiB, "8388607TiB"},
	}
	for _, c := range cases {
		got, err := ParseSize(c.in)
		if err != nil || got != c.want || got.String() != c.out {
			t.Errorf("%s: %d, written %s, %v; want %d, written %s", c.in, got, got, err, c.want, c.out)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for _, in := range []string{
		"", "64", "MiB", "B", "64 MiB", " 64MiB", "64MiB ", "64mib", "64Mib", "64M", "64k", "64kB", "1.5GiB", "1_000B", "1e3B", "0x10B",
		"-1MiB", "+1MiB", "NaNB", "InfMiB", "6OMiB", "80%", "10s", "1MiB1KiB", "64MiBB", "1EiB", "\u0661MiB",
		"9223372036854775808B", "8388608TiB", "99999999999999999999B",
	} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q was accepted as %s", in, got)
		} else if !strings.Contains(err.Error(), "a whole number with a unit like 64MiB") || !strings.Contains(err.Error(), in) {
			t.Errorf("%q: the error does not say so, or not what is accepted: %v", in, err)
		}
	}
}

func TestSizeIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]Size{1, 1000, KiB, MiB, GiB, TiB}).Draw(t, "unit")
		s := Size(rapid.Int64Range(0, math.MaxInt64/int64(unit)).Draw(t, "n")) * unit
		back, err := ParseSize(s.String())
		if err != nil || back != s {
			t.Fatalf("%d is written %s and read as %d, %v", int64(s), s, int64(back), err)
		}
	})
}

func TestSizeInJSON(t *testing.T) {
	var c struct{ Size Size }
	if err := json.Unmarshal([]byte(`{"Size":"64MiB"}`), &c); err != nil || c.Size != 64*MiB {
		t.Errorf("%+v, %v", c, err)
	}
	if text, err := json.Marshal(c); err != nil || string(text) != `{"Size":"64MiB"}` {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"Size":"64"}`), &c); err == nil {
		t.Error("a size without a unit was accepted")
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"64MiB", "1KB", "0B", "8388607TiB", "9223372036854775807B", "18446744073709551616B", "MiB", "-1B", "1.5GiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		size, err := ParseSize(s)
		if err != nil {
			if size != 0 {
				t.Errorf("%q: %d beside the error %v", s, size, err)
			}
			return
		}
		if back, err := ParseSize(size.String()); size < 0 || err != nil || back != size {
			t.Errorf("%q is %d, written %s and read as %d, %v", s, size, size, back, err)
		}
	})
}
