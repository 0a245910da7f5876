package ingress

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// Every answer that an HTTP client can get, and what stands in it.
func TestHTTPAnswers(t *testing.T) {
	w := newWeb(t, func(c *Config, _ *Deps, _ *jetstream.StreamConfig) {
		c.Tenants = []string{"acme", "globex"}
		c.MaxPayload = 2048
	}).run()
	w.limits.quotas = func(id Identity) []Quota {
		q := []Quota{{Scope: "gateway", Capacity: 9, Window: 1500 * time.Millisecond, Remaining: 8, Reset: time.Nanosecond}}
		if id.Tenant != "" {
			q = append(q, Quota{Scope: "tenant", Capacity: 2000, Window: 2 * time.Second, Remaining: 1999, Reset: time.Millisecond},
				Quota{Scope: "tenant", Capacity: 5000, Window: time.Hour})
		}
		return q
	}
	over := &Excess{Scope: "tenant", Limit: "token-bucket:100/s,burst=200", Wait: 1250*time.Millisecond + 1}
	full := func() { w.space.full.Store(true); w.space.wait.Store(int64(2 * time.Second)) }
	mend := func() {
		w.limits.refuse(nil)
		w.space.full.Store(false)
		w.space.stay.Store(0)
	}
	big := strings.Repeat("x", 2049)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		before                   func()
		status, errCode          int
		reason, detail           string
		wait                     int64 // milliseconds; -1: none
		anonymous                bool  // no tenant is known, so its quotas are not told
	}{
		{name: "accepted", path: "acme/orders", status: 202},
		{name: "deep topic", path: "acme/orders/eu/new_1-2", body: "x", status: 202},
		{name: "percent-encoded letter", path: "acme/%6frders", status: 202},
		{name: "no topic", path: "acme", status: 400, errCode: 60400, reason: "invalid", detail: "no topic", wait: -1, anonymous: true},
		{name: "no topic after a slash", path: "acme/", status: 400, errCode: 60400, reason: "invalid", detail: "no topic", wait: -1, anonymous: true},
		{name: "empty token", path: "acme/a//b", status: 400, errCode: 60400, reason: "invalid", detail: "each part", wait: -1, anonymous: true},
		{name: "slash at the end", path: "acme/a/", status: 400, errCode: 60400, reason: "invalid", detail: "each part", wait: -1, anonymous: true},
		{name: "dot", path: "acme/a.b", status: 400, errCode: 60400, reason: "invalid", detail: "each part", wait: -1, anonymous: true},
		{name: "wildcard", path: "acme/*", status: 400, errCode: 60400, reason: "invalid", detail: "each part", wait: -1, anonymous: true},
		{name: "encoded slash", path: "acme/a%2Fb", status: 400, errCode: 60400, reason: "invalid", detail: "encoded slash", wait: -1, anonymous: true},
		{name: "bad tenant", path: "a$/b", status: 400, errCode: 60400, reason: "invalid", detail: "tenant name", wait: -1, anonymous: true},
		{name: "too long", path: "acme/" + strings.Repeat("x", 1020), status: 400, errCode: 60400, reason: "invalid", detail: "1024", wait: -1},
		{name: "a header of the broker's", path: "acme/t", headers: []string{"Nats-Rollup", "all"}, status: 400, errCode: 60400, reason: "invalid", detail: "Nats-Rollup", wait: -1},
		{name: "cost", path: "acme/t", headers: []string{"Flowgate-Cost", "0"}, status: 400, errCode: 60400, reason: "invalid", detail: "Flowgate-Cost", wait: -1},
		{name: "long user", path: "acme/t", headers: []string{"Flowgate-User", strings.Repeat("u", 256)}, status: 400, errCode: 60400, reason: "invalid", detail: "255 bytes", wait: -1},
		{name: "long id", path: "acme/t", headers: []string{"Idempotency-Key", strings.Repeat("i", 256)}, status: 400, errCode: 60400, reason: "invalid", detail: "255", wait: -1},
		{name: "two ids", path: "acme/t", headers: []string{"Idempotency-Key", "1", "Idempotency-Key", "2"}, status: 400, errCode: 60400, reason: "invalid", detail: "2 times", wait: -1},
		{name: "unbalanced quotes", path: "acme/t", headers: []string{"Idempotency-Key", `"1`}, status: 400, errCode: 60400, reason: "invalid", detail: "Idempotency-Key", wait: -1},
		{name: "two keys", path: "acme/t", headers: []string{"X-Api-Key", "1", "Authorization", "Bearer 2"}, status: 400, errCode: 60400, reason: "invalid", detail: "more than one API key", wait: -1, anonymous: true},
		{name: "tenant not allowed", path: "evil/t", status: 403, errCode: 60403, reason: "forbidden", detail: "tenant evil", wait: -1},
		{name: "elsewhere", method: "GET", path: "/", status: 404, errCode: 60400, reason: "invalid", detail: "nothing here", wait: -1, anonymous: true},
		{name: "messages alone", path: "", status: 404, errCode: 60400, reason: "invalid", detail: "nothing here", wait: -1, anonymous: true},
		{name: "method", method: "PUT", path: "acme/t", status: 405, errCode: 60400, reason: "invalid", detail: "PUT", wait: -1, anonymous: true},
		{name: "too large", path: "acme/t", body: big, status: 413, errCode: 60413, reason: "too_large", detail: "2048", wait: -1},
		{name: "too large with its headers", path: "acme/t", body: big[:2040], headers: []string{"Content-Type", "text/plain"}, status: 413, errCode: 60413, reason: "too_large", detail: "2048", wait: -1},
		{name: "over a limit", path: "acme/t", before: func() { w.limits.refuse(over) }, status: 429, errCode: 60429, reason: "rate_limited", detail: "tenant acme over token-bucket:100/s,burst=200", wait: 1251},
		{name: "backlog", path: "acme/t", before: full, status: 503, errCode: 60503, reason: "backlog", detail: "full", wait: 2000},
		{name: "deadline", path: "acme/t", headers: []string{"Flowgate-Deadline", "1s"}, before: func() { w.space.stay.Store(int64(time.Minute)) }, status: 503, errCode: 60408, reason: "deadline", wait: -1},
		{name: "draining", path: "acme/t", before: w.door.Drain, status: 503, errCode: 60504, reason: "draining", wait: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				c.before()
				defer mend()
			}
			method := c.method
			if method == "" {
				method = "POST"
			}
			if c.path != "/" {
				c.path = "/v1/messages/" + c.path
			}
			r := w.do(method, c.path, strings.NewReader(c.body), c.headers...)
			if r.status != c.status || r.Reason != c.reason || r.ErrCode != c.errCode || !strings.Contains(r.Detail, c.detail) {
				t.Fatalf("%d %s", r.status, r.body)
			}
			policy, limit := `"gateway";q=9;w=2`, `"gateway";r=8;t=1`
			if !c.anonymous {
				policy += `, "tenant";q=2000;w=2, "tenant-2";q=5000;w=3600`
				limit += `, "tenant";r=1999;t=1, "tenant-2";r=0;t=0`
			}
			if got := r.header.Get("RateLimit-Policy"); got != policy {
				t.Errorf("RateLimit-Policy is %s, want %s", got, policy)
			}
			if got := r.header.Get("RateLimit"); got != limit {
				t.Errorf("RateLimit is %s, want %s", got, limit)
			}
			kind := "application/problem+json"
			if c.status == 202 {
				kind = "application/json"
				if r.Stream != "FLOWGATE" || r.Seq == 0 || r.Duplicate {
					t.Errorf("the acknowledgement is %s", r.body)
				}
			} else {
				kind := "urn:flowgate:problem:" + c.reason
				if c.status == 404 || c.status == 405 {
					kind = "about:blank"
				}
				if r.Status != c.status || r.Type != kind || r.Title == "" {
					t.Errorf("the problem is %s", r.body)
				}
				if got := r.header.Get("Flowgate-Reason"); got != c.reason {
					t.Errorf("Flowgate-Reason is %q", got)
				}
				after, ms := "", ""
				if c.wait >= 0 {
					after, ms = fmt.Sprint(max(1, (c.wait+999)/1000)), fmt.Sprint(c.wait)
				}
				if r.header.Get("Retry-After") != after || r.header.Get("Flowgate-Retry-After-Ms") != ms || (r.Wait == nil) != (c.wait < 0) || r.Wait != nil && *r.Wait != c.wait {
					t.Errorf("the hint is %q, %q and %s; want %d ms", r.header.Get("Retry-After"), r.header.Get("Flowgate-Retry-After-Ms"), r.body, c.wait)
				}
			}
			if got := r.header.Get("Content-Type"); got != kind {
				t.Errorf("Content-Type is %q", got)
			}
			if got := r.header.Get("Allow"); (got == "POST") != (c.status == 405) {
				t.Errorf("Allow is %q", got)
			}
			if c.status == 429 && (r.Scope != "tenant" || r.Key != "acme" || r.Limit != over.Limit || r.header.Get("Flowgate-Scope") != "tenant") {
				t.Errorf("the limit is not named: %s", r.body)
			}
		})
	}
	w.rest()
	if n := w.metric("flowgate_ingress_messages_total", "transport", "http", "result", "admitted", "tenant", "acme"); n != 3 {
		t.Errorf("%v counted as admitted, want 3", n)
	}
	if n := w.metric("flowgate_ingress_messages_total", "transport", "http", "result", "refused"); n != 23 {
		t.Errorf("%v counted as refused, want 23: all but what was no message", n)
	}
	if n := len(w.limits.costs()); n != 3 {
		t.Errorf("%d took from the limits, want 3", n)
	}
}

