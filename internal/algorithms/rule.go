package algorithms

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The algorithms as rules name them.
const (
	TokenBucket          = "token-bucket"
	GCRA                 = "gcra"
	LeakyBucket          = "leaky-bucket"
	FixedWindow          = "fixed-window"
	SlidingWindow        = "sliding-window"
	SlidingWindowLog     = "sliding-window-log"
	SlidingWindowCounter = "sliding-window-counter"
)

const algorithmNames = TokenBucket + ", " + GCRA + ", " + LeakyBucket + ", " + FixedWindow + ", " +
	SlidingWindow + ", " + SlidingWindowLog + ", " + SlidingWindowCounter

// Names lists the algorithms.
func Names() []string { return strings.Split(algorithmNames, ", ") }

// Rule is one limit: "<algorithm>:<n>/<period>[,burst=<n>]".
type Rule struct {
	Algorithm string
	// Rate is what fills a bucket, or the limit of a window and its length.
	Rate Rate
	// Burst is how many tokens a bucket holds; 0 for windows.
	Burst uint64
}

// Capacity is the most that passes at once.
func (r Rule) Capacity() uint64 {
	if r.bucket() {
		return r.Burst
	}
	return r.Rate.N
}

// Window is the time in which Capacity comes back: a window's length, or that in which
// a bucket fills, rounded up to a nanosecond; the largest duration if it is longer.
func (r Rule) Window() time.Duration {
	if !r.bucket() {
		return r.Rate.Per
	}
	if r.Rate.N == 0 || r.Rate.Per <= 0 {
		return math.MaxInt64
	}
	return saturating(0, mulDivCeil(r.Burst, uint64(r.Rate.Per), r.Rate.N))
}

// bucket reports whether the algorithm has a burst.
func (r Rule) bucket() bool {
	return r.Algorithm == TokenBucket || r.Algorithm == GCRA || r.Algorithm == LeakyBucket
}

// String gives the rule in its shortest form; the burst only if it is not n.
func (r Rule) String() string {
	s := r.Algorithm + ":" + r.Rate.exact()
	if r.bucket() && r.Burst != r.Rate.N {
		s += ",burst=" + strconv.FormatUint(r.Burst, 10)
	}
	return s
}

const ruleForm = "<algorithm>:<n>/<period>[,burst=<n>], several joined by ';', or unlimited"

// The bounds of a rule: numbers that arithmetic of 128 bits holds at every rate.
const (
	maxCount = 1 << 60
	maxBurst = 1<<62 - 1
)

// ParseRules reads the limits of one scope; none for "unlimited".
func ParseRules(s string) (Rules, error) {
	if s == "unlimited" {
		return nil, nil
	}
	var rules Rules
	for part := range strings.SplitSeq(s, ";") {
		r, err := parseRule(part)
		if err != nil {
			return nil, err
		}
		if slices.Contains(rules, r) {
			return nil, fmt.Errorf("%q: the limit %s is there twice", s, r)
		}
		if len(rules) == maxRules {
			return nil, fmt.Errorf("%q: more than %d limits joined", s, maxRules)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// maxRules is how many limits a key may be under in one scope.
const maxRules = 8

func parseRule(s string) (Rule, error) {
	algorithm, rest, ok := strings.Cut(s, ":")
	if !ok {
		return Rule{}, fmt.Errorf("%q is not a limit; it accepts %s", s, ruleForm)
	}
	if !known(algorithm) {
		return Rule{}, fmt.Errorf("%q: no algorithm %q; there are %s", s, algorithm, algorithmNames)
	}
	pace, options, hasOptions := strings.Cut(rest, ",")
	if number, _, _ := strings.Cut(pace, "/"); strings.Contains(number, ".") {
		return Rule{}, fmt.Errorf("%q: a limit's number must be whole", s)
	}
	rate, err := ParseRate(pace)
	if err != nil {
		return Rule{}, fmt.Errorf("%q: %w", s, err)
	}
	if rate.IsUnlimited() {
		return Rule{}, fmt.Errorf("%q: unlimited stands alone, without an algorithm", s)
	}
	r := Rule{Algorithm: algorithm, Rate: rate}
	if algorithm == SlidingWindowLog && rate.N > maxLogged {
		return Rule{}, fmt.Errorf("%q: a log remembers every request, at most %d; take %s", s, maxLogged, SlidingWindow)
	}
	if !r.bucket() {
		if hasOptions {
			return Rule{}, fmt.Errorf("%q: %s has no options; burst is for %s, %s and %s", s, algorithm, TokenBucket, GCRA, LeakyBucket)
		}
		return r, nil
	}
	r.Burst = rate.N
	if !hasOptions {
		return r, nil
	}
	value, ok := strings.CutPrefix(options, "burst=")
	burst, err := strconv.ParseUint(value, 10, 62)
	if !ok || err != nil || strings.HasPrefix(value, "+") {
		return Rule{}, fmt.Errorf("%q: %q is not burst=<n>", s, options)
	}
	if burst == 0 && rate.N > 0 {
		return Rule{}, fmt.Errorf("%q: a burst of 0 admits nothing; to refuse all, write %s:0/s", s, algorithm)
	}
	r.Burst = burst
	return r, nil
}

func known(algorithm string) bool {
	for name := range strings.SplitSeq(algorithmNames, ", ") {
		if name == algorithm {
			return true
		}
	}
	return false
}

// Rules are limits that must all admit.
type Rules []Rule

// String joins the rules; "unlimited" without any.
func (r Rules) String() string {
	if len(r) == 0 {
		return "unlimited"
	}
	parts := make([]string, len(r))
	for i := range r {
		parts[i] = r[i].String()
	}
	return strings.Join(parts, ";")
}

// MarshalText implements encoding.TextMarshaler.
func (r Rules) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseRules.
func (r *Rules) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRules(string(text))
	return err
}
