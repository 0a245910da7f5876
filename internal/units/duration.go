package units

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// wholeDuration is what looks like a duration of any length.
var wholeDuration = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)

// ParseDuration reads a duration of 0 or more with its units, like 250ms, 2m or
// 1h30m; 0 stands alone too. Bare numbers and signs are refused: a number without
// a unit has been seconds, milliseconds and nanoseconds in one configuration or
// another.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil && wholeDuration.MatchString(s) {
		return 0, fmt.Errorf("%q is too long: durations end at 2562047h, which is 292 years", s)
	}
	if err != nil || d < 0 || strings.ContainsAny(s, "+-") || s == "." {
		return 0, fmt.Errorf("%q is not a duration: a number with a unit, like 250ms, 10s, 2m or 1h30m", s)
	}
	return d, nil
}

// FormatDuration gives a duration in the form a person would write: 2m, not
// 2m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
