package consumers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/go-cmp/cmp"
)

func byTenant(d Delivery) string { return "messages." + d.Tenant }

func TestPublisher(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
	published, err := pubsub.Subscribe(t.Context(), "messages.acme")
	if err != nil {
		t.Fatal(err)
	}
	p := NewPublisher(pubsub, byTenant)
	batch := deliveries(3)
	batch[0].Attempt = 2
	batch[0].Payload = []byte("\x00\xff")
	batch[0].Headers = map[string][]string{"Content-Type": {"text/plain"}, "Many": {"first", "second"}, "None": {}, "Flowgate-Tenant": {"globex"}, "traceparent": {"00-1-2-3"}, "tracestate": {"a=1"}}
	batch[1].Tenant = "globex" // another topic, to which nobody listens
	wantKinds(t, p.Deliver(t.Context(), batch), Done, Done, Done)

	got := map[string]*message.Message{}
	for range 2 {
		m := <-published
		m.Ack()
		got[m.UUID] = m
	}
	m := got["acme/1"]
	if m == nil || got["acme/3"] == nil {
		t.Fatalf("published %v, want acme/1 and acme/3", got)
	}
	if string(m.Payload) != "\x00\xff" {
		t.Errorf("payload %q", m.Payload)
	}
	if diff := cmp.Diff(message.Metadata{
		"Content-Type": "text/plain", "Many": "first", "traceparent": "00-1-2-3", "tracestate": "a=1",
		"Flowgate-Id": "acme/1", "Flowgate-Tenant": "acme", "Flowgate-Topic": "orders.new", "Flowgate-Seq": "1", "Flowgate-Attempt": "2",
		"Flowgate-Admitted-At": "2026-11-12T13:14:15.161718Z",
	}, m.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}

	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, deliver(t, p, aDelivery(4), Retry), "publish", "closed")
}

// publish is a publisher that is a function.
type publish func(topic string, m *message.Message) error

func (f publish) Publish(topic string, ms ...*message.Message) error {
	for _, m := range ms {
		if err := f(topic, m); err != nil {
			return err
		}
	}
	return nil
}

func (publish) Close() error { return errors.New("closing failed") }

func TestPublisherVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPublisher(publish(func(topic string, m *message.Message) error {
			switch {
			case strings.HasSuffix(topic, "bad"):
				return errors.New("refused " + m.UUID)
			case strings.HasSuffix(topic, "down"): // a publisher of ours may give a verdict
				return Overloaded(time.Minute, errors.New("down"))
			case strings.HasSuffix(topic, "slow"):
				time.Sleep(6 * time.Second)
			}
			return m.Context().Err()
		}), byTenant)
		batch := deliveries(4)
		batch[1].Tenant, batch[2].Tenant = "bad", "down"
		answers := p.Deliver(t.Context(), batch)
		wantKinds(t, answers, Done, Retry, Overload, Done)
		wantError(t, answers[1], "publish", "refused acme/2")
		if v := Judge(answers[2]); v.Wait != time.Minute {
			t.Errorf("the pause asked for became %s", v.Wait)
		}

		// Publishers know no deadline: what was not begun by then is not begun.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for i := range batch {
			batch[i].Tenant = "slow"
		}
		began := time.Now()
		wantKinds(t, p.Deliver(ctx, batch), Done, Retry, Overload, Overload)
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("it took %s, want the two that were begun, 12s", took)
		}
		wantError(t, p.Close(), "closing failed")
	})
}
