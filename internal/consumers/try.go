package consumers

import (
	"context"
	"errors"
	"time"
)

// Try is an attempt at a batch that is under way.
type Try struct {
	desk        *Desk
	epoch       uint64
	batch, due  []Delivery
	place, lost []int // in the batch: of what is due, and of what is hopeless
	outcomes    []Outcome
	traced      []func(Outcome)
}

// Answers are what the destination said to what is due, one a message, how long it took,
// and whether that was all the time there was.
type Answers struct {
	Errs     []error
	Took     time.Duration
	TimedOut bool
}

// Due is what the destination is called with; it may be nothing.
func (t *Try) Due() []Delivery { return t.due }

// End judges the answers at the instant now and returns an outcome a message of the
// batch. If ctx has ended the call was cut short.
func (t *Try) End(ctx context.Context, now time.Time, a Answers) []Outcome {
	d := t.desk
	if len(t.due) > 0 {
		verdicts := d.learn(ctx, now, t.epoch, t.due, &a)
		for j, i := range t.place {
			o := d.outcome(ctx, t.due[j], verdicts[j])
			o.Kind, o.Took = verdicts[j].Kind, a.Took
			switch o.Kind {
			case Overload:
				o.Wait = verdicts[j].Wait
			case Retry:
				o.TimedOut = ctx.Err() == nil && (a.TimedOut || errors.Is(o.Err, context.DeadlineExceeded))
			}
			t.outcomes[i] = o
			if t.traced != nil {
				t.traced[j](o)
			}
		}
	} else {
		d.breaker.Release(t.epoch)
	}
	// After the call, which the departure clock has timed: a dead letter may take
	// long to write.
	for _, i := range t.lost {
		m := t.batch[i]
		reason := d.hopeless(m)
		if d.tracer != nil {
			d.tracer.Wait(m, reason)
		}
		m.Attempt-- // this one is not made
		t.outcomes[i] = d.bury(ctx, m, reason)
	}
	return t.outcomes
}

// learn judges each answer, and tells the breaker what the destination was like.
func (d *Desk) learn(ctx context.Context, at time.Time, epoch uint64, batch []Delivery, a *Answers) []Verdict {
	verdicts := make([]Verdict, len(batch))
	overloads, held, answered, hung, asked := 0, 0, false, false, time.Duration(0)
	for i, err := range a.Errs {
		v := Judge(err)
		verdicts[i] = v
		d.witness.saw(batch[i], v.Kind)
		switch v.Kind {
		case Overload:
			overloads, asked = overloads+1, max(asked, v.Wait)
		case Hold:
			held++
		case Retry: // a destination may have a shorter timeout of its own
			if a.TimedOut || errors.Is(err, context.DeadlineExceeded) {
				hung = true
			} else {
				answered = true
			}
		default:
			answered = true
		}
		d.metrics.took.WithLabelValues(v.Kind.String()).Observe(a.Took.Seconds())
		if v.Kind != Done && v.Kind != Hold {
			d.metrics.errors.WithLabelValues(v.Kind.String()).Inc()
		}
	}
	d.metrics.totals.latency.Add(a.Took, uint64(len(batch)-held))
	if ctx.Err() != nil {
		d.breaker.Release(epoch) // cut short by us: nothing was learnt
		a.TimedOut = false
		return verdicts
	}
	was := d.breaker.State()
	// A timeout is the message's attempt, but no sign that the destination is back.
	failed := !answered && (overloads > 0 || hung && was == BreakerHalfOpen)
	d.breaker.Record(at, epoch, failed, asked)
	now := d.breaker.State()
	if overloads > 0 || failed {
		says := "the consumer could not take it"
		if now != BreakerClosed {
			says = "the consumer cannot take work; deliveries are held back"
		}
		d.failing.Do(func() {
			log := d.log
			if len(batch) == 1 {
				log = about(log, batch[0])
			}
			log.Warn(says, "error", firstError(a.Errs))
		})
	}
	if was != now && now == BreakerClosed {
		d.log.Info("the consumer takes work again")
	}
	return verdicts
}
