package shaper

import (
	"context"
	"math"

	"github.com/flowgate/flowgate/internal/consumers"
)

// job is one delivery: messages that left together at an instant.
type job struct {
	messages []*message
	tenants  []string
	tries    []int32 // attempts that counted before this one
	released int64
	// careful: one of them failed before or may have ended a process, so that the
	// attempt is written down before it is made.
	careful bool
}

// deliver is a worker: it makes attempts until there are no more jobs.
func (s *Shaper) deliver(ctx context.Context) {
	for j := range s.jobs {
		s.attempt(ctx, j)
	}
}

func (s *Shaper) attempt(ctx context.Context, j job) {
	deliveries := make([]consumers.Delivery, len(j.messages))
	for i, m := range j.messages {
		deliveries[i] = m.delivery(s.deps.Origin, j.tenants[i], int(j.tries[i]), j.released)
	}
	if j.careful && !s.writeDown(ctx, j) {
		s.handBack(j)
		return
	}
	if !s.deps.Lease.Valid() { // right before the call: it ends by itself
		s.handBack(j)
		return
	}
	s.finish(j, s.deps.Outlet.Attempt(ctx, deliveries))
}

// writeDown keeps, before a message's second attempt, or its first if it may have
// ended a process, that the attempt is made: a message that ends the process each time
// so runs out of attempts. What is written is undone or overtaken by the outcome.
func (s *Shaper) writeDown(ctx context.Context, j job) bool {
	now := s.deps.Clock()
	for i, m := range j.messages {
		if j.tries[i] == 0 && !m.is(careful) {
			continue
		}
		a := attempts{Attempts: int(j.tries[i]) + 1, Due: now}
		if err := s.state.saveNow(ctx, m.seq, a); err != nil {
			s.log.Debug("attempt not written down", "seq", m.seq, "error", err)
			return false
		}
	}
	return true
}

// handBack undoes a departure that led to no call.
func (s *Shaper) handBack(j job) {
	s.deps.Outlet.Unready()
	s.mu.Lock()
	s.running--
	for i := len(j.messages) - 1; i >= 0; i-- {
		s.index.back(j.messages[i])
	}
	s.mu.Unlock()
	s.tell()
	s.poke()
}

// finish does what the outcomes say. What is to be acknowledged stays in flight
// until the broker confirms that; only so many may.
func (s *Shaper) finish(j job, outcomes []consumers.Outcome) {
	now := s.deps.Clock()
	s.pace.observe(now, j.released, outcomes)
	var acked []*message
	s.mu.Lock()
	s.running--
	for i, m := range j.messages {
		o := outcomes[i]
		if o.Action == consumers.Ack {
			s.unconfirmed++
			acked = append(acked, m)
			if j.tries[i] == 0 && m.is(careful) {
				s.index.tries[m.seq] = 1 // there is something to remove
			}
			continue
		}
		due := now + int64(min(max(0, o.Delay), math.MaxInt64/4))
		tries := j.tries[i]
		if o.Counted {
			tries++
		}
		switch {
		case tries > 0:
			s.index.tries[m.seq] = tries
			s.state.save(m.seq, attempts{Attempts: int(tries), Due: due})
		case m.is(careful):
			s.state.forget(m.seq)
		}
		s.index.later(m, due)
	}
	s.mu.Unlock()
	for _, m := range acked {
		s.ack(m)
	}
	s.tell()
	s.poke()
}
