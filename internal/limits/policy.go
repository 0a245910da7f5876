package limits

import (
	"slices"
	"strings"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// policy joins the environment's limits of a scope with the live ones. An exact name
// comes before every glob; of two that say the same, the live one holds. Of live
// globs the more exact one comes first: the one with more bytes that stand for
// themselves; then those of the environment in their order.
func (c Config) policy(scope Scope, live []Entry) algorithms.Policy {
	p := algorithms.Policy{Default: c.Rules(scope), Exact: map[string]algorithms.Rules{}}
	if scope == Tenant {
		for _, o := range c.TenantOverrides {
			if isGlob(o.Key) {
				p.Globs = append(p.Globs, algorithms.Glob{Pattern: o.Key, Rules: o.Rules})
			} else {
				p.Exact[o.Key] = o.Rules
			}
		}
	}
	var globs []algorithms.Glob
	for _, e := range live {
		switch {
		case e.Scope != scope:
		case e.Key == AnyKey:
			p.Default = e.Rules
		case isGlob(e.Key):
			globs = append(globs, algorithms.Glob{Pattern: e.Key, Rules: e.Rules})
		default:
			p.Exact[e.Key] = e.Rules
		}
	}
	slices.SortFunc(globs, func(a, b algorithms.Glob) int {
		if n := literals(b.Pattern) - literals(a.Pattern); n != 0 {
			return n
		}
		return strings.Compare(a.Pattern, b.Pattern)
	})
	for _, g := range p.Globs {
		if !slices.ContainsFunc(globs, func(live algorithms.Glob) bool { return live.Pattern == g.Pattern }) {
			globs = append(globs, g)
		}
	}
	p.Globs = globs
	return p
}

// literals counts the bytes of a pattern that stand for themselves: neither wildcards
// nor in a class.
func literals(pattern string) (n int) {
	class := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '\\' {
			if i++; !class {
				n++
			}
			continue
		}
		switch {
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c != '*' && c != '?':
			n++
		}
	}
	return n
}

// limits reports whether a policy limits anything.
func limits(p algorithms.Policy) bool {
	if len(p.Default) > 0 {
		return true
	}
	for _, r := range p.Exact {
		if len(r) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(p.Globs, func(g algorithms.Glob) bool { return len(g.Rules) > 0 })
}
