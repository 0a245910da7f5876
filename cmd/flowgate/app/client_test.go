package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/client"
	"github.com/flowgate/flowgate/internal/bubble"
)

// patient is a producer with flowgate's own client.
func (r *running) patient(cfg client.Config) *client.Client {
	r.t.Helper()
	_, js := r.client()
	c, err := client.New(js, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return c
}

// tries counts the messages that the door decided on.
func (r *running) tries() (admitted, refused float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "flowgate_ingress_messages_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				switch l.GetValue() {
				case "admitted":
					admitted += m.GetCounter().GetValue()
				case "refused":
					refused += m.GetCounter().GetValue()
				}
			}
		}
	}
	return admitted, refused
}

// Fifty at once under a limit of ten a second: all are stored, in the time that the
// limit needs, at their first or second try.
func TestClientUnderALimit(t *testing.T) {
	for _, limit := range []string{"token-bucket:10/s", "gcra:10/s,burst=1", "sliding-window:10/s", "fixed-window:10/s", "sliding-window-log:10/s"} {
		t.Run(limit, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := start(t, "FLOWGATE_LIMIT_TENANT="+limit, "FLOWGATE_SHAPER_RATE=unlimited")
				c := r.patient(client.Config{})
				began := time.Now()
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						if ack, err := c.Publish(t.Context(), "acme", "orders", fmt.Appendf(nil, "%d", i)); err != nil || ack.Duplicate {
							t.Errorf("%+v, %v", ack, err)
						}
					})
				}
				all.Wait()
				took := time.Since(began)
				admitted, refused := r.tries()
				t.Logf("50 stored in %s, %v refused", took, refused)
				if took < 3900*time.Millisecond || took > 6*time.Second {
					t.Errorf("took %s; the limit needs 4 to 5 s", took)
				}
				if admitted != 50 || refused > 60 {
					t.Errorf("%v admitted, %v refused", admitted, refused)
				}
				r.drained(50)
			})
		})
	}
}

// drained waits until so many messages were delivered, each once.
func (r *running) drained(n int) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Minute); len(r.sink.log()) < n && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	payloads := map[string]int{}
	for _, d := range r.sink.log() {
		payloads[string(d.Payload)]++
	}
	if len(payloads) != n || len(r.sink.log()) != n {
		r.t.Errorf("%d deliveries of %d messages, want %d", len(r.sink.log()), len(payloads), n)
	}
}

// Four clients share a limit that none knows to be shared: they find their parts. At the
// full pace each they would be refused over 1,300 times.
func TestClientsThatShareALimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:20/s", "FLOWGATE_SHAPER_RATE=unlimited")
		var all sync.WaitGroup
		began := time.Now()
		for n := range 4 {
			c := r.patient(client.Config{})
			for i := range 100 {
				all.Go(func() {
					if _, err := c.Publish(t.Context(), "acme", "orders", fmt.Appendf(nil, "%d %d", n, i)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		_, refused := r.tries()
		t.Logf("400 stored in %s, %v refused", time.Since(began), refused)
		if took := time.Since(began); took > 40*time.Second || refused > 900 {
			t.Errorf("took %s with %v refused; the limit needs 19 s", took, refused)
		}
		r.drained(400)
	})
}

// What a context has no time for is returned at once, with both reasons.
func TestClientDoesNotWaitInVain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:1/m")
		c := r.patient(client.Config{})
		if _, err := c.Publish(t.Context(), "acme", "orders", nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Publish(ctx, "acme", "orders", nil)
		refused, ok := errors.AsType[*client.Refused](err)
		if !ok || !errors.Is(err, client.ErrRateLimited) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrBacklog) {
			t.Fatalf("%v", err)
		}
		if refused.Scope != "tenant" || refused.Key != "acme" || refused.Limit != "token-bucket:1/m" || refused.RetryAfter < 59*time.Second || refused.ErrCode != 60429 {
			t.Errorf("%+v", refused)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it waited %s of a minute", took)
		}
		// One that can wait, and is called back.
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		_, err = c.Publish(ctx, "acme", "orders", nil)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrRateLimited) {
			t.Errorf("%v", err)
		}
		// Nobody's turn is lost through those who gave up.
		if _, err := c.Publish(t.Context(), "acme", "orders", nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 61*time.Second {
			t.Errorf("after %s; the limit needs 60 s", took)
		}
	})
}

