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
	tries    []tries // before this one
	released int64
}

// deliver is a worker: it makes attempts until there are no more jobs.
func (s *Shaper) deliver(ctx context.Context) {
	for j := range s.jobs {
		deliveries := make([]consumers.Delivery, len(j.messages))
		for i, m := range j.messages {
			deliveries[i] = m.delivery(s.deps.Origin, j.tenants[i], int(j.tries[i].counted), j.released)
		}
		if !s.deps.Lease.Valid() { // right before the call: it ends by itself
			s.handBack(j)
			continue
		}
		s.finish(j, s.deps.Outlet.Attempt(ctx, deliveries))
	}
}

// handBack undoes a departure that led to no call.
func (s *Shaper) handBack(j job) {
	s.deps.Outlet.Unready()
	now := s.deps.Clock()
	s.mu.Lock()
	s.running--
	for i := len(j.messages) - 1; i >= 0; i-- {
		s.took(j.messages[i], j.tries[i], now)
		s.index.back(j.messages[i])
	}
	s.mu.Unlock()
	s.tell()
	s.poke()
}

// took keeps what m has behind it now, if there is anything to keep, in place of the
// attempt that was written down. It requires that mu is held.
func (s *Shaper) took(m *message, t tries, due int64) {
	switch {
	case t.counted > 0:
		// Before its next attempt that is written down.
		m.set(careful, true)
		s.index.tries[m.seq] = tries{t.counted, true}
		s.state.save(m.seq, attempts{Attempts: int(t.counted), Due: due})
	case t.kept:
		delete(s.index.tries, m.seq)
		s.state.forget(m.seq)
	}
}

// unwrite takes back, at an end in order, the attempts that were written down and not
// made.
func (s *Shaper) unwrite() {
	now := s.deps.Clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, t := range s.index.tries {
		if m := s.index.find(seq); m != nil && m.state() == waiting && t.kept && !m.is(careful) {
			s.took(m, t, now)
		}
	}
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
			continue
		}
		due := now + int64(min(max(0, o.Delay), math.MaxInt64/4))
		t := j.tries[i]
		if o.Counted {
			t.counted++
		}
		s.took(m, t, due)
		s.index.later(m, due)
	}
	s.mu.Unlock()
	for _, m := range acked {
		s.ack(m)
	}
	s.tell()
	s.poke()
}
