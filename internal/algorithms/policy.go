package algorithms

import (
	"fmt"
	"path"
	"slices"
)

// Policy says which rules a key is under: those of its own name if it has an entry,
// else those of the first glob that matches it, else the default ones.
type Policy struct {
	Default Rules
	Exact   map[string]Rules
	Globs   []Glob
}

// Validate says what is wrong: a rule, a pattern, or that there are too many.
func (p Policy) Validate() error {
	_, err := newPolicy(p, nil)
	return err
}

// Glob is rules for the keys that match a pattern: path.Match's, but that a slash is a
// character like any other.
type Glob struct {
	Pattern string
	Rules   Rules
}

// policy is a Policy compiled; it does not change.
type policy struct {
	plans []*plan
	// The default is plan 0; exact and globs are numbers of plans.
	exact  map[string]int
	globs  []globPlan
	stride int // words of a slot: its head and the most state that a plan has
}

type globPlan struct {
	pattern string
	plan    int
}

// plan is the rules of some keys.
type plan struct {
	// origin is what makes it the same plan after a change: "=" and the exact key,
	// "~" and the pattern, or empty for the default.
	origin     string
	rules      Rules
	algorithms []algorithm
	words      int
	// exempt: the keys are named in the policy, so they are few, and none shares the
	// overflow bucket.
	exempt   bool
	overflow overflow
}

// maxPlans is how many a slot's head can number.
const maxPlans = 1 << planBits

// newPolicy compiles p. Rules that old had already are not compiled again, so that
// states mean the same under both.
func newPolicy(p Policy, old *policy) (*policy, error) {
	known := map[Rule]algorithm{}
	if old != nil {
		for _, plan := range old.plans {
			for i, r := range plan.rules {
				known[r] = plan.algorithms[i]
			}
		}
	}
	c := &policy{exact: make(map[string]int, len(p.Exact)), stride: 1}
	add := func(origin string, rules Rules) (int, error) {
		if len(c.plans) == maxPlans {
			return 0, fmt.Errorf("algorithms: more than %d entries", maxPlans)
		}
		if len(rules) > maxRules {
			return 0, fmt.Errorf("algorithms: %d limits for one key, at most %d", len(rules), maxRules)
		}
		pl := &plan{origin: origin, rules: rules, exempt: origin != "" && origin[0] == '='}
		for i, r := range rules {
			if slices.Contains(rules[:i], r) {
				return 0, fmt.Errorf("algorithms: limit %q is there twice", r)
			}
			a, ok := known[r]
			if !ok {
				var err error
				if a, err = compile(r); err != nil {
					return 0, err
				}
				known[r] = a
			}
			pl.algorithms = append(pl.algorithms, a)
			pl.words += a.words()
		}
		pl.overflow.state = make([]uint64, pl.words)
		c.stride = max(c.stride, 1+pl.words)
		c.plans = append(c.plans, pl)
		return len(c.plans) - 1, nil
	}
	if _, err := add("", p.Default); err != nil {
		return nil, err
	}
	for key, rules := range p.Exact {
		n, err := add("="+key, rules)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		c.exact[key] = n
	}
	for _, g := range p.Globs {
		if _, err := path.Match(g.Pattern, ""); err != nil {
			return nil, fmt.Errorf("algorithms: %q is not a glob: %w", g.Pattern, err)
		}
		n, err := add("~"+g.Pattern, g.Rules)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", g.Pattern, err)
		}
		c.globs = append(c.globs, globPlan{g.Pattern, n})
	}
	return c, nil
}

// of is the number of the plan of a key. It costs a map lookup, and a match for
// each glob; keys that are remembered do not pay it.
func (c *policy) of(key string) int {
	if n, ok := c.exact[key]; ok {
		return n
	}
	for _, g := range c.globs {
		if matchGlob(g.pattern, key) {
			return g.plan
		}
	}
	return 0
}

// decide judges n tokens by all rules over a key's state, and takes from all or from
// none. rule is the one with the longest wait if it refuses, else the one that has
// the fewest tokens left; -1 without rules.
func (p *plan) decide(s []uint64, now, n int64, take bool) (rule int, d Decision) {
	if len(p.algorithms) == 1 {
		return 0, p.algorithms[0].decide(s, now, n, take)
	}
	rule, d = -1, unlimited{}.decide(nil, 0, 0, false)
	at := 0
	for i, a := range p.algorithms {
		one := a.decide(s[at:], now, n, false)
		at += a.words()
		switch {
		case !one.Allowed && (d.Allowed || Longer(one.RetryAfter, d.RetryAfter)),
			one.Allowed && d.Allowed && (one.Remaining < d.Remaining || rule < 0):
			rule, d = i, one
		}
	}
	if take && d.Allowed {
		at = 0
		for _, a := range p.algorithms {
			a.decide(s[at:], now, n, true)
			at += a.words()
		}
	}
	return rule, d
}

// idle reports whether forgetting a key's state changes no answer.
func (p *plan) idle(s []uint64, now int64) bool {
	for _, a := range p.algorithms {
		if !a.idle(s, now) {
			return false
		}
		s = s[a.words():]
	}
	return true
}

func (p *plan) forget(s []uint64) {
	for _, a := range p.algorithms {
		a.forget(s)
		s = s[a.words():]
	}
}

// carry gives a key that was under old its state under p at the instant of the
// change: what was used stays used, up to the new capacity. A rule that both have
// goes on as it was; else it takes after one of the same algorithm, else after the
// one at its place.
func (p *plan) carry(s []uint64, old *plan, from []uint64, now int64) {
	at, goesOn := 0, 0
	for i, a := range p.algorithms {
		if j := old.ancestor(p.rules[i], i); j >= 0 {
			inherit(a, s[at:], old.algorithms[j], old.part(from, j), now)
			if a == old.algorithms[j] {
				goesOn |= 1 << j
			}
		}
		at += a.words()
	}
	for j, b := range old.algorithms {
		if goesOn&(1<<j) == 0 {
			b.forget(old.part(from, j))
		}
	}
}

// part is the state of the rule j.
func (p *plan) part(s []uint64, j int) []uint64 {
	for _, a := range p.algorithms[:j] {
		s = s[a.words():]
	}
	return s
}

// ancestor is the rule of p that a new one at the place i takes after; -1 if none.
func (p *plan) ancestor(r Rule, i int) int {
	best := -1
	for j, old := range p.rules {
		switch {
		case old == r:
			return j
		case old.Algorithm == r.Algorithm && best < 0:
			best = j
		}
	}
	if best < 0 && i < len(p.rules) {
		best = i
	}
	return best
}

// inherit makes the state of a from that of another algorithm.
func inherit(a algorithm, s []uint64, other algorithm, from []uint64, now int64) {
	if a == other {
		copy(s[:a.words()], from)
		return
	}
	switch a := a.(type) {
	case *fixedWindow:
		if o, ok := other.(*fixedWindow); ok && o.period == a.period {
			copy(s[:a.words()], from)
			return
		}
	case *slidingCounter:
		if o, ok := other.(*slidingCounter); ok && o.period == a.period {
			copy(s[:a.words()], from)
			return
		}
	case *slidingLog:
		if o, ok := other.(*slidingLog); ok {
			a.inherit(s, o, from, now)
			return
		}
	}
	if whole, part := other.used(from, now); whole > 0 || part > 0 {
		a.occupy(s, now, whole, part)
	}
}
