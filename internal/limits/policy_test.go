package limits

import (
	"strings"
	"testing"
)

// An exact name comes before every glob, live before the environment; of globs the live
// ones come first, the more exact before the less.
func TestPrecedence(t *testing.T) {
	env := Config{
		Tenant: rules(t, "gcra:1/s"), User: rules(t, "gcra:9/s"), MaxKeys: 10,
		TenantOverrides: Overrides{{"env-*", rules(t, "gcra:2/s")}, {"acme", rules(t, "gcra:3/s")}, {"env-5*", rules(t, "gcra:4/s")}},
	}
	cases := []struct {
		name, live, key, want string
	}{
		{"the scope's own", "", "beta", "gcra:1/s"},
		{"an exact name", "", "acme", "gcra:3/s"},
		{"globs of the environment in their order", "", "env-55", "gcra:2/s"},
		{"live: every key", "tenant *=gcra:10/s", "beta", "gcra:10/s"},
		{"live for every key, but the environment names it", "tenant *=gcra:10/s", "acme", "gcra:3/s"},
		{"live for every key, but a glob of the environment matches", "tenant *=gcra:10/s", "env-1", "gcra:2/s"},
		{"live and exact before the environment's", "tenant acme=gcra:11/s", "acme", "gcra:11/s"},
		{"live and unlimited", "tenant acme=unlimited", "acme", "unlimited"},
		{"a live glob before the environment's", "tenant env-?=gcra:12/s", "env-1", "gcra:12/s"},
		{"the same glob live", "tenant env-*=gcra:12/s", "env-55", "gcra:12/s"},
		{"an exact name of the environment before a live glob", "tenant ac*=gcra:12/s", "acme", "gcra:3/s"},
		{"the more exact glob", "tenant b*=gcra:13/s|tenant be*=gcra:14/s", "beta", "gcra:14/s"},
		{"a class stands for one byte", "tenant [abcdefgh]*=gcra:13/s|tenant be*=gcra:14/s", "beta", "gcra:14/s"},
		{"equally exact: by their bytes", "tenant ?eta=gcra:13/s|tenant *eta=gcra:14/s", "beta", "gcra:14/s"},
		{"another scope's entry", "user beta=gcra:15/s", "beta", "gcra:1/s"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(env, func() int64 { return 0 })
			if err != nil {
				t.Fatal(err)
			}
			entries := live(t, c.live)
			for range 2 { // their order means nothing
				if err := s.Apply(0, entries); err != nil {
					t.Fatal(err)
				}
				if got := rulesOf(s, Tenant, c.key).String(); got != c.want {
					t.Errorf("%s is under %s, want %s", c.key, got, c.want)
				}
				for i, j := 0, len(entries)-1; i < j; i, j = i+1, j-1 {
					entries[i], entries[j] = entries[j], entries[i]
				}
			}
		})
	}
}

// live reads entries like "tenant acme=gcra:1/s|user *=unlimited".
func live(t testing.TB, s string) (entries []Entry) {
	t.Helper()
	for part := range strings.SplitSeq(s, "|") {
		if part == "" {
			continue
		}
		name, limit, _ := strings.Cut(part, "=")
		scope, key, _ := strings.Cut(name, " ")
		entries = append(entries, Entry{Scope: Scope(scope), Key: key, Rules: rules(t, limit)})
	}
	return entries
}

func TestLiterals(t *testing.T) {
	for pattern, want := range map[string]int{
		"": 0, "*": 0, "acme": 4, "a?me": 3, "free-*": 5, "[a-z]": 0, "[a-z]x": 1, "[^a]b[cd]": 1, `\*a`: 2, `[\]]a`: 1, `a\`: 2,
	} {
		if got := literals(pattern); got != want {
			t.Errorf("%s: %d bytes stand for themselves, want %d", pattern, got, want)
		}
	}
}

func TestPolicyHasAGlobOnce(t *testing.T) {
	c := Config{TenantOverrides: Overrides{{"a*", rules(t, "gcra:1/s")}, {"b*", rules(t, "gcra:2/s")}}}
	p := c.policy(Tenant, live(t, "tenant a*=gcra:3/s"))
	if len(p.Globs) != 2 || p.Globs[0].Rules.String() != "gcra:3/s" || p.Globs[1].Pattern != "b*" {
		t.Errorf("globs %v", p.Globs)
	}
}
