package limits

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowgate/flowgate/internal/algorithms"
)

func rules(t testing.TB, s string) algorithms.Rules {
	t.Helper()
	r, err := algorithms.ParseRules(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOverridesAreReadAsWritten(t *testing.T) {
	cases := []struct {
		in   string
		keys []string
		out  string // if not the same
	}{
		{"acme=token-bucket:1000/s,burst=2000|free-*=fixed-window:10/m", []string{"acme", "free-*"}, ""},
		{"acme=unlimited", []string{"acme"}, ""},
		{"acme=token-bucket:0/s", []string{"acme"}, ""},
		{"acme=gcra:5/s,burst=5", []string{"acme"}, "acme=gcra:5/s"},
		{"A_z-9=gcra:5/s;sliding-window:100/h", []string{"A_z-9"}, ""},
		{"free-?=gcra:5/s|[a-c]*=gcra:6/s|[^x]y=gcra:7/s", []string{"free-?", "[a-c]*", "[^x]y"}, ""},
		{strings.Repeat("a", 64) + "=gcra:5/s", []string{strings.Repeat("a", 64)}, ""},
	}
	for _, c := range cases {
		var got Overrides
		if err := got.UnmarshalText([]byte(c.in)); err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		var keys []string
		for _, o := range got {
			keys = append(keys, o.Key)
		}
		if diff := cmp.Diff(c.keys, keys); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.in, diff)
		}
		if c.out == "" {
			c.out = c.in
		}
		if text, err := got.MarshalText(); err != nil || string(text) != c.out {
			t.Errorf("%s: written %s, %v, want %s", c.in, text, err, c.out)
		}
	}
}

func TestOverridesRefuse(t *testing.T) {
	const form, name = "<tenant or glob>=<limits>, several joined by '|'", "is not a "
	for _, c := range []struct{ in, names string }{
		{"", form}, {"acme", form}, {"acme=gcra:1/s|", form}, {"|acme=gcra:1/s", form}, {"acme:gcra:1/s", form},
		{"=gcra:1/s", "is empty"}, {"*=gcra:1/s", "FLOWGATE_LIMIT_TENANT"}, {`a\*=gcra:1/s`, name}, {"a.b=gcra:1/s", name}, {"a b=gcra:1/s", name}, {"é=gcra:1/s", name}, {" acme=gcra:1/s", name}, {"a]=gcra:1/s", name}, {"a^=gcra:1/s", name},
		{"a/*=gcra:1/s", name}, {"[a=gcra:1/s", name}, {`a\=gcra:1/s`, name}, {strings.Repeat("a", 65) + "=gcra:1/s", name},
		{"acme=gcra:1/s|acme=gcra:2/s", "twice"}, {"f*=gcra:1/s|f*=gcra:2/s", "twice"},
		{"acme=", `"acme"`}, {"acme=magic:1/s", `no algorithm "magic"`}, {"acme=gcra:1/s|beta=gcra:1/x", `"beta"`},
	} {
		kept := Overrides{{Key: "kept"}}
		if err := kept.UnmarshalText([]byte(c.in)); err == nil {
			t.Errorf("%q was accepted as %s", c.in, kept)
		} else if !strings.Contains(err.Error(), c.names) || kept[0].Key != "kept" {
			t.Errorf("%q: the error does not say %q, or something changed: %v", c.in, c.names, err)
		}
	}
}

func FuzzOverrides(f *testing.F) {
	for _, s := range []string{
		"acme=token-bucket:1000/s,burst=2000|free-*=fixed-window:10/m", "a=unlimited", "[a-c]?=gcra:1/s;gcra:2/s", `a\*=gcra:1/s`, "a]=gcra:1/s", "a=gcra:1/s|a=gcra:1/s", "|", "=",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var o, back Overrides
		if o.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := back.UnmarshalText([]byte(o.String())); err != nil || !cmp.Equal(o, back) {
			t.Errorf("%q is written %s and read as %s, %v", s, o, back, err)
		}
		if err := (Config{TenantOverrides: o, MaxKeys: 1}).Validate(); err != nil {
			t.Errorf("%q was accepted, but limits nothing: %v", s, err)
		}
	})
}

func TestConfigValidates(t *testing.T) {
	if err := (Config{Tenant: rules(t, "gcra:1/s"), MaxKeys: 1}).Validate(); err != nil {
		t.Error(err)
	}
	wrong := algorithms.Rules{{Algorithm: "magic"}}
	err := Config{Gateway: wrong, APIKey: wrong, MaxKeys: 0}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{"FLOWGATE_LIMIT_GATEWAY", "FLOWGATE_LIMIT_API_KEY", "FLOWGATE_LIMIT_MAX_KEYS"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	if err := (Config{MaxKeys: maxMaxKeys + 1}).Validate(); err == nil {
		t.Error("too many keys were accepted")
	}
}
