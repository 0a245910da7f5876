package consumers_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/client"
	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
)

// suiteTenant is whose messages the suite's are.
const suiteTenant = "suite"

// TestWatermillSuite runs Watermill's own suite with a gateway between the client's
// Publisher and the outlet's Subscriber.
func TestWatermillSuite(t *testing.T) {
	gate := startGate(t)
	tests.TestPubSub(t, tests.Features{
		// A message goes to one of its topic's subscriptions: there is one group.
		ConsumerGroups: false,
		// A message whose handler did not end in time comes again.
		ExactlyOnceDelivery: false,
		// Deliveries run beside each other, and one tried again steps aside.
		GuaranteedOrder: false,
		// The broker has what is published until it is acknowledged.
		Persistent: true,
		// What is acknowledged leaves the work queue.
		NewSubscriberReceivesOldMessages: false,
		// A gateway's outlet is one for all subscriptions: a multitude of subscribers,
		// each with an outlet, is not what there is.
		RequireSingleInstance: true,
		// RestartServiceCommand is for brokers that are services; reconnects have tests
		// of their own.
		// Few messages: whoever subscribes late has them all tried again and again.
		ForceShort: true,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		return gate.publisher(t), gate.subscriber()
	}, nil)
}

// gate is a gateway that delivers to a Subscriber.
type gate struct {
	app *app.App
	sub *consumers.Subscriber
}

// unprefixed gives a message the id that its publisher gave it. A gateway's ids have
// the tenant before them, since tenants share it; and the suite publishes one id to
// several topics, so the topic is before it too.
type unprefixed struct{ consumers.Destination }

func (u unprefixed) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	mine := make([]consumers.Delivery, len(batch))
	for i, d := range batch {
		d.ID = d.ID[strings.LastIndexByte(d.ID, '/')+1:]
		mine[i] = d
	}
	return u.Destination.Deliver(ctx, mine)
}

func startGate(t *testing.T) *gate {
	t.Helper()
	cfg, err := settings.Load([]string{
		"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=unlimited", "FLOWGATE_CONSUMER_CONCURRENCY=512",
		"FLOWGATE_CONSUMER_MAX_ATTEMPTS=1000000", "FLOWGATE_CONSUMER_BACKOFF=100ms", "FLOWGATE_CONSUMER_BACKOFF_MAX=500ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{sub: consumers.NewSubscriber()}
	if g.app, err = app.New(app.Options{Config: cfg, Destination: unprefixed{g.sub}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.app.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := g.sub.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-g.app.Ready():
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the gateway is not ready")
	}
	return g
}

// publisher is flowgate's own client. The suite publishes one id to several topics.
func (g *gate) publisher(t *testing.T) message.Publisher {
	t.Helper()
	nc, err := g.app.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := client.NewPublisher(js, client.PublisherConfig{
		Subject: func(topic string) string { return suiteTenant + "." + topic },
		ID:      func(topic string, m *message.Message) string { return topic + "/" + m.UUID },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// share is a part of the gateway's Subscriber that closes by itself: the suite closes
// one and goes on with another on the same broker.
type share struct {
	gate  *gate
	ended context.Context
	end   context.CancelFunc

	mu  sync.Mutex
	chs []<-chan *message.Message
}

func (g *gate) subscriber() message.Subscriber {
	ctx, end := context.WithCancel(context.Background())
	return &share{gate: g, ended: ctx, end: end}
}

// Subscribe implements message.Subscriber.
func (s *share) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.ended, cancel)
	ch, err := s.gate.sub.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chs = append(s.chs, ch)
	return ch, nil
}

// Close implements message.Subscriber: when it returns, all its channels are closed. A
// message that is on its way into one then is refused, and comes again.
func (s *share) Close() error {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range s.chs {
		for m := range ch {
			m.Nack()
		}
	}
	return nil
}