// What waiting cannot help comes back after one try.
func TestClientKnowsWhatIsFinal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_INGRESS_TENANTS=acme", "FLOWGATE_INGRESS_MAX_PAYLOAD=1KiB", "FLOWGATE_LIMIT_TENANT=token-bucket:10/s")
		c := r.patient(client.Config{})
		header := func(k, v string) *nats.Msg {
			return &nats.Msg{Subject: c.Subject("acme", "orders"), Header: nats.Header{k: {v}}}
		}
		for _, x := range []struct {
			m    *nats.Msg
			want client.Reason
		}{
			{&nats.Msg{Subject: c.Subject("globex", "orders")}, client.ErrForbidden},
			{&nats.Msg{Subject: c.Subject("acme", "orders"), Data: make([]byte, 2000)}, client.ErrTooLarge},
			{header("Nats-Rollup", "all"), client.ErrInvalid},
			{header("Flowgate-Cost", "1000"), client.ErrRateLimited},
		} {
			began := time.Now()
			_, err := c.PublishMsg(t.Context(), x.m)
			r, ok := errors.AsType[*client.Refused](err)
			if !ok || r.Reason != x.want || r.RetryAfter != client.NoRetry || time.Since(began) > time.Second {
				t.Errorf("want %s: %v", x.want, err)
			}
			if len(x.m.Header[jetstream.MsgIDHeader]) != 0 {
				t.Error("the caller's message was changed")
			}
		}
		if _, refused := r.tries(); refused != 4 {
			t.Errorf("%v tries for four messages", refused)
		}
	})
}

// The backlog is full: everything is stored in the time that the consumer needs for it,
// and nothing twice.
func TestClientUnderBackpressure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_SHAPER_RATE=50/s", "FLOWGATE_LIMIT_TENANT=unlimited")
		c := r.patient(client.Config{})
		const n = 1000
		began := time.Now()
		var futures []*client.Future
		for i := range n {
			futures = append(futures, c.PublishMsgAsync(t.Context(), &nats.Msg{Subject: c.Subject("acme", "orders"), Data: fmt.Appendf(nil, "%d", i)}))
		}
		for _, f := range futures {
			if _, err := f.Result(); err != nil {
				t.Error(err)
			}
		}
		_, refused := r.tries()
		t.Logf("%d stored in %s, %v refused", n, time.Since(began), refused)
		if refused > n { // a slot is kept for each
			t.Errorf("%v refusals of %d messages", refused, n)
		}
		r.drained(n)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%d messages at 50/s took %s", n, took)
		}
	})
}

// firstTries publishes n messages that have no time to wait for a hint.
func firstTries(r *running, c *client.Client, tenant string, n int, within time.Duration) (stored int, all []error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	var futures []*client.Future
	for range n {
		futures = append(futures, c.PublishMsgAsync(ctx, &nats.Msg{Subject: c.Subject(tenant, "orders")}))
	}
	for _, f := range futures {
		if _, err := f.Result(); err == nil {
			stored++
		} else {
			all = append(all, err)
		}
	}
	return stored, all
}

// Told that the backlog is full, a client asks no faster than the backlog drains; a
// silent or a forged broadcast has no hold on it.
func TestClientSlowsDownBeforeItIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_LOW=10", "FLOWGATE_SHAPER_RATE=10/s", "FLOWGATE_LIMIT_TENANT=unlimited")
		_, js := r.client()
		for { // until it is full
			if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err != nil {
				break
			}
		}
		listening, deaf := r.patient(client.Config{}), r.patient(client.Config{Quiet: true})
		time.Sleep(2 * time.Second)
		_, before := r.tries()
		stored, errs := firstTries(r, listening, "acme", 200, 3*time.Second)
		_, after := r.tries()
		if stored != 0 || after-before < 10 || after-before > 60 {
			t.Errorf("%d stored, %v asked in 3 s at 10/s", stored, after-before)
		}
		for _, err := range errs {
			if !errors.Is(err, client.ErrBacklog) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		firstTries(r, deaf, "acme", 200, 3*time.Second)
		if _, now := r.tries(); now-after != 200 {
			t.Errorf("who does not listen asked %v times with 200 messages", now-after)
		}
	})
}

