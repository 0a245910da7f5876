package units

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Share is a percentage of another value, or an absolute number. The zero Share
// is 0.
type Share struct {
	n       uint64
	percent bool
}

// Percent is a share of n in a hundred.
func Percent(n uint64) Share { return Share{n, true} }

// Absolute is a share that is always n.
func Absolute(n uint64) Share { return Share{n, false} }

const maxPercent = 100_000

// ParseShare reads "80%" or "8000"; whole numbers, at most 100000%.
func ParseShare(s string) (Share, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, ok := plain(digits)
	if !ok || percent && n > maxPercent {
		return Share{}, fmt.Errorf("%q is not a share: a percentage like 80%% or a whole number like 8000", s)
	}
	return Share{n, percent}, nil
}

// Of is the share of total, rounded down; the largest number if it is beyond it.
func (s Share) Of(total uint64) uint64 {
	if !s.percent {
		return s.n
	}
	hi, lo := bits.Mul64(total, s.n)
	if hi >= 100 {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, 100)
	return q
}

// String gives the form that ParseShare reads.
func (s Share) String() string {
	if s.percent {
		return strconv.FormatUint(s.n, 10) + "%"
	}
	return strconv.FormatUint(s.n, 10)
}

// MarshalText implements encoding.TextMarshaler.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseShare.
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = ParseShare(string(text))
	return err
}
