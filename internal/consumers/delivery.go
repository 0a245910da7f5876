package consumers

import (
	"context"
	"time"
)

// Delivery is one attempt at handing one message to a destination.
type Delivery struct {
	// ID names the message for ever: "<tenant>/<Nats-Msg-Id>", or
	// "<stream>@<incarnation>/<seq>" for a message without an id of its own. A
	// destination that stores it can tell a repeat from a new message.
	ID     string
	Tenant string
	Topic  string
	// Seq is the message's sequence in the backlog stream, from 1.
	Seq uint64
	// Attempt counts the attempts at this message that count against it, from 1.
	Attempt int
	// Refusals are those that it had, as the outcome before said.
	Refusals Refusals
	// Headers are the producer's own, as sent; nil if there were none.
	Headers map[string][]string
	Payload []byte
	// Stored are the headers as they lie in the backlog, if Headers name another span.
	Stored map[string][]string
	// Deadline is when the producer stops wanting it; zero is never.
	Deadline time.Time
	// AdmittedAt is when the broker stored the message.
	AdmittedAt time.Time
	// ReleasedAt is the departure clock's reading, taken right before the call.
	ReleasedAt time.Time
}

// Destination takes deliveries and judges each: Deliver returns one verdict a
// delivery, in order. A nil verdict says done: the message is stored and its
// repeats will be recognised. Anything else is one of the verdicts of this
// package, or a plain error, which asks for another attempt later.
//
// Deliver must return when ctx ends. It may be called from several goroutines,
// at most FLOWGATE_CONSUMER_CONCURRENCY at once.
//
// A destination with work of its own beside deliveries, as deleting old rows, has also
// a Run(ctx) error, which ends with ctx and before Close is called.
type Destination interface {
	Deliver(ctx context.Context, batch []Delivery) []error
	Close() error
}
