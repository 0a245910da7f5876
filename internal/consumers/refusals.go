package consumers

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Refusals are what one message has behind it of verdicts of Overload. Each is the
// destination's failure and costs the message nothing. But a destination may refuse the
// same message each time and take all the others, and then it is the message, which
// must not be tried for ever. So a refusal is held against what became of the others
// since the message's refusal before:
//
//   - were any delivered, the next wait is longer: exponential, as after failures of
//     its own, up to FLOWGATE_CONSUMER_BACKOFF_MAX;
//   - were more than two in three of those taken that were tried for the first time,
//     the refusal is the message's own. The first refusalsFree of them are free; from
//     then on each counts as an attempt, up to FLOWGATE_CONSUMER_MAX_ATTEMPTS.
//
// A refusal while the destination is down, as the breaker knows it, says nothing, so an
// outage lengthens no wait and costs no attempt, however long it is. Nor do refusals by
// chance: a destination that takes what comes up to a rate refuses one message 21 times
// in a row, of which each time less than a third of the others, once in 3²¹ (10¹⁰)
// messages, and it has the attempts left after that. One that refuses a third or more
// is not well, and costs none at all.
//
// First attempts alone are weighed since what is refused comes again and would be
// weighed many times. The zero value is that of a message that was never refused.
type Refusals struct {
	refused bool
	longer  int32 // how often the wait grew
	own     int32
	then    tally // at the last one
}

// refusalsFree is how many refusals of its own a message has before they count. With the
// usual backoff it takes five minutes.
const refusalsFree = 20

// tally is what a destination has done up to an instant.
type tally struct {
	delivered int64
	balance   int64 // of first attempts: those delivered less twice those refused
}

// add takes note of another refusal, at the destination's present tally. counts says that
// it is to count as an attempt.
func (r *Refusals) add(now tally, down bool) (counts bool) {
	if r.refused && !down {
		if now.delivered > r.then.delivered {
			r.longer++
		}
		if now.balance > r.then.balance {
			r.own++
			counts = r.own > refusalsFree
		}
	}
	r.refused, r.then = true, now
	return counts
}

// witness keeps the tally.
type witness struct{ delivered, balance atomic.Int64 }

// saw takes note of a verdict.
func (w *witness) saw(m Delivery, kind VerdictKind) {
	first := !m.Refusals.refused && m.Attempt <= 1
	switch {
	case kind == Done && first:
		w.balance.Add(1)
		w.delivered.Add(1)
	case kind == Done:
		w.delivered.Add(1)
	case kind == Overload && first:
		w.balance.Add(-2)
	}
}

func (w *witness) tally() tally { return tally{w.delivered.Load(), w.balance.Load()} }

// refused is what happens to a message that the destination as a whole could not take.
func (d *Desk) refused(ctx context.Context, m Delivery, v Verdict) Outcome {
	if ctx.Err() != nil {
		d.metrics.ended(m, "retried")
		return Outcome{Action: Later, Delay: v.Wait, Refusals: m.Refusals, Err: v.Err}
	}
	r := m.Refusals
	counts := r.add(d.witness.tally(), d.breaker.Down())
	if counts && m.Attempt >= d.cfg.MaxAttempts {
		o := d.bury(ctx, m, fmt.Errorf("refused %d times while others were delivered: %w", r.own, v.Err))
		o.Refusals = r
		return o
	}
	if counts {
		d.failing.Do(func() {
			about(d.log, m).Warn("the consumer refuses this message and takes others; its attempts count", "id", m.ID, "attempt", m.Attempt, "error", v.Err)
		})
	}
	d.metrics.ended(m, "retried")
	o := Outcome{Action: Later, Delay: v.Wait, Counted: counts, Refusals: r, Err: v.Err}
	o.Yield = d.breaker.State() != BreakerClosed
	if !o.Yield || r.longer > 0 {
		// The rest goes first; what is refused alone stays behind also after a pause. Else
		// this one may be the next probe.
		o.Delay += d.backoff.Delay(1+int(r.longer), d.random())
	}
	return o
}
