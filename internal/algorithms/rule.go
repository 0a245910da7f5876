package algorithms

import (
	"fmt"
	"strconv"
	"strings"
)

// TokenBucketName is the token bucket's name in a rule.
const TokenBucketName = "token-bucket"

// Rule is one limit: "<algorithm>:<n>/<period>[,burst=<n>]".
type Rule struct {
	Algorithm string
	Rate      Rate
	// Burst is how many tokens the bucket holds.
	Burst uint64
}

// String gives the rule in its shortest form; the burst only if it is not n.
func (r Rule) String() string {
	s := r.Algorithm + ":" + r.Rate.exact()
	if r.Burst != r.Rate.N {
		s += ",burst=" + strconv.FormatUint(r.Burst, 10)
	}
	return s
}

const ruleForm = TokenBucketName + ":<n>/<period>[,burst=<n>], several joined by ';', or unlimited"

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
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(s string) (Rule, error) {
	algorithm, rest, ok := strings.Cut(s, ":")
	if !ok {
		return Rule{}, fmt.Errorf("%q is not a limit; it accepts %s", s, ruleForm)
	}
	if algorithm != TokenBucketName {
		return Rule{}, fmt.Errorf("%q: no algorithm %q; there is %s", s, algorithm, TokenBucketName)
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
	r := Rule{Algorithm: algorithm, Rate: rate, Burst: rate.N}
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
