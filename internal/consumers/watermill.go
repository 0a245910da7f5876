package consumers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// watermillMessage is a delivery in Watermill's form. Metadata has one value a
// key: a header's first.
func watermillMessage(ctx context.Context, d Delivery) *message.Message {
	m := message.NewMessage(d.ID, d.Payload)
	for k, vs := range d.Headers {
		if len(vs) > 0 {
			m.Metadata.Set(k, vs[0])
		}
	}
	m.Metadata.Set(IDHeader, d.ID)
	m.Metadata.Set(tenantHeader, d.Tenant)
	m.Metadata.Set(topicHeader, d.Topic)
	m.Metadata.Set(seqHeader, strconv.FormatUint(d.Seq, 10))
	m.Metadata.Set(attemptHeader, strconv.Itoa(d.Attempt))
	m.Metadata.Set(admittedHeader, d.AdmittedAt.UTC().Format(time.RFC3339Nano))
	m.SetContext(ctx)
	return m
}

// Publisher is a Destination that is any Watermill publisher: one message a
// delivery, published to the topic that the function gives.
type Publisher struct {
	pub   message.Publisher
	topic func(Delivery) string
}

// NewPublisher makes a destination of pub.
func NewPublisher(pub message.Publisher, topic func(Delivery) string) *Publisher {
	return &Publisher{pub: pub, topic: topic}
}

// Deliver implements Destination. Publishers take no context: one that hangs holds
// its delivery, and the shaper's concurrency bounds how many.
func (p *Publisher) Deliver(ctx context.Context, batch []Delivery) []error {
	verdicts := make([]error, len(batch))
	for i, d := range batch {
		if err := ctx.Err(); err != nil {
			verdicts[i] = Overloaded(0, fmt.Errorf("not published in time: %w", err))
			continue
		}
		if err := p.pub.Publish(p.topic(d), watermillMessage(ctx, d)); err != nil {
			verdicts[i] = fmt.Errorf("publish: %w", err)
		}
	}
	return verdicts
}

// Close closes the publisher.
func (p *Publisher) Close() error { return p.pub.Close() }
