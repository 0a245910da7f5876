package algorithms

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is N events in each Per. The zero Rate lets nothing happen.
type Rate struct {
	N   uint64
	Per time.Duration
}

// UnlimitedRate is the rate without a bound.
func UnlimitedRate() Rate { return Rate{N: math.MaxUint64} }

// IsUnlimited reports whether r has no bound.
func (r Rate) IsUnlimited() bool { return r.N == math.MaxUint64 && r.Per == 0 }

// PerSecond is the rate in events a second; +Inf if it is unlimited.
func (r Rate) PerSecond() float64 {
	switch {
	case r.IsUnlimited():
		return math.Inf(1)
	case r.N == 0 || r.Per <= 0:
		return 0
	}
	return float64(r.N) / r.Per.Seconds()
}

// The bounds of a rate.
const (
	maxPerSecond = 1_000_000_000
	maxPeriod    = 366 * 24 * time.Hour
	maxDecimals  = 9
)

const rateForms = "a rate like 200/s, 12/m, 0.5/s, 100/250ms, or unlimited"

var periods = []struct {
	unit string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate reads a rate: "<n>/<period>" or "unlimited". n is a decimal number,
// taken exactly; the period is s, m, h, d or a Go duration, up to 366 days. At
// most 10⁹ a second.
func ParseRate(s string) (Rate, error) {
	if s == "unlimited" {
		return UnlimitedRate(), nil
	}
	number, period, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, fmt.Errorf("%q is not %s", s, rateForms)
	}
	per, err := parsePeriod(period)
	if err != nil {
		return Rate{}, fmt.Errorf("%q: %w", s, err)
	}
	n, scale, err := parseDecimal(number)
	if err != nil {
		return Rate{}, fmt.Errorf("%q: %w; it accepts %s", s, err, rateForms)
	}
	if scale > 1 {
		// n/scale in per = n in per×scale.
		if shared := gcd(n, scale); shared > 1 {
			n, scale = n/shared, scale/shared
		}
		if scale > uint64(maxPeriod/per) {
			return Rate{}, fmt.Errorf("%q: too slow, the least is 1 in 366 days", s)
		}
		per *= time.Duration(scale)
	}
	r := Rate{N: n, Per: per}
	if r.tooFast() {
		return Rate{}, fmt.Errorf("%q: too fast, the most is %d/s", s, maxPerSecond)
	}
	return r, nil
}

func parsePeriod(s string) (time.Duration, error) {
	for _, p := range periods {
		if s == p.unit {
			return p.per, nil
		}
	}
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("%q is not a period: s, m, h, d or a duration like 250ms", s)
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxPeriod {
		return 0, fmt.Errorf("%q is not a period: s, m, h, d or a duration like 250ms, up to 366 days", s)
	}
	return d, nil
}

// parseDecimal reads a plain decimal as n/scale.
func parseDecimal(s string) (n, scale uint64, err error) {
	whole, fraction, point := strings.Cut(s, ".")
	digits := whole + fraction
	if whole == "" || point && fraction == "" || len(fraction) > maxDecimals || strings.Trim(digits, "0123456789") != "" {
		return 0, 0, fmt.Errorf("%q is not a plain number with at most %d decimals", s, maxDecimals)
	}
	n, err = strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, 0, fmt.Errorf("%q is too large", s)
	}
	scale = 1
	for range fraction {
		scale *= 10
	}
	return n, scale, nil
}

// String gives the rate in a form that ParseRate accepts.
func (r Rate) String() string {
	if r.IsUnlimited() {
		return "unlimited"
	}
	// 1 in 2s reads better as 0.5/s, if it has few decimals.
	seconds := uint64(r.Per / time.Second)
	if _, named := unitOf(r.Per); !named && r.Per%time.Second == 0 && seconds > 0 && r.N < 1_000_000 && r.N*1_000_000%seconds == 0 {
		return strconv.FormatFloat(float64(r.N)/float64(seconds), 'f', -1, 64) + "/s"
	}
	return r.exact()
}

// exact gives the rate with N as it is, where N means more than the pace.
func (r Rate) exact() string {
	period, named := unitOf(r.Per)
	if !named {
		period = r.Per.String()
	}
	return strconv.FormatUint(r.N, 10) + "/" + period
}

func unitOf(per time.Duration) (unit string, ok bool) {
	for _, p := range periods {
		if per == p.per {
			return p.unit, true
		}
	}
	return "", false
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseRate.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// tooFast reports whether r is over maxPerSecond, which is one a nanosecond.
func (r Rate) tooFast() bool { return r.N > uint64(r.Per) }

// valid reports whether r can pace anything.
func (r Rate) valid() error {
	if r.IsUnlimited() || r.Per > 0 && !r.tooFast() {
		return nil
	}
	return errors.New("a rate needs a period above 0 and at most 10⁹ events a second")
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
