package consumers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Subscriber is a Destination that is also a Watermill subscriber, so that a
// user's own handlers on Watermill's Router are what messages are delivered to,
// at the shaper's pace. An Ack is done; a Nack is a failed attempt.
//
// A message goes to one subscription of its topic, or of the topic "", which takes
// all. Where there are subscriptions and none of its topic, the attempt has failed;
// where there is none at all, nobody is there to take work.
type Subscriber struct {
	closed chan struct{}
	once   sync.Once
	feeds  sync.WaitGroup

	mu      sync.Mutex
	topics  map[string]*subscribed
	changed chan struct{} // closed when topics changes
}

// subscribed is a topic with subscriptions.
type subscribed struct {
	out           chan *offer
	subscriptions int
}

// offer is a message on its way to a subscription.
type offer struct {
	*message.Message
	taken    atomic.Bool   // a handler has it
	returned chan struct{} // the subscription ended before one took it
}

var (
	errSubscriberClosed = errors.New("the subscriber is closed")
	errReturned         = errors.New("the subscription ended before a handler took the message")
)

// NewSubscriber makes a destination that waits for subscriptions.
func NewSubscriber() *Subscriber {
	return &Subscriber{closed: make(chan struct{}), topics: map[string]*subscribed{}, changed: make(chan struct{})}
}

// Subscribe implements message.Subscriber. The topic is a message's without its
// tenant, which is in its metadata; "" is all topics.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return nil, fmt.Errorf("consumers: %w", errSubscriberClosed)
	default:
	}
	of := s.topics[topic]
	if of == nil {
		of = &subscribed{out: make(chan *offer)}
		s.topics[topic] = of
	}
	of.subscriptions++
	s.change()
	ch := make(chan *message.Message)
	s.feeds.Go(func() {
		s.feed(ctx, of.out, ch)
		s.unsubscribe(topic)
		close(ch)
	})
	return ch, nil
}

// change wakes those who wait for a subscription; with mu held.
func (s *Subscriber) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Subscriber) unsubscribe(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.topics[topic]
	if of.subscriptions--; of.subscriptions == 0 {
		delete(s.topics, topic)
	}
	s.change()
}

// feed hands messages to a subscription until it ends.
func (s *Subscriber) feed(ctx context.Context, in <-chan *offer, out chan<- *message.Message) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case m := <-in:
			select {
			case out <- m.Message:
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
	if err := s.offer(ctx, d.Topic, m); err != nil {
		return err
	}
	select {
	case <-m.Acked():
		return nil
	case <-m.Nacked():
		return errors.New("the handler refused the message")
	case <-m.returned:
		return Overloaded(0, errReturned)
	case <-ctx.Done():
		if !m.taken.Load() {
			return Overloaded(0, fmt.Errorf("no handler took the message: %w", ctx.Err()))
		}
		return fmt.Errorf("the handler did not end in time: %w", ctx.Err())
	}
}

// offer hands a message to a subscription as soon as one takes it.
func (s *Subscriber) offer(ctx context.Context, topic string, m *offer) error {
	for {
		var exact, every chan *offer // nil: none, and never ready
		s.mu.Lock()
		if of := s.topics[topic]; of != nil {
			exact = of.out
		}
		if of := s.topics[""]; of != nil {
			every = of.out
		}
		others, changed := len(s.topics), s.changed
		s.mu.Unlock()
		if exact == nil && every == nil && others > 0 {
			return fmt.Errorf("no handler subscribes to the topic %q", topic)
		}
		select {
		case exact <- m:
			return nil
		case every <- m:
			return nil
		case <-changed:
		case <-ctx.Done():
			return Overloaded(0, fmt.Errorf("no handler took the message: %w", ctx.Err()))
		case <-s.closed:
			return Overloaded(0, errSubscriberClosed)
		}
	}
}

// Close ends every subscription.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.once.Do(func() { close(s.closed) })
	s.mu.Unlock()
	s.feeds.Wait()
	return nil
}
