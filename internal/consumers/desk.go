package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// DeadLetterStore keeps what can never be delivered.
type DeadLetterStore interface {
	Put(ctx context.Context, d Delivery, reason error) error
}

// Action is what is to be done with a message after an attempt.
type Action uint8

const (
	// Ack: it is delivered, or stands among the dead letters. Forget it.
	Ack Action = iota
	// Later: try it again.
	Later
)

// Outcome is what an attempt comes to for one message.
type Outcome struct {
	Action Action
	// Delay is how long to wait at least before the next attempt.
	Delay time.Duration
	// Counted says that the attempt counts against the message.
	Counted bool
	// Kind is the verdict, Took how long the call to the destination was; 0 if none
	// was made.
	Kind VerdictKind
	Took time.Duration
	// Wait is the pause that the destination as a whole asked for, 0 if it named none.
	Wait time.Duration
	// TimedOut says that the attempt ran into its timeout.
	TimedOut bool
	// Refusals goes with the message's next attempt, if Kind is Overload.
	Refusals Refusals
	// Yield says that deliveries are held back, and that another message should be the
	// next to find out whether the destination is back: it may be this one that it refuses.
	Yield bool
	// Err is why it was not delivered; nil if it was.
	Err error
}

// ErrCrashed is the reason of a dead letter whose attempts are used up though none of
// them was its last: the process ended during one, or may make fewer than the one before.
var ErrCrashed = errors.New("crashed: the process ended while its last attempt was made, or FLOWGATE_CONSUMER_MAX_ATTEMPTS was lowered")

// ErrExpired is the reason of a dead letter whose deadline passed while it waited.
var ErrExpired = errors.New("expired: its Flowgate-Deadline passed while it waited")

// errProbing is why a message was not tried that left in a batch while one message
// was to find out whether the destination is back.
var errProbing = errors.New("not tried: one message is enough to see whether the consumer is back")

// deadLetterPause is the least wait before a dead letter that could not be written
// is tried again.
const deadLetterPause = 5 * time.Second

// Desk makes attempts: it calls the destination within the timeout, judges its
// verdicts, keeps the breaker, and writes dead letters. It holds no messages and
// starts nothing.
type Desk struct {
	cfg         Config
	destination Destination
	dead        DeadLetterStore
	breaker     *Breaker
	witness     witness
	backoff     algorithms.Backoff
	random      func() float64
	metrics     *deskMetrics
	tracer      Tracer // nil: nothing is traced
	log         *slog.Logger
	failing     rate.Sometimes
	unwritable  rate.Sometimes
	buried      rate.Sometimes
}

// NewDesk makes a desk before a destination. tenantLabel bounds the tenants that
// metrics name; nil names all.
func NewDesk(cfg Config, destination Destination, dead DeadLetterStore, tenantLabel func(string) string, reg prometheus.Registerer, log *slog.Logger) *Desk {
	if tenantLabel == nil {
		tenantLabel = func(t string) string { return t }
	}
	backoff := algorithms.Backoff{Base: cfg.Backoff, Max: cfg.BackoffMax}
	d := &Desk{
		cfg: cfg, destination: destination, dead: dead,
		breaker: NewBreaker(backoff, rand.Float64),
		backoff: backoff, random: rand.Float64,
		log:        log.With("component", "consumers"),
		failing:    rate.Sometimes{First: 3, Interval: 10 * time.Second},
		unwritable: rate.Sometimes{First: 1, Interval: 30 * time.Second},
		buried:     rate.Sometimes{First: 20, Interval: 5 * time.Second}, // all are in the stream
	}
	d.metrics = newDeskMetrics(reg, tenantLabel, d.breaker.State)
	return d
}

// Draw has the waits between attempts drawn by random, from [0, 1), so that they are the
// same each time. Before the first attempt.
func (d *Desk) Draw(random func() float64) { d.random, d.breaker.random = random, random }

// Ready reports whether a delivery may start at the instant now, and claims the
// right; if not, after what time to ask again.
func (d *Desk) Ready(now time.Time) (wait time.Duration, ok bool) { return d.breaker.Allow(now) }

// Unready gives back a claim that was not used.
func (d *Desk) Unready() { d.breaker.Release(d.breaker.Epoch()) }

// BreakerState is the breaker's state.
func (d *Desk) BreakerState() BreakerState { return d.breaker.State() }

// Attempt makes one attempt at a batch and returns an outcome a message, in
// order. It ends when ctx does: what was interrupted so is handed back without
// having counted.
func (d *Desk) Attempt(ctx context.Context, batch []Delivery) []Outcome {
	t := d.Begin(batch)
	if len(t.due) == 0 {
		return t.End(ctx, time.Now(), Answers{})
	}
	a := d.call(ctx, t.due)
	return t.End(ctx, time.Now(), a)
}

