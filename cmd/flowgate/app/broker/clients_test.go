package broker

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

// forward does what the front door does with an admitted message: it goes to the
// backlog with the producer's own reply subject.
func forward(t *testing.T, nc *nats.Conn) {
	t.Helper()
	_, err := nc.QueueSubscribe("ingress.>", "flowgate", func(m *nats.Msg) {
		out := nats.NewMsg("flowgate.backlog." + strings.TrimPrefix(m.Subject, "ingress."))
		out.Reply, out.Header, out.Data = m.Reply, m.Header, m.Data
		if err := nc.PublishMsg(out); err != nil {
			t.Errorf("forward: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestUnmodifiedClientsPublish(t *testing.T) {
	b := listening(t)
	nc, js := gateway(t, b)
	if _, err := Ensure(t.Context(), js, testTopology()); err != nil {
		t.Fatal(err)
	}
	forward(t, nc)

	denied := make(chan error, 10)
	producer := client(t, b.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	pjs, err := jetstream.New(producer)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := pjs.Publish(t.Context(), "ingress.acme.orders", []byte("sync"))
	if err != nil || ack.Stream != "FLOWGATE" || ack.Sequence != 1 {
		t.Fatalf("publish: %+v, %v", ack, err)
	}
	future, err := pjs.PublishAsync("ingress.acme.orders", []byte("async"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case ack = <-future.Ok():
		if ack.Sequence != 2 {
			t.Errorf("async publish: %+v", ack)
		}
	case err := <-future.Err():
		t.Fatalf("async publish: %v", err)
	case <-time.After(5 * time.Second):
		t.Fatal("async publish: no answer")
	}
	old, err := producer.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := old.Publish("ingress.acme.orders", []byte("legacy")); err != nil || ack.Sequence != 3 {
		t.Errorf("legacy publish: %+v, %v", ack, err)
	}
	// A message as large as FLOWGATE_INGRESS_MAX_PAYLOAD allows has room for our
	// headers.
	if max := producer.MaxPayload(); max != 1<<20+64<<10 {
		t.Errorf("max_payload is %d", max)
	}
	select {
	case err := <-denied:
		t.Errorf("an ordinary client was refused: %v", err)
	default:
	}
}

func TestClientsMayNothingElse(t *testing.T) {
	b := listening(t)
	nc, js := gateway(t, b)
	if _, err := Ensure(t.Context(), js, testTopology()); err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 10)
	producer := client(t, b.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	refused := func(what string) {
		t.Helper()
		if err := producer.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(2 * time.Second):
			t.Errorf("%s was not refused", what)
		}
	}
	for _, subject := range []string{
		"flowgate.backlog.acme.orders", "flowgate.dlq.acme.orders", "flowgate.pressure", "flowgate.admin.status", "flowgate.admin.pause", "flowgate.admin.resume",
		"$JS.API.STREAM.LIST", "$JS.API.STREAM.DELETE.FLOWGATE", "$JS.API.CONSUMER.MSG.NEXT.FLOWGATE.shaper",
		"$JS.ACK.FLOWGATE.shaper.1.1.1.1.0", "$KV.FLOWGATE_STATE.lease", "$SYS.REQ.SERVER.PING",
		"ingress", "anything", "_INBOX.someone.else",
	} {
		if err := producer.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		refused("publish to " + subject)
	}
	for _, subject := range []string{
		"ingress.>", "ingress.acme.>", "flowgate.>", "flowgate.backlog.>", ">", "$SYS.>", "$JS.EVENT.>", "$KV.>", "$SRV.>",
	} {
		if _, err := producer.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		refused("subscribe to " + subject)
	}
	info, err := js.Stream(t.Context(), "FLOWGATE")
	if err != nil || info.CachedInfo().State.Msgs != 0 {
		t.Errorf("the backlog after all that: %+v, %v", info, err)
	}
	// What they may: hear the pressure.
	sub, err := producer.SubscribeSync("flowgate.pressure")
	if err != nil {
		t.Fatal(err)
	}
	if err := producer.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("flowgate.pressure", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(5 * time.Second); err != nil {
		t.Errorf("pressure: %v", err)
	}
	if len(denied) > 0 {
		t.Errorf("refused: %v", <-denied)
	}
}

// `nats micro list|info|stats` ask $SRV.PING, $SRV.INFO.<name> and $SRV.STATS.<name>.
func TestClientsFindTheMicroService(t *testing.T) {
	b := listening(t)
	nc, _ := gateway(t, b)
	service, err := micro.AddService(nc, micro.Config{Name: "flowgate", Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Stop() }()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	admin := client(t, b.ClientURL())
	for _, subject := range []string{"$SRV.PING", "$SRV.PING.flowgate", "$SRV.INFO.flowgate", "$SRV.STATS.flowgate"} {
		m, err := admin.Request(subject, nil, 5*time.Second)
		if err != nil {
			t.Errorf("%s: %v", subject, err)
			continue
		}
		var got struct{ Name, Version string }
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Name != "flowgate" || got.Version != "1.2.3" {
			t.Errorf("%s answers %s", subject, m.Data)
		}
	}
}

// With a consumer over NATS clients hear what it delivers, and with ?ack=reply reply to
// what they got, once. Nothing else opens.
func TestClientsOfAConsumerOverNATS(t *testing.T) {
	for name, replies := range map[string]time.Duration{"without replies": 0, "with replies": time.Minute} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			cfg.Listen, cfg.Deliveries, cfg.Replies = "127.0.0.1:0", "out.orders", replies
			b := start(t, cfg)
			nc, _ := gateway(t, b)
			receiver := client(t, b.ClientURL())
			allowed := func(what string, want bool, do func() error) {
				t.Helper()
				before := receiver.LastError()
				if err := do(); err != nil {
					t.Fatal(err)
				}
				if err := receiver.Flush(); err != nil {
					t.Fatal(err)
				}
				if got := receiver.LastError() == before; got != want {
					t.Errorf("%s: allowed is %v: %v", what, got, receiver.LastError())
				}
			}
			for subject, want := range map[string]bool{
				"out.orders.>": true, "out.orders.acme.>": true, "out.orders.*.new": true, "flowgate.pressure": true,
				"out.>": false, "out.orders": false, "out.other.>": false, ">": false, "ingress.>": false, "flowgate.>": false, "flowgate.inbox.>": false, "flowgate.backlog.>": false, "$JS.>": false,
			} {
				var sub *nats.Subscription
				allowed("subscribe to "+subject, want, func() (err error) { sub, err = receiver.SubscribeSync(subject); return err })
				_ = sub.Unsubscribe()
			}
			for _, subject := range []string{"out.orders.acme.new", "flowgate.inbox.x", "flowgate.backlog.acme.new", "flowgate.pressure", "$JS.API.STREAM.LIST", "_INBOX.x"} {
				allowed("publish to "+subject, false, func() error { return receiver.Publish(subject, nil) })
			}
			var sub *nats.Subscription
			allowed("subscribe", true, func() (err error) { sub, err = receiver.SubscribeSync("out.orders.>"); return err })
			inbox := nc.NewInbox()
			answers, err := nc.SubscribeSync(inbox)
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.PublishRequest("out.orders.acme.new", inbox, []byte("x")); err != nil {
				t.Fatal(err)
			}
			m, err := sub.NextMsg(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			allowed("the reply", replies > 0, func() error { return m.Respond([]byte("done")) })
			allowed("a second reply", false, func() error { return m.Respond([]byte("again")) })
			if replies > 0 {
				if got, err := answers.NextMsg(10 * time.Second); err != nil || string(got.Data) != "done" {
					t.Errorf("the reply: %+v, %v", got, err)
				}
			}
			// A reply subject that a client names itself gives it no right.
			allowed("a request", true, func() error { return receiver.PublishRequest("ingress.acme.new", "flowgate.backlog.acme.new", nil) })
			allowed("publish to its own reply subject", false, func() error { return receiver.Publish("flowgate.backlog.acme.new", nil) })
		})
	}
}
