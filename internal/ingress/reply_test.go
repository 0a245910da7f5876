package ingress

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// With a reply subject of their choice producers would have the gateway, which has
// more rights, publish where they cannot.
func TestReplyBorrowsRights(t *testing.T) {
	borrowed := []string{
		"$JS.API.STREAM.PURGE.FLOWGATE", "$JS.API.STREAM.DELETE.FLOWGATE", "$KV.FLOWGATE_LIMITS.tenant.x", "$", "$SRV.PING",
		"ingress", "ingress.acme.t", "ingress.victim.orders",
		"flowgate", "flowgate.pressure", "flowgate.backlog.victim.orders", "flowgate.dlq.victim.orders",
		"*", "_INBOX.*", "_INBOX.>", "_INBOX..x", ".x", "x.",
		"_INBOX." + strings.Repeat("x", 4000),
	}
	answered := []string{"ingress2.x", "ingressx", "flowgatex.y", "flowgate-2.x", "_INBOX.x", "a$.b", "x.$JS.API", strings.Repeat("r", MaxReply)}
	tooLong := []string{strings.Repeat("r", MaxReply+1), "_INBOX." + strings.Repeat("x", 2000)}

	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		spy := r.connect()
		var seen []*nats.Msg
		if _, err := spy.Subscribe(">", func(m *nats.Msg) {
			if !strings.HasPrefix(m.Subject, "$SYS") && !strings.HasPrefix(m.Subject, "$JS.EVENT") {
				seen = append(seen, m)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := spy.Flush(); err != nil {
			t.Fatal(err)
		}
		// publish sends from one producer and gives all that anyone published because of it.
		nc, stopped := r.connect(nats.SkipSubjectValidation()), 0
		publish := func(reply string) []*nats.Msg {
			t.Helper()
			synctest.Wait()
			seen = nil
			if err := nc.PublishMsg(&nats.Msg{Subject: "ingress.acme.t", Reply: reply, Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(seen) == 0 && strings.HasPrefix(reply, "$JS.API.") {
				stopped++ // by the broker itself
				return nil
			}
			if len(seen) == 0 || seen[0].Subject != "ingress.acme.t" {
				t.Fatalf("reply %q: the message was not published: %v", clip(reply), seen)
			}
			return seen[1:]
		}
		for _, refused := range []bool{false, true} {
			if refused {
				r.limits.refuse(&Excess{Scope: "tenant", Limit: "x", Wait: time.Second})
			}
			r.space.entered.Store(0)
			stopped = 0
			muted := r.metric("flowgate_ingress_muted_total")
			for _, reply := range borrowed {
				for _, m := range publish(reply) {
					t.Errorf("reply %q: the gateway published to %q: %s", clip(reply), clip(m.Subject), m.Data)
				}
			}
			if n := r.metric("flowgate_ingress_muted_total") - muted; n != float64(len(borrowed)-stopped) || r.space.entered.Load() > 0 {
				t.Errorf("%v counted as muted and %d forwarded, want %d and 0", n, r.space.entered.Load(), len(borrowed)-stopped)
			}
			for _, reply := range answered {
				answers := 0
				for _, m := range publish(reply) {
					if m.Subject == reply {
						answers++
					}
				}
				if answers != 1 {
					t.Errorf("reply %q: %d answers, want 1", clip(reply), answers)
				}
			}
			for _, reply := range tooLong {
				got := publish(reply)
				if len(got) != 1 || got[0].Subject != reply || got[0].Header.Get("Flowgate-Reason") != "invalid" {
					t.Errorf("reply of %d bytes: %v", len(reply), got)
				}
			}
		}
		if s := r.state(); s.Msgs != uint64(len(answered)) {
			t.Errorf("stored %d, want the %d that may be answered", s.Msgs, len(answered))
		}
	})
}

// A control line holds 4,096 bytes, of which the subject, the reply and two lengths are a
// part. A NAK's is longer than a short message's: it has headers.
func TestReplyFillsControlLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *Deps, _ *jetstream.StreamConfig) { c.Prefix = "i" }).run()
		nc := r.connect()
		for n := 3990; n <= 4096-len("i.a ")-len(" 0"); n++ {
			if err := nc.PublishRequest("i.a", strings.Repeat("r", n), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := r.receive.Stats().Reconnects + nc.Stats().Reconnects; n > 0 {
			t.Errorf("%d connections broke", n)
		}
		if _, err := r.producer().Publish(t.Context(), "i.a.t", nil); err != nil {
			t.Error(err)
		}
	})
}

// The longest subject and reply that are allowed, with the longest names around them,
// get through the broker in one piece.
func TestLongestSubjectForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *Config, d *Deps, s *jetstream.StreamConfig) {
			name := "a" + strings.Repeat("b", 31)
			d.Name, d.Backlog = name, name+".backlog"
			s.Subjects = []string{name + ".backlog.>"}
		}).run()
		nc := r.connect()
		for _, c := range []struct {
			size   int
			reason string
		}{{MaxSubject, ""}, {MaxSubject + 1, "invalid"}, {3000, "invalid"}} {
			subject := "ingress." + strings.Repeat("t", MaxTenant) + "."
			subject += strings.Repeat("x", c.size-len(subject))
			reply := fmt.Sprintf("_INBOX.%d.", c.size)
			reply += strings.Repeat("r", MaxReply-len(reply))
			inbox, err := nc.SubscribeSync(reply)
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.PublishRequest(subject, reply, []byte("x")); err != nil {
				t.Fatal(err)
			}
			m, err := inbox.NextMsg(3 * time.Second)
			if err != nil {
				t.Fatalf("subject of %d bytes: %v", c.size, err)
			}
			if got := m.Header.Get("Flowgate-Reason"); got != c.reason {
				t.Errorf("subject of %d bytes: %q %s", c.size, got, m.Data)
			}
		}
		if s := r.state(); s.Msgs != 1 {
			t.Errorf("stored %d", s.Msgs)
		}
		if n := r.receive.Stats().Reconnects + r.forward.Stats().Reconnects; n > 0 {
			t.Errorf("%d connections broke", n)
		}
	})
}

// An empty body and a Status header is how the broker speaks to consumers: a client
// library takes such a message for the consumer's end, again at every redelivery.
func TestStatusHeaderWithoutBody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		status := func(body string) error {
			h := nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}}
			_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "ingress.acme.t", Header: h, Data: []byte(body)})
			return err
		}
		wantNAK(t, status(""), 400, 60400)
		if err := status("x"); err != nil {
			t.Errorf("with a body: %v", err)
		}
		if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
			t.Errorf("without the header: %v", err)
		}
		// Whatever is stored, a consumer can read.
		c, err := r.gateway.CreateConsumer(t.Context(), "FLOWGATE", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(2, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range batch.Messages() {
			n++
		}
		if n != 2 || batch.Error() != nil {
			t.Errorf("a consumer read %d messages, %v", n, batch.Error())
		}
	})
}
