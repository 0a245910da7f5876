package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
)

func TestPublish(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()

		m := &nats.Msg{Subject: "ingress.acme.orders.new", Data: []byte("one"), Header: nats.Header{
			"X-Trace": {"a", "b"}, "Flowgate-Cost": {"7"}, "Flowgate-Api-Key": {"secret"},
		}}
		ack, err := js.PublishMsg(t.Context(), m)
		if err != nil || ack.Stream != "FLOWGATE" || ack.Sequence != 1 || ack.Duplicate {
			t.Fatalf("js.Publish: %+v, %v", ack, err)
		}
		got := r.stored(1)
		if got.Subject != "flowgate.backlog.acme.orders.new" || string(got.Data) != "one" {
			t.Errorf("stored %s %q", got.Subject, got.Data)
		}
		if h := got.Header; len(h) != 2 || len(h["X-Trace"]) != 2 || h["X-Trace"][1] != "b" || h.Get("Flowgate-Cost") != "7" {
			t.Errorf("stored headers %v", h)
		}

		future, err := js.PublishAsync("ingress.acme.orders", []byte("two"))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case ack := <-future.Ok():
			if ack.Stream != "FLOWGATE" || ack.Sequence != 2 {
				t.Errorf("js.PublishAsync: %+v", ack)
			}
		case err := <-future.Err():
			t.Fatal(err)
		}

		reply, err := r.connect().RequestWithContext(t.Context(), "ingress.globex.orders", []byte("three"))
		if err != nil {
			t.Fatal(err)
		}
		var raw struct {
			Stream string
			Seq    uint64
		}
		if err := json.Unmarshal(reply.Data, &raw); err != nil || raw.Stream != "FLOWGATE" || raw.Seq != 3 {
			t.Errorf("a request's answer: %s, %v", reply.Data, err)
		}

		nc := r.connect()
		if err := nc.Publish("ingress.acme.orders", []byte("four")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.stored(4); string(got.Data) != "four" {
			t.Errorf("published without a reply: stored %q", got.Data)
		}

		for _, want := range []struct {
			n      float64
			labels []string
		}{
			{2, []string{"tenant", "acme", "transport", "nats"}},
			{1, []string{"tenant", "globex", "transport", "nats"}},
			{1, []string{"tenant", "acme", "transport", "nats_no_reply"}},
			{4, []string{"result", "admitted", "reason", "", "enforced", "true"}},
			{4, nil},
		} {
			if n := r.metric("flowgate_ingress_messages_total", want.labels...); n != want.n {
				t.Errorf("messages_total%v = %v, want %v", want.labels, n, want.n)
			}
		}
		if n := r.space.entered.Load(); n != 4 || r.door.Forwarded() != 4 {
			t.Errorf("entered the backlog: %d, forwarded: %d, want 4", n, r.door.Forwarded())
		}
		if got := r.limits.costs(); fmt.Sprint(got) != "[7 1 1 1]" {
			t.Errorf("taken from the limits: %v", got)
		}
	})
}

func TestDuplicate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *Config, _ *Deps, s *jetstream.StreamConfig) { s.Duplicates = 2 * time.Minute }).run()
		js := r.producer()
		publish := func(tenant, id string) *jetstream.PubAck {
			t.Helper()
			ack, err := js.Publish(t.Context(), "ingress."+tenant+".t", nil, jetstream.WithMsgID(id))
			if err != nil {
				t.Fatal(err)
			}
			return ack
		}
		if a := publish("acme", "1"); a.Duplicate || a.Sequence != 1 {
			t.Errorf("first: %+v", a)
		}
		time.Sleep(time.Second) // a canary tells where the stream stands
		if a := publish("acme", "1"); !a.Duplicate || a.Sequence != 1 {
			t.Errorf("repeated: %+v", a)
		}
		if a := publish("globex", "1"); a.Duplicate || a.Sequence != 2 {
			t.Errorf("the same id of another tenant: %+v", a)
		}
		// One tenant cannot take another's id by putting its name in front.
		if a := publish("a", "cme/1"); a.Duplicate || a.Sequence != 3 {
			t.Errorf("an id with a slash: %+v", a)
		}
		if id := r.stored(1).Header.Get("Nats-Msg-Id"); id != "acme/1" {
			t.Errorf("stored id %q", id)
		}
		time.Sleep(time.Second)
		if n := r.metric("flowgate_ingress_unstored_total"); n != 1 {
			t.Errorf("unstored = %v, want 1", n)
		}
		last := r.confirmed[len(r.confirmed)-1]
		if state := r.state(); last != [2]uint64{4, state.LastSeq} {
			t.Errorf("confirmed last: forwarded %d, sequence %d; want 4, %d", last[0], last[1], state.LastSeq)
		}
	})
}

// keyed are limits by tenant, the real ones.
type keyed struct{ *algorithms.Keyed }

func (k keyed) Look(now int64, id Identity, cost int64) (Excess, bool) {
	d, rule, _ := k.Keyed.Peek(id.Tenant, now, cost)
	return Excess{Scope: "tenant", Key: id.Tenant, Limit: rule.String(), Wait: d.RetryAfter}, d.Allowed
}
func (k keyed) Take(now int64, id Identity, cost int64) { _, _, _ = k.Keyed.Take(id.Tenant, now, cost) }
func (k keyed) Quotas(int64, Identity) []Quota          { return nil }