// Begin sorts a batch into what the destination is called with and what needs no call, and
// claims what Ready gave. End has to follow.
func (d *Desk) Begin(batch []Delivery) *Try {
	t := &Try{desk: d, epoch: d.breaker.Epoch(), batch: batch, outcomes: make([]Outcome, len(batch)), due: make([]Delivery, 0, len(batch))}
	for i, m := range batch {
		if d.hopeless(m) != nil {
			t.lost = append(t.lost, i)
			continue
		}
		t.due, t.place = append(t.due, m), append(t.place, i)
	}
	if len(t.due) > 1 && d.breaker.State() == BreakerHalfOpen {
		for _, i := range t.place[1:] {
			t.outcomes[i] = Outcome{Action: Later, Kind: Hold, Err: errProbing}
		}
		t.due, t.place = t.due[:1], t.place[:1]
	}
	if d.tracer != nil && len(t.due) > 0 {
		t.traced = d.traced(t.due)
	}
	return t
}

// hopeless is why no attempt is made at m, nil if one is.
func (d *Desk) hopeless(m Delivery) error {
	switch {
	case !m.Deadline.IsZero() && m.ReleasedAt.After(m.Deadline):
		return ErrExpired
	case m.Attempt > d.cfg.MaxAttempts:
		return ErrCrashed
	}
	return nil
}

// call makes the call itself, within the timeout.
func (d *Desk) call(ctx context.Context, batch []Delivery) Answers {
	bounded, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	d.metrics.inFlight.Add(float64(len(batch)))
	began := time.Now()
	answers := d.deliver(bounded, batch)
	took := time.Since(began)
	d.metrics.inFlight.Sub(float64(len(batch)))
	return Answers{Errs: answers, Took: took, TimedOut: bounded.Err() != nil && ctx.Err() == nil}
}

// deliver calls the destination; a panic or a wrong number of verdicts is a
// failure of every message and not the end of the process.
func (d *Desk) deliver(ctx context.Context, batch []Delivery) (answers []error) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("the destination panicked", "panic", p, "stack", string(debug.Stack()))
			answers = all(len(batch), fmt.Errorf("the destination panicked: %v", p))
		}
	}()
	answers = d.destination.Deliver(ctx, batch)
	if len(answers) != len(batch) {
		answers = all(len(batch), fmt.Errorf("the destination gave %d verdicts for %d messages", len(answers), len(batch)))
	}
	return answers
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// outcome turns a verdict into what happens next.
func (d *Desk) outcome(ctx context.Context, m Delivery, v Verdict) Outcome {
	switch v.Kind {
	case Done:
		d.metrics.ended(m, "done")
		return Outcome{Action: Ack}
	case Reject:
		return d.bury(ctx, m, v.Err)
	case Hold:
		return Outcome{Action: Later, Err: v.Err}
	case Overload:
		return d.refused(ctx, m, v)
	}
	if ctx.Err() != nil {
		// Interrupted by our own stop: no fault of the message.
		return Outcome{Action: Later, Err: v.Err}
	}
	if m.Attempt >= d.cfg.MaxAttempts {
		return d.bury(ctx, m, v.Err)
	}
	d.failing.Do(func() {
		about(d.log, m).Warn("delivery failed; tried again later", "id", m.ID, "attempt", m.Attempt, "error", v.Err)
	})
	d.metrics.ended(m, "retried")
	delay := max(v.Wait, d.backoff.Delay(m.Attempt, d.random()))
	return Outcome{Action: Later, Delay: delay, Counted: true, Err: v.Err}
}

// bury writes a dead letter. If that fails the message stays where it is: it is
// tried again later, and never acknowledged.
func (d *Desk) bury(ctx context.Context, m Delivery, reason error) Outcome {
	bounded, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	if err := d.dead.Put(bounded, m.asStored(), reason); err != nil {
		d.metrics.unburied.Inc()
		if ctx.Err() == nil {
			d.unwritable.Do(func() {
				about(d.log, m).Error("dead letter not written; the message stays in the backlog and is tried again slowly", "id", m.ID, "reason", reason, "error", err)
			})
		}
		d.metrics.ended(m, "retried")
		return Outcome{Action: Later, Delay: max(deadLetterPause, d.cfg.BackoffMax), Err: err}
	}
	d.buried.Do(func() {
		about(d.log, m).Warn("message went to the dead letters", "id", m.ID, "attempts", m.Attempt, "reason", reason)
	})
	d.metrics.ended(m, "dead_lettered")
	d.metrics.buried(m)
	return Outcome{Action: Ack, Err: reason}
}