// A gateway that is gone, however pressured it was, leaves no one slowed down.
func TestClientForgetsAVanishedGateway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := bubble.Server(t)
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"ingress.>"}}); err != nil {
			t.Fatal(err)
		}
		c, err := client.New(js, client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		tell := func(body string) {
			if err := nc.Publish("flowgate.pressure", []byte(body)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		// how long 30 messages take
		takes := func(tenant string) time.Duration {
			began := time.Now()
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() {
					if _, err := c.Publish(t.Context(), tenant, "orders", nil); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			return time.Since(began)
		}
		const full = `{"type":"io.flowgate.v1.pressure","level":"pressured","hint":{"retry_after_ms":60000},"rate":{"effective":2}`
		tell(full + `}`)
		if d := takes("acme"); d < 2*time.Second || d > 4*time.Second {
			t.Errorf("it was told once, and heard nothing for 3 s: took %s", d)
		}
		if d := takes("acme"); d > time.Second {
			t.Errorf("what is stale slowed it down: %s", d)
		}
		tell(full + `,"over_part":["globex"]}`)
		if d := takes("acme"); d > time.Second {
			t.Errorf("the hint was for others: %s", d)
		}
		if d := takes("globex"); d < 2*time.Second {
			t.Errorf("the hint was for it: %s", d)
		}
		tell(full + `}`)
		time.AfterFunc(time.Second, func() {
			_ = nc.Publish("flowgate.pressure", []byte(`{"type":"io.flowgate.v1.pressure","level":"normal","rate":{}}`))
		})
		if d := takes("acme"); d < 900*time.Millisecond || d > 1500*time.Millisecond {
			t.Errorf("it was over after 1 s: %s", d)
		}
		for _, nonsense := range []string{``, `null`, `{"type":"x","hint":{}}`, `{"type":"io.flowgate.v1.pressure","hint":7}`, `{"type":"io.flowgate.v1.pressure","hint":{},"rate":{"effective":-1},"over_part":{}}`} {
			tell(nonsense)
			if d := takes("acme"); d > time.Second {
				t.Errorf("%s slowed it down: %s", nonsense, d)
			}
		}
	})
}

// A takeover: nobody is there for a while, and a store that says no in its own words.
func TestClientOutlastsAnAbsence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := bubble.Server(t)
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(js, client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Publish(ctx, "acme", "orders", nil); !errors.Is(err, nats.ErrNoResponders) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with nobody there: %v", err)
		}
		one := jetstream.StreamConfig{Name: "S", Subjects: []string{"ingress.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew}
		time.AfterFunc(3*time.Second, func() { _, _ = js.CreateStream(context.Background(), one) })
		if ack, err := c.Publish(t.Context(), "acme", "orders", nil); err != nil || ack.Sequence != 1 {
			t.Errorf("%+v, %v", ack, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err = c.Publish(ctx, "acme", "orders", nil)
		if r, ok := errors.AsType[*client.Refused](err); !ok || r.ErrCode != 10077 || !errors.Is(err, client.ErrBroker) || time.Since(began) < 50*time.Second {
			t.Errorf("the broker's own refusal, after %s: %v", time.Since(began), err)
		}
		one.MaxMsgs = 10
		time.AfterFunc(20*time.Second, func() { _, _ = js.UpdateStream(context.Background(), one) })
		if _, err := c.Publish(t.Context(), "acme", "orders", nil); err != nil {
			t.Error(err)
		}
		// Closing gives up what is under way.
		if err := js.DeleteStream(t.Context(), "S"); err != nil {
			t.Fatal(err)
		}
		f := c.PublishMsgAsync(t.Context(), &nats.Msg{Subject: c.Subject("acme", "orders")})
		time.Sleep(time.Second)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Result(); !errors.Is(err, client.ErrClosed) || !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("closed: %v", err)
		}
		if _, err := c.Publish(t.Context(), "acme", "orders", nil); !errors.Is(err, client.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// An answer that was lost: the message is sent again under its id and stored once.
func TestClientRepeatsUnderOneID(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := bubble.Server(t)
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		ids := map[string]int{}
		if _, err := nc.Subscribe("ingress.>", func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			id := m.Header.Get(jetstream.MsgIDHeader)
			switch ids[id]++; ids[id] {
			case 1: // no answer
			case 2:
				_ = m.Respond([]byte(`{"error":{"code":503,"err_code":60505,"description":"x"},"reason":"overloaded","retry_after_ms":100}`))
			case 3:
				_ = m.Respond([]byte(`{"error":{"code":503,"err_code":60504,"description":"x"},"reason":"draining","retry_after_ms":0}`))
			default:
				_ = m.Respond([]byte(`{"stream":"S","seq":1}`))
			}
		}); err != nil {
			t.Fatal(err)
		}
		c, err := client.New(js, client.Config{MaxInFlight: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		first := c.PublishMsgAsync(t.Context(), &nats.Msg{Subject: c.Subject("acme", "orders"), Header: nats.Header{jetstream.MsgIDHeader: {"mine"}}})
		synctest.Wait()
		// There is room for one.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Publish(ctx, "acme", "orders", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := first.Result(); err != nil {
			t.Error(err)
		}
		if _, err := c.Publish(t.Context(), "acme", "orders", nil); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(ids) != 2 || ids["mine"] != 4 {
			t.Errorf("ids and how often they came: %v", ids)
		}
	})
}

// A limit that was raised is found out, also by those who wait by the old one.
func TestClientNoticesARaisedLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:1/m", "FLOWGATE_SHAPER_RATE=unlimited")
		c := r.patient(client.Config{})
		var futures []*client.Future
		for range 50 {
			futures = append(futures, c.PublishMsgAsync(t.Context(), &nats.Msg{Subject: c.Subject("acme", "orders")}))
		}
		time.Sleep(10 * time.Second)
		if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/acme", `{"limit":"token-bucket:1000/s"}`); code >= 300 {
			t.Fatal(body)
		}
		began := time.Now()
		for _, f := range futures {
			if _, err := f.Result(); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("took %s; they were told to wait a minute, and by the old limit it is 49", took)
		}
	})
}