// What of a request becomes a message, and how.
func TestHTTPMessage(t *testing.T) {
	w := newWeb(t).run()
	r := w.post("acme/orders/new", "\x1f\x8b", "Content-Type", "application/json", "Content-Encoding", "gzip", "Traceparent", "00-x", "Tracestate", "a=b",
		"Idempotency-Key", `"7 \" 8"`, "Flowgate-User", "ann", "Flowgate-Cost", "3", "Flowgate-Deadline", "2100-01-01T00:00:00Z", "Flowgate-Colour", "red",
		"X-Api-Key", "secret", "Cookie", "secret", "X-Other", "secret")
	if r.status != 202 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	m := w.stored(r.Seq)
	want := nats.Header{
		"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}, "traceparent": {"00-x"}, "tracestate": {"a=b"},
		"Nats-Msg-Id": {`acme/7 " 8`}, "Flowgate-User": {"ann"}, "Flowgate-Cost": {"3"}, "Flowgate-Deadline": {"2100-01-01T00:00:00Z"}, "Flowgate-Colour": {"red"},
	}
	if m.Subject != "flowgate.backlog.acme.orders.new" || string(m.Data) != "\x1f\x8b" || fmt.Sprint(m.Header) != fmt.Sprint(want) {
		t.Errorf("stored %s %q\n%v, want\n%v", m.Subject, m.Data, m.Header, want)
	}
	if got := w.limits.costs(); fmt.Sprint(got) != "[3]" {
		t.Errorf("it cost %v", got)
	}
	id := Identity{Tenant: "acme", Service: "orders", User: "ann", IP: "127.0.0.1", APIKey: Fingerprint("secret")}
	if got := w.limits.seen(); got != id {
		t.Errorf("it counted for %+v, want %+v", got, id)
	}
	// Again, in the form that most clients have.
	if again := w.post("acme/orders/new", "", "Idempotency-Key", `7 " 8`); again.status != 202 || !again.Duplicate || again.Seq != r.Seq {
		t.Errorf("repeated: %d %s", again.status, again.body)
	}
	if other := w.post("globex/t", "", "Idempotency-Key", `7 " 8`); other.status != 202 || other.Duplicate {
		t.Errorf("another tenant's: %d %s", other.status, other.body)
	}
	if plain := w.post("acme/t", ""); plain.status != 202 || len(w.stored(plain.Seq).Header) > 0 {
		t.Errorf("without headers: %d %s", plain.status, plain.body)
	}
}

