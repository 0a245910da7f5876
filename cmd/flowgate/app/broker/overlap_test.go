package broker

import (
	"errors"
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
	if name, err := Capturing(t.Context(), js, "nothing.at.all"); name != "" || err != nil {
		t.Errorf("Capturing(nothing.at.all) = %q, %v", name, err)
	}
	if name, err := Capturing(t.Context(), js, "ingress.globex"); name != "" || err != nil {
		t.Errorf("Capturing(ingress.globex) = %q, %v", name, err)
	}
	if name, err := Capturing(t.Context(), js, "ingress.acme"); name != "DEEP (ingress.acme.>)" || err != nil {
		t.Errorf("Capturing(ingress.acme) = %q, %v", name, err)
	}
}

// Both the stream and the gateway would answer a producer, and what the gateway
// refuses would be stored all the same.
func TestAStreamThatCapturesTheIngress(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	for subject, captures := range map[string]bool{
		">": true, "*.>": true, "*.*": true, "ingress.>": true, "ingress.acme.>": true, "ingress.*.orders": true,
		"ingress.acme.orders": true, "*.acme.*": true,
		"ingress": false, "ingress2.>": false, "orders.ingress.>": false,
	} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "FOREIGN", Subjects: []string{subject},
			NoAck: subject == ">" || strings.HasPrefix(subject, "*"), // the server's condition for what covers $JS
		})
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		_, err = Ensure(t.Context(), js, limitsToo())
		name, err2 := Capturing(t.Context(), js, "ingress")
		if err2 != nil {
			t.Fatal(err2)
		}
		if captures {
			wantError(t, err, "FOREIGN", "["+subject+"]", "ingress.>", "FLOWGATE_INGRESS_PREFIX", "nothing was changed")
			if all := configs(t, js); len(all) != 1 {
				t.Errorf("%s: something was made: %v", subject, all)
			}
			if name != "FOREIGN ("+subject+")" {
				t.Errorf("%s: a running gateway sees %q", subject, name)
			}
		} else if err != nil || name != "" {
			t.Errorf("%s captures nothing, but: %v, %q", subject, err, name)
		}
		for _, s := range []string{"FOREIGN", "FLOWGATE", "FLOWGATE_DLQ", "KV_FLOWGATE_STATE", "KV_FLOWGATE_LIMITS"} {
			if err := js.DeleteStream(t.Context(), s); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Fatal(err)
			}
		}
	}
}

// A stream that appears while the gateway runs is found by Capturing, and stops the
// next start although all of the gateway's own is there.
func TestAStreamThatCapturesLater(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	ensured(t, js, testTopology())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LATE", Subjects: []string{"audit.>", "ingress.acme.>"}}); err != nil {
		t.Fatal(err)
	}
	if name, err := Capturing(t.Context(), js, "ingress"); err != nil || name != "LATE (audit.>, ingress.acme.>)" {
		t.Errorf("captured by %q, %v", name, err)
	}
	wantError(t, Check(t.Context(), js, testTopology()), "LATE", "ingress.>", "[audit.> ingress.acme.>]")
}

func TestAStreamOnTheGatewaysOwnSubjects(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	for subject, own := range map[string]string{
		"flowgate.>": "flowgate.dlq.>", "flowgate.backlog.acme.>": "flowgate.backlog.>", "flowgate.backlog.acme.orders": "flowgate.backlog.>",
		"flowgate.dlq.*.orders": "flowgate.dlq.>", "$KV.FLOWGATE_STATE.lease": "$KV.FLOWGATE_STATE.>", "$KV.*.lease": "$KV.FLOWGATE_LIMITS.>",
		"flowgate.backlog": "", "$KV.FLOWGATE.>": "",
	} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FOREIGN", Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
		err := Check(t.Context(), js, limitsToo())
		if own == "" {
			if err != nil {
				t.Errorf("%s: %v", subject, err)
			}
		} else {
			wantError(t, err, "FOREIGN", "["+subject+"]", own, "FLOWGATE_NAME")
			if strings.Contains(err.Error(), "overlap ingress.>") {
				t.Errorf("%s does not capture the ingress: %v", subject, err)
			}
		}
		if err := js.DeleteStream(t.Context(), "FOREIGN"); err != nil {
			t.Fatal(err)
		}
	}
}
