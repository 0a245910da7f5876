package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go"
)

// watermillPeer is a router with its Throttle on the same work queue.
type watermillPeer struct {
	workQueue
	publisher *wnats.Publisher
	router    *message.Router
	ended     chan error
}

func (p *watermillPeer) Start(ctx context.Context, s setup) error {
	if err := p.open(ctx, s); err != nil {
		return err
	}
	log := watermill.NopLogger{}
	var err error
	if p.publisher, err = wnats.NewPublisher(wnats.PublisherConfig{URL: p.server.ClientURL()}, log); err != nil {
		return err
	}
	subscriber, err := wnats.NewSubscriber(wnats.SubscriberConfig{
		URL: p.server.ClientURL(), QueueGroupPrefix: "worker", SubscribersCount: s.Workers,
		CloseTimeout: time.Second, AckWaitTimeout: ackWait, NakDelay: wnats.NewStaticDelay(retryAfter),
		JetStream: wnats.JetStreamConfig{
			DurablePrefix: "worker", AckAsync: true,
			SubscribeOptions: []nats.SubOpt{nats.ManualAck(), nats.AckExplicit(), nats.AckWait(ackWait), nats.MaxAckPending(s.Ahead), nats.DeliverAll()},
		},
	}, log)
	if err != nil {
		return err
	}
	if p.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, log); err != nil {
		return err
	}
	if s.Rate > 0 {
		p.router.AddMiddleware(middleware.NewThrottle(int64(s.Rate), time.Second).Middleware)
	}
	p.router.AddConsumerHandler("database", "work.>", subscriber, func(m *message.Message) error { return s.Write(m.Context(), m.Payload) })
	p.ended = make(chan error, 1)
	go func() { p.ended <- p.router.Run(ctx) }()
	select {
	case err := <-p.ended:
		return err
	case <-p.router.Running():
		return nil
	}
}

func (p *watermillPeer) Publish(ctx context.Context, tenant string, payload []byte) error {
	m := message.NewMessage(watermill.NewShortUUID(), payload)
	m.SetContext(ctx)
	return p.publisher.Publish("work."+tenant, m)
}

func (p *watermillPeer) Close() error {
	var err error
	if p.router != nil {
		err = errors.Join(p.router.Close(), <-p.ended)
	}
	if p.publisher != nil {
		err = errors.Join(err, p.publisher.Close())
	}
	p.close()
	return err
}