// What the broker itself refuses comes back as a problem, too.
func TestHTTPBrokerRefuses(t *testing.T) {
	w := newWeb(t, func(_ *Config, _ *Deps, s *jetstream.StreamConfig) { s.MaxMsgs = 1 }).run()
	if r := w.post("acme/t", ""); r.status != 202 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if r := w.post("acme/t", ""); r.status != 503 || r.ErrCode != 10077 || r.Status != 503 || !strings.Contains(r.Detail, "maximum messages") {
		t.Errorf("beyond the stream's limit: %d %s", r.status, r.body)
	}
}

// A broker that does not answer, and a worker that does not work, cost a client two
// seconds and a half at most.
func TestHTTPAlwaysAnswered(t *testing.T) {
	for _, name := range []string{"no stream", "stuck"} {
		t.Run(name, func(t *testing.T) {
			w := newWeb(t).run()
			if name == "stuck" {
				release := make(chan struct{})
				defer close(release)
				w.limits.mu.Lock()
				w.limits.wait = func() { <-release }
				w.limits.mu.Unlock()
			} else if err := w.gateway.DeleteStream(t.Context(), "FLOWGATE"); err != nil {
				t.Fatal(err)
			}
			r := w.post("acme/t", "")
			if r.status != 503 || r.Reason != "overloaded" || r.header.Get("Retry-After") != "1" || r.took > 3*time.Second {
				t.Errorf("after %v: %d %s", r.took, r.status, r.body)
			}
		})
	}
}

