package consumers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
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

// Subscriber is a Destination that is also a Watermill subscriber, so that a
// user's own handlers on Watermill's Router are what messages are delivered to,
// at the shaper's pace. An Ack is done; a Nack is a failed attempt.
type Subscriber struct {
	mu     sync.Mutex
	out    chan *offer
	closed chan struct{}
	once   sync.Once
	feeds  sync.WaitGroup
}

// offer is a message on its way to a subscription.
type offer struct {
	*message.Message
	taken    atomic.Bool   // a handler has it
	returned chan struct{} // the subscription ended before one took it
}

// NewSubscriber makes a destination that waits for one subscription.
func NewSubscriber() *Subscriber {
	return &Subscriber{out: make(chan *offer), closed: make(chan struct{})}
}

// Subscribe implements message.Subscriber. Every delivery goes to one of the
// subscriptions, whatever their topics; a delivery's own is in its metadata.
func (s *Subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return nil, errors.New("consumers: the subscriber is closed")
	default:
	}
	ch := make(chan *message.Message)
	s.feeds.Go(func() {
		defer close(ch)
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.closed:
				return
			case m := <-s.out:
				select {
				case ch <- m.Message:
					m.taken.Store(true)
				case <-m.Context().Done(): // the attempt is over
				case <-ctx.Done():
					close(m.returned)
					return
				case <-s.closed:
					close(m.returned)
					return
				}
			}
		}
	})
	return ch, nil
}

// Deliver implements Destination.
func (s *Subscriber) Deliver(ctx context.Context, batch []Delivery) []error {
	verdicts := make([]error, len(batch))
	for i, d := range batch {
		verdicts[i] = s.one(ctx, d)
	}
	return verdicts
}

func (s *Subscriber) one(ctx context.Context, d Delivery) error {
	mctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &offer{Message: watermillMessage(mctx, d), returned: make(chan struct{})}
	select {
	case s.out <- m:
	case <-ctx.Done():
		return Overloaded(0, fmt.Errorf("no handler took the message: %w", ctx.Err()))
	case <-s.closed:
		return Overloaded(0, errors.New("the subscriber is closed"))
	}
	select {
	case <-m.Acked():
		return nil
	case <-m.Nacked():
		return errors.New("the handler refused the message")
	case <-m.returned:
		return Overloaded(0, errors.New("the subscription ended before a handler took the message"))
	case <-ctx.Done():
		if !m.taken.Load() {
			return Overloaded(0, fmt.Errorf("no handler took the message: %w", ctx.Err()))
		}
		return fmt.Errorf("the handler did not end in time: %w", ctx.Err())
	}
}

// Close ends every subscription.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once.Do(func() { close(s.closed) })
	s.feeds.Wait()
	return nil
}