// The same as a Watermill publisher.
func TestClientAsWatermillPublisher(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:10/s", "FLOWGATE_SHAPER_RATE=unlimited")
		_, js := r.client()
		p, err := client.NewPublisher(js, client.PublisherConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var ms []*message.Message
		for i := range 30 {
			m := message.NewMessage(fmt.Sprintf("id-%d", i), fmt.Appendf(nil, "%d", i))
			m.Metadata.Set("Color", "blue")
			ms = append(ms, m)
		}
		if err := p.Publish("acme.orders.new", ms...); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish("acme.orders.new", ms[:5]...); err != nil { // again
			t.Fatal(err)
		}
		r.drained(30)
		for _, d := range r.sink.log() {
			// Stored in their order.
			if d.ID != fmt.Sprintf("acme/id-%d", d.Seq-1) || d.Topic != "orders.new" || d.Headers["Color"][0] != "blue" {
				t.Errorf("%+v", d)
			}
		}
		if err := p.Publish("orders", ms[0]); err == nil || !strings.Contains(err.Error(), "PublisherConfig.Subject") {
			t.Errorf("a topic without a tenant: %v", err)
		}
		bad := message.NewMessage("bad", nil)
		bad.Metadata.Set("Nats-Rollup", "all")
		if err := p.Publish("acme.orders", bad); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "message bad") {
			t.Errorf("%v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Publish("acme.orders", ms[0]); !errors.Is(err, client.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// An outage of the consumer: the producers wait as long as it lasts, and nothing is
// lost or repeated.
func TestClientOutlastsAnOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=50", "FLOWGATE_SHAPER_RATE=100/s")
		r.sink.answers(away)
		c := r.patient(client.Config{})
		var futures []*client.Future
		for i := range 300 {
			futures = append(futures, c.PublishMsgAsync(t.Context(), &nats.Msg{Subject: c.Subject("acme", "orders"), Data: fmt.Appendf(nil, "%d", i)}))
		}
		time.Sleep(3 * time.Minute)
		_, refused := r.tries()
		if refused > 250*10 { // each is told to wait as long again as it has lasted
			t.Errorf("%v refusals in three minutes with 250 waiting", refused)
		}
		r.sink.answers(nil)
		for _, f := range futures {
			if _, err := f.Result(); err != nil {
				t.Error(err)
			}
		}
		ids := delivered(r.sink.log())
		for end := time.Now().Add(time.Minute); len(ids) < 300 && time.Now().Before(end); time.Sleep(time.Second) {
			ids = delivered(r.sink.log())
		}
		if len(ids) != 300 {
			t.Errorf("%d of 300 were delivered", len(ids))
		}
	})
}
