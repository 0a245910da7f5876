package ingress

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSubject(t *testing.T) {
	name64 := strings.Repeat("n", 64)
	long := func(n int) string { return "acme." + strings.Repeat("x", n-len("ingress.acme.")) }
	for _, c := range []struct {
		rest          string // after "ingress."
		tenant, topic string
		problem       string // a part of it; empty: none
	}{
		{"acme.orders", "acme", "orders", ""},
		{"acme.orders.new.eu", "acme", "orders.new.eu", ""},
		{"A-z_09.t", "A-z_09", "t", ""},
		{"_.t", "_", "t", ""},
		{"ACME.t", "ACME", "t", ""},
		{name64 + ".t", name64, "t", ""},
		{name64 + "n.t", "", "", "tenant name"},
		{"a", "a", "", "publish to ingress.a.<topic>"},
		{"", "", "", "tenant name"},
		{"a.", "a", "", "empty or a wildcard"},
		{".t", "", "", "tenant name"},
		{"a..t", "a", "", "empty or a wildcard"},
		{"a.t.", "a", "", "empty or a wildcard"},
		{"a.*", "a", "", "empty or a wildcard"},
		{"a.t.>", "a", "", "empty or a wildcard"},
		{"a.x*y.>z", "a", "x*y.>z", ""}, // no wildcards: not alone in their tokens
		{"*.t", "", "", "tenant name"},
		{">", "", "", "tenant name"},
		{"$.t", "", "", "tenant name"},
		{"$canary.t", "", "", "tenant name"},
		{"$JS.API", "", "", "tenant name"},
		{"é.t", "", "", "tenant name"},
		{"租户.t", "", "", "tenant name"},
		{"a\"b\n.t", "", "", "tenant name"},
		{"a b.t", "", "", "tenant name"},
		{"a/b.t", "", "", "tenant name"},
		{"\xff.t", "", "", "tenant name"},
		{"a\x00.t", "", "", "tenant name"},
		{"a.é.租户", "a", "é.租户", ""},
		{"a.\xff", "a", "", "UTF-8"},
		{"a.t\x00", "a", "", "NUL"},
		{"a.$JS.API", "a", "$JS.API", ""},
		{long(1024), "acme", strings.Repeat("x", 1024-len("ingress.acme.")), ""},
		{long(1025), "", "", "longer than 1024"},
		{long(4000), "", "", "longer than 1024"},
	} {
		tenant, topic, problem := splitSubject("ingress.", "ingress."+c.rest)
		if c.problem == "" && (tenant != c.tenant || topic != c.topic || problem != "") {
			t.Errorf("%.40q: tenant %q, topic %.20q, problem %q", c.rest, tenant, topic, problem)
		}
		if c.problem != "" && (!strings.Contains(problem, c.problem) || tenant != c.tenant || topic != "") {
			t.Errorf("%.40q: tenant %q, topic %.20q, problem %q; want one with %q of tenant %q", c.rest, tenant, topic, problem, c.problem, c.tenant)
		}
	}
	if _, _, problem := splitSubject("in.gress.", "in.acme.t"); !strings.Contains(problem, "not under in.gress") {
		t.Errorf("a subject of another space: %q", problem)
	}
}

// Whatever comes, a subject that passes is made of a good tenant and a good topic,
// together they are the subject, and it stays in its tenant's space.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"ingress.acme.orders.new", "ingress.a", "ingress.*.x", "ingress.$.x", "ingress.é.x", "ingress.a.\xff", "ingress.a.\x00", "ingress..", "ingress.a.>", "other.a.b"} {
		f.Add(s)
	}
	f.Add("ingress." + strings.Repeat("t", 65) + ".x")
	f.Add("ingress.a." + strings.Repeat("x", 1020))
	f.Fuzz(func(t *testing.T, subject string) {
		tenant, topic, problem := splitSubject("ingress.", subject)
		if problem != "" {
			if topic != "" || tenant != "" && !ValidTenant(tenant) {
				t.Errorf("refused (%s) with tenant %q and topic %q", problem, tenant, topic)
			}
			if !utf8.ValidString(problem) {
				t.Errorf("problem %q", problem)
			}
			return
		}
		if "ingress."+tenant+"."+topic != subject || len(subject) > 1024 {
			t.Errorf("%q was split into %q and %q", subject, tenant, topic)
		}
		if len(tenant) < 1 || len(tenant) > 64 || strings.Trim(tenant, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("tenant %q", tenant)
		}
		if !utf8.ValidString(topic) || strings.Contains(topic, "\x00") {
			t.Errorf("topic %q", topic)
		}
		for token := range strings.SplitSeq(topic, ".") {
			if token == "" || token == "*" || token == ">" {
				t.Errorf("topic %q has the token %q", topic, token)
			}
		}
	})
}
