package broker

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

func TestOverlap(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"ingress.>", "ingress.>", true},
		{"ingress.>", "ingress.acme.orders", true},
		{"ingress.>", "ingress", false},
		{"ingress.>", "ingress.*", true},
		{"ingress.>", "ingress2.>", false},
		{"ingress.>", ">", true},
		{"ingress.>", "*", false},
		{"ingress.>", "*.*", true},
		{"ingress.>", "*.>", true},
		{"ingress.>", "*.foo", true},
		{"ingress.>", "*.*.foo", true},
		{"ingress.>", "orders.>", false},
		{"ingress.>", "*.ingress", true},
		{"in.a.>", "in.>", true},
		{"in.a.>", "in.*", false},
		{"in.a.>", "in.*.x", true},
		{"in.a.>", "in.b.>", false},
		{"in.a.>", "in.a", false},
		{"*", "*", true},
		{"*", "foo", true},
		{"*", "foo.bar", false},
		{"*.foo", "bar.*", true},
		{"*.foo", "bar.baz", false},
		{"*.foo.*", "a.*.c", true},
		{"*.foo.*", "a.bar.*", false},
		{"a.*.c.>", "a.b.>", true},
		{"a.*.c.>", "a.b.d.>", false},
		{"a.*.c.>", "a.b.c", false},
		{"foo", "foo", true},
		{"foo", "FOO", false},
		// A star that is part of a token is a letter.
		{"foo*", "foobar", false},
		{"foo.b*", "foo.*", true},
		{"$KV.B.>", "$KV.>", true},
		{"$KV.B.>", "$KV.C.>", false},
	} {
		if got := overlap(tc.a, tc.b); got != tc.want {
			t.Errorf("overlap(%q, %q) = %v, want %v", tc.a, tc.b, got, tc.want)
		}
		if got := overlap(tc.b, tc.a); got != tc.want {
			t.Errorf("overlap(%q, %q) = %v, want %v", tc.b, tc.a, got, tc.want)
		}
	}
}

// The server's own opinion, over every pair of patterns of up to three tokens.
func TestOverlapAsTheServerSeesIt(t *testing.T) {
	var patterns []string
	var grow func(prefix []string)
	grow = func(prefix []string) {
		for _, token := range []string{"a", "b", "*", ">"} {
			p := append(append([]string{}, prefix...), token)
			patterns = append(patterns, strings.Join(p, "."))
			if token != ">" && len(p) < 3 {
				grow(p)
			}
		}
	}
	grow(nil)
	for _, a := range patterns {
		for _, b := range patterns {
			if got, want := overlap(a, b), server.SubjectsCollide(a, b); got != want {
				t.Errorf("overlap(%q, %q) = %v, the server says %v", a, b, got, want)
			}
		}
	}
}

func TestOverlappingStreams(t *testing.T) {
	b := start(t, testConfig(t.TempDir()))
	_, js := gateway(t, b)
	for name, subject := range map[string]string{
		"ALL_SECOND": "*.second", "DEEP": "ingress.acme.>", "OTHER": "orders.new.>", "ONE": "ingress",
	} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: name, Subjects: []string{subject},
			NoAck: strings.HasPrefix(subject, "*"), // the server's condition: $JS.second is among them
		}); err != nil {
			t.Fatal(err)
		}
	}
	held, err := Overlapping(t.Context(), js, "ingress.>")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, h := range held {
		got[h.Stream] = strings.Join(h.Subjects, ",")
	}
	if len(got) != 2 || got["ALL_SECOND"] != "*.second" || got["DEEP"] != "ingress.acme.>" {
		t.Errorf("streams that overlap ingress.>: %v", got)
	}
	if name, err := Capturing(t.Context(), js, "nothing"); name != "" || err != nil {
		t.Errorf("Capturing(nothing) = %q, %v", name, err)
	}
	if name, err := Capturing(t.Context(), js, "ingress.globex"); name != "" || err != nil {
		t.Errorf("Capturing(ingress.globex) = %q, %v", name, err)
	}
	if name, err := Capturing(t.Context(), js, "ingress.acme"); name != "DEEP (ingress.acme.>)" || err != nil {
		t.Errorf("Capturing(ingress.acme) = %q, %v", name, err)
	}
}
