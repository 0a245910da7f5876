package ingress

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestIdempotencyKey(t *testing.T) {
	for in, want := range map[string]string{
		"7": "7", " 7 ": "7", `"7"`: "7", `" 7 "`: " 7 ", `""`: "", "": "", `a"b"`: `a"b"`, `"a\"b\\c"`: `a"b\c`,
		"8e03978e-40d5-43dd-bc93-6894a57f9324": "8e03978e-40d5-43dd-bc93-6894a57f9324",
	} {
		if got, ok := idempotencyKey(in); !ok || got != want {
			t.Errorf("%s is read as %q, %v", in, got, ok)
		}
	}
	for _, in := range []string{`"`, `"a`, `"a"b`, `"a";p=1`, `"a\"`, `"a\b"`, "\"é\"", "\"\t\""} {
		if got, ok := idempotencyKey(in); ok {
			t.Errorf("%s is read as %q", in, got)
		}
	}
}

// A path is refused, or names the same tenant and topic as the subject made of it.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"acme/orders", "acme/a/b", "acme//b", "acme/a%2fb", "acme/%61", "acme/a.b", "acme/*", "/x", "acme/>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(messagesPath + path)
		if err != nil {
			return
		}
		rest, ok := strings.CutPrefix(u.Path, messagesPath)
		if !ok {
			return
		}
		tenant, topic, refused := splitPath(rest, u)
		if refused != nil {
			if refused.Reason != Invalid || refused.Wait != NoRetry {
				t.Errorf("%q is refused with %+v", path, refused)
			}
			return
		}
		tenant2, topic2, problem := splitSubject("ingress.", "ingress."+tenant+"."+topic)
		if problem != "" && !strings.Contains(problem, "1024") || problem == "" && (tenant2 != tenant || topic2 != topic) {
			t.Errorf("%q is %q and %q: %s", path, tenant, topic, problem)
		}
		if strings.ReplaceAll(topic, ".", "/") != rest[len(tenant)+1:] {
			t.Errorf("%q became the topic %q", path, topic)
		}
	})
}

// Whatever headers a request has: those of the message that pass the door drive no
// stream and carry no key.
func FuzzRequestHeaders(f *testing.F) {
	f.Add("Idempotency-Key", `"7"`, "Nats-Rollup", "all")
	f.Add("X-Api-Key", "secret", "flowgate-api-key", "secret")
	f.Add("Authorization", "Bearer secret", "Content-Type", "a/b")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		from := http.Header{}
		from.Add(k1, v1)
		from.Add(k2, v2)
		key, refused := apiKey(from)
		if refused != nil {
			return
		}
		h, refused := messageHeader(from)
		if refused != nil || h == nil {
			return
		}
		for name, values := range h {
			switch {
			case name == msgIDHeader, name == "traceparent", name == "tracestate", name == "Content-Type", name == "Content-Encoding", strings.HasPrefix(name, "Flowgate-"):
			default:
				t.Errorf("%s became a header of the message", name)
			}
			if strings.EqualFold(name, apiKeyHeader) {
				t.Errorf("the key %q is kept as %v", key, values)
			}
		}
		if m := (&nats.Msg{Header: h}); m.Size() == 0 {
			t.Error("no size")
		}
	})
}

func TestQuotaFields(t *testing.T) {
	h := http.Header{}
	quotaFields(h, nil)
	if len(h) > 0 {
		t.Errorf("an empty list was sent: %v", h)
	}
	quotaFields(h, []Quota{{Scope: "api_key", Capacity: 1 << 63, Remaining: 1<<64 - 1, Window: -1, Reset: 1<<63 - 1}})
	if got := h[policyField][0]; got != `"api_key";q=999999999999999;w=1` {
		t.Error(got)
	}
	if got := h[limitField][0]; got != `"api_key";r=999999999999999;t=9223372037` {
		t.Error(got)
	}
	// Of 0/s nothing comes back, at no time.
	quotaFields(h, []Quota{
		{Scope: "tenant", Capacity: 3, Window: 1<<63 - 1, Reset: -1}, {Scope: "tenant", Window: 24 * time.Hour}, {Scope: "user", Capacity: 3, Window: time.Second, Remaining: 3},
	})
	if got := h[policyField][0]; got != `"tenant";q=3, "tenant-2";q=0;w=86400, "user";q=3;w=1` {
		t.Error(got)
	}
	if got := h[limitField][0]; got != `"tenant";r=0, "tenant-2";r=0, "user";r=3;t=0` {
		t.Error(got)
	}
}
