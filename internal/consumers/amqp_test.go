//go:build !noamqp

package consumers

import (
	"context"
	"strings"
	"testing"
	"time"

	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/flowgate/flowgate/internal/consumers/brokertest"
)

// operator makes queues and exchanges; it connects anew each time.
func operator(t *testing.T, b *brokertest.Broker, do func(*amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err == nil {
		err = do(ch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func queue(t *testing.T, b *brokertest.Broker, name string, arguments amqp.Table) {
	t.Helper()
	operator(t, b, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, arguments)
		return err
	})
}

// drain takes what a queue has, as Watermill's subscriber reads it.
func drain(t *testing.T, b *brokertest.Broker, queue string) (ms []*message.Message) {
	t.Helper()
	operator(t, b, func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return err
			}
			m, err := watermillamqp.DefaultMarshaler{}.Unmarshal(d)
			if err != nil {
				return err
			}
			if d.MessageId != m.UUID {
				t.Errorf("message id %q, want %q", d.MessageId, m.UUID)
			}
			ms = append(ms, m)
		}
	})
	return ms
}

func ids(ms []*message.Message) string {
	var all []string
	for _, m := range ms {
		all = append(all, m.UUID)
	}
	return strings.Join(all, " ")
}

func TestAMQP(t *testing.T) {
	leavesNothing(t)
	rabbit := brokertest.RabbitMQ(t)
	t.Run("queue", func(t *testing.T) {
		b := openBroker(t, rabbit.URL(), func(c *Config) { c.Batch = 10 })
		wantError(t, b.Ping(t.Context()), "amqp", "NOT_FOUND", "flowgate")
		// Nothing is lost where nobody takes it; and it is everybody's trouble.
		wantError(t, deliver(t, b, aDelivery(9), Overload), "no queue takes it", "flowgate")
		queue(t, rabbit, "flowgate", nil)
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		batch := of("acme", "globex", "acme", "acme")
		batch[0].Headers = map[string][]string{"Content-Type": {"text/plain"}}
		batch[0].Payload = []byte("\x00\xff")
		wantKinds(t, b.Deliver(t.Context(), batch), Done, Done, Done, Done)
		var acme []*message.Message
		for _, m := range drain(t, rabbit, "flowgate") {
			if m.Metadata.Get("Flowgate-Tenant") == "acme" {
				acme = append(acme, m)
			}
		}
		if got := ids(acme); got != "acme/1 acme/3 acme/4" {
			t.Fatalf("acme's are %s", got)
		}
		want := message.Metadata{
			"Content-Type": "text/plain", "Flowgate-Id": "acme/1", "Flowgate-Tenant": "acme", "Flowgate-Topic": "orders.new",
			"Flowgate-Seq": "1", "Flowgate-Attempt": "1", "Flowgate-Admitted-At": "2026-11-12T13:14:15.161718Z",
		}
		if diff := cmp.Diff(want, acme[0].Metadata); diff != "" || string(acme[0].Payload) != "\x00\xff" {
			t.Errorf("payload %q, headers (-want +got):\n%s", acme[0].Payload, diff)
		}
	})
	t.Run("exchange", func(t *testing.T) {
		b := openBroker(t, rabbit.URL()+"/?exchange=orders", nil)
		wantError(t, deliver(t, b, aDelivery(1), Overload), "NOT_FOUND", "orders")
		operator(t, rabbit, func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare("orders", "topic", true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare("new", true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind("new", "acme.orders.#", "orders", false, nil)
		})
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		deliver(t, b, aDelivery(1), Done)
		stray := aDelivery(2)
		stray.Topic = "else" // no reason to hold up the others
		wantError(t, deliver(t, b, stray, Retry), "no queue takes it", "acme.else")
		stray.Topic = strings.Repeat("x", 300)
		wantError(t, deliver(t, b, stray, Reject), "no AMQP name")
		if got := ids(drain(t, rabbit, "new")); got != "acme/1" {
			t.Errorf("the queue has %s", got)
		}
	})
	t.Run("too large", func(t *testing.T) {
		queue(t, rabbit, "large", nil)
		b := openBroker(t, rabbit.URL()+"/?queue=large", nil)
		large := aDelivery(1)
		large.Payload = make([]byte, 1<<20+1) // over max_message_size
		wantError(t, deliver(t, b, large, Reject), "size")
		name := aDelivery(2)
		name.Headers = map[string][]string{strings.Repeat("n", 256): {"x"}}
		wantError(t, deliver(t, b, name, Reject), "name of 256 bytes")
		wide := aDelivery(3)
		wide.Headers = map[string][]string{"X": {strings.Repeat("x", 131_072)}}
		wantError(t, deliver(t, b, wide, Reject), "frame_max")
		wide.Headers["X"][0] = strings.Repeat("x", 127_000)
		deliver(t, b, wide, Done)
		deliver(t, b, aDelivery(4), Done) // the connection is as good as before
	})
	t.Run("full", func(t *testing.T) {
		queue(t, rabbit, "full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
		b := openBroker(t, rabbit.URL()+"/?queue=full", nil)
		deliver(t, b, aDelivery(1), Done)
		wantError(t, deliver(t, b, aDelivery(2), Overload), "refused the message")
		drain(t, rabbit, "full")
		deliver(t, b, aDelivery(2), Done)
	})
	t.Run("sign in", func(t *testing.T) {
		b := openBroker(t, strings.Replace(rabbit.URL(), "guest:guest", "guest:wr0ng", 1), nil)
		if err := deliver(t, b, aDelivery(1), Overload); strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the error shows the password: %v", err)
		}
		b = openBroker(t, rabbit.URL()+"/nowhere", nil)
		deliver(t, b, aDelivery(1), Overload)
		authority, server := certificates(t)
		queue(t, rabbit, "secret", nil)
		secure := "amqps://guest:guest@" + tlsBefore(t, rabbit.Addr(), server) + "/?queue=secret"
		deliver(t, openBroker(t, secure+"&ca="+authority, nil), aDelivery(1), Done)
		deliver(t, openBroker(t, secure, nil), aDelivery(2), Overload)
	})
	t.Run("outage", func(t *testing.T) {
		queue(t, rabbit, "outage", nil)
		b := openBroker(t, rabbit.URL()+"/?queue=outage", func(c *Config) { c.Timeout = 5 * time.Second })
		deliver(t, b, aDelivery(1), Done)
		rabbit.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		wantKinds(t, b.Deliver(ctx, of("a", "b", "a")), Overload, Overload, Overload)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a broker that hangs held the delivery for %s", took)
		}
		cancel()
		rabbit.Thaw()
		soon(t, "a message is delivered", func() bool { return b.Deliver(t.Context(), deliveries(1))[0] == nil })
		rabbit.Kill()
		deliver(t, b, aDelivery(2), Overload)
		wantError(t, b.Ping(t.Context()), "connect")
		rabbit.Start()
		deliver(t, b, aDelivery(3), Done)
		// What was done before the crash is there: persistent, in a durable queue.
		found := ids(drain(t, rabbit, "outage"))
		for _, id := range []string{"acme/1", "acme/3"} {
			if !strings.Contains(found, id) {
				t.Errorf("%s is not among %s", id, found)
			}
		}
	})
	t.Run("close while it hangs", func(t *testing.T) {
		b := openBroker(t, "amqp://"+silent(t), func(c *Config) { c.Timeout = time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wantKinds(t, b.Deliver(ctx, of("a", "b")), Overload, Overload)
	})
}
