package consumers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// broker is a Destination that is a message broker behind a Watermill publisher.
//
// Of a batch, each tenant's messages are published one after the other, each
// confirmed before the next, and tenants beside each other. One call of Publish has
// one message: no publisher sends several together, and of several it would not
// say which one failed.
//
// Publishers take no context. A lane is the right to call one: a call that does not
// come back keeps its lane and no more, so however long a broker hangs, there are
// never more of them than lanes, and Deliver returns when its time is over. A
// message that arrives after that is a repeat.
type broker struct {
	name  string
	pub   message.Publisher
	topic template
	judge func(err error) error // the verdict on a publish that failed
	ping  func(ctx context.Context) error
	order Order
	lanes chan struct{}
	calls sync.WaitGroup
}

// lanesMost bounds the calls at once to a broker.
const lanesMost = 256

// lanesOf is how many calls at once a configuration comes to: as many as deliveries,
// and a few for the tenants of each batch.
func lanesOf(cfg Config) int { return min(cfg.Concurrency*min(cfg.Batch, 8), lanesMost) }

// published is what became of one message of a batch.
type published struct {
	place   int
	verdict error
}

// Deliver implements Destination.
func (b *broker) Deliver(ctx context.Context, batch []Delivery) []error {
	verdicts := make([]error, len(batch))
	answers := make(chan published, len(batch)) // room for all: nobody may be there to take them
	waiting := len(batch)
	for i := range verdicts {
		verdicts[i] = errUnanswered
	}
start:
	for _, group := range tenants(batch) {
		select {
		case b.lanes <- struct{}{}:
		case <-ctx.Done():
			break start
		}
		b.calls.Go(func() {
			defer func() { <-b.lanes }()
			b.publish(ctx, batch, group, answers)
		})
	}
	for waiting > 0 {
		select {
		case a := <-answers:
			verdicts[a.place] = a.verdict
			waiting--
			continue
		default:
		}
		select {
		case a := <-answers:
			verdicts[a.place] = a.verdict
			waiting--
		case <-ctx.Done():
			for i, v := range verdicts {
				if v == errUnanswered {
					verdicts[i] = Overloaded(0, fmt.Errorf("%s: no confirmation in time: %w", b.name, ctx.Err()))
				}
			}
			return verdicts
		}
	}
	return verdicts
}

// errUnanswered stands for a verdict that is not there yet.
var errUnanswered = errors.New("unanswered")

// tenants are the places of a batch's messages by tenant, in order.
func tenants(batch []Delivery) [][]int {
	var groups [][]int
	of := map[string]int{}
	for i, d := range batch {
		g, ok := of[d.Tenant]
		if !ok {
			g = len(groups)
			of[d.Tenant] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// publish publishes a tenant's messages in order. After a fault of the broker the
// rest are not tried; nor after any that is to be tried again, where order holds.
func (b *broker) publish(ctx context.Context, batch []Delivery, group []int, answers chan<- published) {
	var stop error
	for _, i := range group {
		if ctx.Err() != nil {
			return // Deliver says what that means
		}
		verdict := stop
		if stop == nil {
			verdict = b.one(ctx, batch[i])
		}
		answers <- published{i, verdict}
		if stop != nil {
			continue
		}
		switch Judge(verdict).Kind {
		case Overload:
			stop = verdict
		case Retry:
			if b.order == OrderTenant {
				stop = Held(fmt.Errorf("%s: not published before %s", b.name, batch[i].ID))
			}
		}
	}
}

// one publishes a message and gives its verdict; a panic is its failure.
func (b *broker) one(ctx context.Context, d Delivery) (verdict error) {
	defer func() {
		if p := recover(); p != nil {
			verdict = fmt.Errorf("%s: the publisher panicked: %v", b.name, p)
		}
	}()
	topic := b.topic.of(d)
	if err := b.topic.valid(topic); err != nil {
		return Permanent(fmt.Errorf("%s: %q: %w", b.name, topic, err))
	}
	if err := b.pub.Publish(topic, watermillMessage(ctx, d)); err != nil {
		return b.judge(fmt.Errorf("%s: %w", b.name, err))
	}
	return nil
}

// Ping tells whether the broker can be reached, and has what is published to.
func (b *broker) Ping(ctx context.Context) error {
	if err := b.ping(ctx); err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}

// Close closes the publisher, and waits for what still runs.
func (b *broker) Close() error {
	err := b.pub.Close()
	b.calls.Wait()
	return err
}

// defaultName is the topic, queue or stream of a URL that names none. It is one for
// all tenants: those come as producers please, and a topic of each would have to be
// made by somebody.
const defaultName = "flowgate"

// absent is a scheme that this program was built without.
func absent(tag string, names ...string) scheme {
	err := fmt.Errorf("has the scheme %s, which this program was built without (-tags %s); build it without that tag: go build ./cmd/flowgate", names[0], tag)
	return scheme{
		names: names, form: names[0] + ":// (not in this build)",
		check: func(string) error { return err },
		open:  func(context.Context, Config, Deps) (Destination, error) { return nil, err },
	}
}