// A producer that waits exactly as long as it is told always passes; and asking too
// early costs it nothing.
func TestHintKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rules, err := algorithms.ParseRules("token-bucket:3/s,burst=1")
		if err != nil {
			t.Fatal(err)
		}
		k, err := algorithms.NewKeyed(algorithms.Policy{Default: rules}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(_ *Config, d *Deps, _ *jetstream.StreamConfig) { d.Limits = keyed{k} }).run()
		js, nc := r.producer(), r.connect()
		start := time.Now()
		for i := range 30 {
			if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			e := wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 429, 60429)
			if want := "tenant acme over token-bucket:3/s,burst=1; retry_after_ms=334"; e.Description != want {
				t.Fatalf("description %q, want %q", e.Description, want)
			}
			reply, err := nc.RequestWithContext(t.Context(), "ingress.acme.t", nil)
			if err != nil {
				t.Fatal(err)
			}
			if h := reply.Header; h.Get("Flowgate-Retry-After-Ms") != "334" || h.Get("Retry-After") != "1" || h.Get("Flowgate-Scope") != "tenant" {
				t.Fatalf("headers %v", h)
			}
			time.Sleep(334 * time.Millisecond)
		}
		if d := time.Since(start); d != 30*334*time.Millisecond {
			t.Errorf("30 rounds took %v", d)
		}
		if n := r.metric("flowgate_ingress_messages_total", "reason", "rate_limited", "scope", "tenant", "result", "refused"); n != 60 {
			t.Errorf("refused by a limit: %v, want 60", n)
		}
		if n := r.state().Msgs; n != 30 {
			t.Errorf("stored %d, want 30", n)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestOrderWithinTenant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 400
		r := newRig(t).run()
		js := r.producer()
		var futures []jetstream.PubAckFuture
		for i := range n {
			f, err := js.PublishAsync([]string{"ingress.acme.t", "ingress.globex.t"}[i%2], fmt.Append(nil, i))
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
		<-js.PublishAsyncComplete()
		for i, f := range futures {
			select {
			case ack := <-f.Ok():
				if got := string(r.stored(ack.Sequence).Data); ack.Sequence != uint64(i+1) || got != fmt.Sprint(i) {
					t.Fatalf("message %d has sequence %d, which holds %s", i, ack.Sequence, got)
				}
			case err := <-f.Err():
				t.Fatal(err)
			}
		}
	})
}

func TestPayloadLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const limit = 4 << 10
		r := newRig(t, func(c *Config, _ *Deps, _ *jetstream.StreamConfig) { c.MaxPayload = limit }).run()
		js := r.producer()
		headers := nats.Header{"Nats-Msg-Id": {"1"}, "Flowgate-Deadline": {"1h"}, "X": {"y"}}
		headerBytes := len("NATS/1.0\r\nNats-Msg-Id: 1\r\nFlowgate-Deadline: 1h\r\nX: y\r\n\r\n")
		for _, c := range []struct {
			name string
			h    nats.Header
			size int
			over bool
		}{
			{"at the limit", nil, limit, false},
			{"one byte over", nil, limit + 1, true},
			{"far over", nil, limit + headroom, true},
			{"headers count, at the limit", headers, limit - headerBytes, false},
			{"headers count, one byte over", headers, limit - headerBytes + 1, true},
			{"headers count, body alone at the limit", headers, limit, true},
		} {
			_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "ingress.acme.t", Header: c.h, Data: make([]byte, c.size)})
			if !c.over && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if c.over {
				if e := wantNAK(t, err, 413, 60413); len(e.Description) == 0 {
					t.Errorf("%s: no description", c.name)
				}
			}
		}
		if s := r.state(); s.Msgs != 2 {
			t.Errorf("stored %d messages, want the 2 within the limit", s.Msgs)
		}
		if n := r.metric("flowgate_ingress_messages_total", "reason", "too_large"); n != 4 {
			t.Errorf("too_large = %v, want 4", n)
		}
		if r.forward.Stats().Reconnects+r.receive.Stats().Reconnects > 0 {
			t.Error("a gateway's connection broke")
		}
	})
}

// A header name that the client library would not send on is refused for good, not
// as an overload that a producer would try again for ever.
func TestHeaderNameNotForwardable(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		conn, err := r.server.InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		nc := r.connect()
		inbox, err := nc.SubscribeSync("_INBOX.raw")
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		go func() { // the server's INFO and PONG are read and dropped
			buf := make([]byte, 4096)
			for {
				if _, err := conn.Read(buf); err != nil {
					return
				}
			}
		}()
		header := "NATS/1.0\r\nx/y: z\r\n\r\n"
		raw := fmt.Sprintf("CONNECT {\"headers\":true}\r\nHPUB ingress.acme.t _INBOX.raw %d %d\r\n%s\r\n", len(header), len(header), header)
		if _, err := conn.Write([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		m, err := inbox.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get("Flowgate-Reason"); got != "invalid" {
			t.Errorf("refused as %q: %s", got, m.Data)
		}
	})
}
