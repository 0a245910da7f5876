package limits

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// model is what a Set should be at an instant at which nothing comes back: for each
// tenant a rule, found by reading all entries, and what it has used.
type model struct {
	any       string
	overrides Overrides
	live      map[string]string
	used      map[string]uint64
}

// rule is the one that a tenant is under: exact names first, the live one before the
// environment's; then live globs, of which no two here match the same name; then the
// environment's in their order, each replaced by the live one of the same pattern.
func (m *model) rule(tenant string) string {
	if r, ok := m.live[tenant]; ok {
		return r
	}
	for _, o := range m.overrides {
		if o.Key == tenant {
			return o.Rules.String()
		}
	}
	for pattern, r := range m.live {
		if ok, _ := path.Match(pattern, tenant); ok && pattern != AnyKey {
			return r
		}
	}
	for _, o := range m.overrides {
		if ok, _ := path.Match(o.Key, tenant); ok {
			return o.Rules.String()
		}
	}
	if r, ok := m.live[AnyKey]; ok {
		return r
	}
	return m.any
}

// goesOn reports whether a window stays as it was under another rule; of logs every one
// takes over what another has.
func goesOn(was, is algorithms.Rule) bool {
	log := func(r algorithms.Rule) bool {
		return r.Algorithm == algorithms.SlidingWindow || r.Algorithm == algorithms.SlidingWindowLog
	}
	counts := was.Algorithm == algorithms.FixedWindow || was.Algorithm == algorithms.SlidingWindowCounter
	return log(was) && log(is) || counts && was.Algorithm == is.Algorithm && was.Rate.Per == is.Rate.Per
}

// Whatever changes in whatever order, at one instant: the rule of each tenant is the one
// that the entries say, and what it has used stays used, up to each capacity that it was
// under since.
func TestASetIsItsModel(t *testing.T) {
	tenants := []string{"acme", "free-1", "free-2", "paid-1", "beta"}
	keys := append([]string{AnyKey, "free-*", "paid-?"}, tenants...)
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) string {
			n := rapid.IntRange(0, 12).Draw(t, "n")
			name := rapid.SampledFrom(append(algorithms.Names(), "unlimited")).Draw(t, "algorithm")
			switch {
			case name == "unlimited":
				return name
			case n > 0 && n%2 == 0 && (name == "token-bucket" || name == "gcra" || name == "leaky-bucket"):
				return fmt.Sprintf("%s:1/d,burst=%d", name, n)
			}
			return fmt.Sprintf("%s:%d/%dh", name, n, rapid.IntRange(1, 3).Draw(t, "hours"))
		})
		parse := func(s string) algorithms.Rules {
			r, err := algorithms.ParseRules(s)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		m := model{any: rule.Draw(t, "any"), live: map[string]string{}, used: map[string]uint64{}}
		for _, key := range []string{"free-*", "acme", "*-1"} {
			if rapid.Bool().Draw(t, "override") {
				m.overrides = append(m.overrides, Override{key, parse(rule.Draw(t, key))})
			}
		}
		const now = int64(1e18)
		s, err := New(Config{Tenant: parse(m.any), TenantOverrides: m.overrides, MaxKeys: 100}, func() int64 { return now })
		if err != nil {
			t.Fatal(err)
		}
		under := map[string]algorithms.Rules{}
		settle := func() { // what was used is at most the capacity of now, but for a window that goes on
			for _, tenant := range tenants {
				was, is := under[tenant], parse(m.rule(tenant))
				switch under[tenant] = is; {
				case len(is) == 0:
					m.used[tenant] = 0
				case len(was) == 0 || !goesOn(was[0], is[0]):
					m.used[tenant] = min(m.used[tenant], is[0].Capacity())
				}
			}
		}
		settle()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
					delete(m.live, key)
				} else {
					m.live[key] = rule.Draw(t, "rule")
				}
				var entries []Entry
				for key, r := range m.live {
					entries = append(entries, Entry{Scope: Tenant, Key: key, Rules: parse(r)})
				}
				if err := s.Apply(now, sorted(entries)); err != nil {
					t.Fatal(err)
				}
				settle()
				continue
			}
			tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
			cost := rapid.Int64Range(1, 5).Draw(t, "cost")
			limit := parse(m.rule(tenant)).String()
			if got := rulesOf(s, Tenant, tenant).String(); got != limit {
				t.Fatalf("%s is under %s, want %s", tenant, got, limit)
			}
			want := true
			if r := parse(limit); len(r) > 0 {
				if want = m.used[tenant]+uint64(cost) <= r[0].Capacity(); want {
					m.used[tenant] += uint64(cost)
				}
			}
			if e, within := admit(s, now, Identity{Tenant: tenant}, cost); within != want {
				t.Fatalf("%d of %s under %s, of which %d are used: %t, want %t; %+v", cost, tenant, limit, m.used[tenant], within, want, e)
			} else if !within && !strings.HasPrefix(limit, e.Rule.Algorithm+":") {
				t.Fatalf("refused by %s, want %s", e.Rule, limit)
			}
		}
	})
}