// A flood past the queue's bounds is answered, all of it.
func TestHTTPFlood(t *testing.T) {
	w := newWeb(t)
	w.door.queue = newQueue(8, 1<<20, "ingress.")
	gate := make(chan struct{})
	w.limits.wait = func() { <-gate }
	w.run()
	results := make(chan reply)
	for range 40 {
		go func() {
			r, err := w.try(http.DefaultClient, "POST", "http://"+w.http.Addr()+"/v1/messages/acme/t", nil)
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
	}
	statuses := map[int]int{}
	for i := range 40 {
		if i == 31 {
			close(gate) // 31 were turned away; one is in hand, eight wait
		}
		r := <-results
		statuses[r.status]++
		if r.status != 202 && r.Reason != "overloaded" {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	// Whether the worker took one before the queue was full is a matter of luck.
	if n := statuses[202]; n != 8 && n != 9 || statuses[503] != 40-n {
		t.Errorf("answers %v, want 9 admitted and 31 refused", statuses)
	}
}

// Producers over NATS cannot have anything sent where HTTP clients wait.
func TestHTTPInboxIsClosed(t *testing.T) {
	w := newWeb(t).run()
	nc := w.connect()
	for _, reply := range []string{w.door.callers.inbox + "1", strings.TrimSuffix(w.door.callers.inbox, ".")} {
		if err := nc.PublishRequest("ingress.acme.t", reply, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil { // so that they come before what is published next
		t.Fatal(err)
	}
	if _, err := w.producer().Publish(t.Context(), "ingress.acme.t", nil); err != nil {
		t.Fatal(err)
	}
	w.rest()
	if n := w.metric("flowgate_ingress_muted_total"); n != 2 {
		t.Errorf("%v were dropped, want 2", n)
	}
	deps := w.door.deps
	deps.Answers, deps.Registerer = w.connect(), prometheus.NewRegistry() // an inbox anybody may publish to
	if _, err := New(w.cfg, deps); err == nil {
		t.Error("an inbox outside the gateway's own subjects was taken")
	}
}
