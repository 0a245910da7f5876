package shaper

import (
	"context"
	"math"
	"slices"

	"github.com/flowgate/flowgate/internal/consumers"
)

// job is one delivery: messages that left together at an instant.
type job struct {
	items    []item
	released int64
}

// item is a message of a job, with what it had behind it when it left.
type item struct {
	*message
	tenant string
	tries  tries
}

// deliver is a worker: it makes attempts until there are no more jobs.
func (s *Shaper) deliver(ctx context.Context) {
	for j := range s.jobs {
		deliveries := make([]consumers.Delivery, len(j.items))
		for i, m := range j.items {
			deliveries[i] = m.delivery(s.deps.Origin, m.tenant, int(m.tries.counted), j.released)
			deliveries[i].Refusals = m.tries.refusals
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
	for _, m := range slices.Backward(j.items) {
		s.stepBack(m, now)
	}
	s.tell()
	s.mu.Unlock()
	s.poke()
}

// stepBack puts back in its place what was taken and not tried. It requires that mu is
// held.
func (s *Shaper) stepBack(m item, now int64) {
	s.keep(m.message, m.tries, now)
	s.index.back(m.message)
}

// item is m as it leaves. It requires that mu is held.
func (s *Shaper) item(m *message) item {
	return item{m, s.index.numbered[m.lane].tenant, s.index.tries[m.seq]}
}

// keep stores what m has behind it, or that it has nothing, in place of the attempt that
// was written down. It requires that mu is held.
func (s *Shaper) keep(m *message, t tries, due int64) {
	was := t.kept
	if t.kept = t.counted > 0; t == (tries{}) {
		delete(s.index.tries, m.seq)
	} else {
		s.index.tries[m.seq] = t
	}
	switch {
	case t.kept:
		m.set(careful, true) // its next attempt is written down too
		s.state.save(m.seq, attempts{Attempts: int(t.counted), Due: due})
	case was:
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
			s.keep(m, t, now)
		}
	}
}

// finish does what the outcomes say. What is to be acknowledged stays in flight
// until the broker confirms that; only so many may.
func (s *Shaper) finish(j job, outcomes []consumers.Outcome) {
	now := s.deps.Clock()
	s.pace.observe(now, j.released, outcomes)
	type done struct {
		seq    uint64
		handle string
		gen    uint8
	}
	acked := make([]done, 0, len(j.items))
	s.mu.Lock()
	s.running--
	for i, m := range j.items {
		o := outcomes[i]
		if o.Action == consumers.Ack {
			s.unconfirmed++
			acked = append(acked, done{m.seq, s.handle(m.message), m.gen()})
			continue
		}
		due := now + int64(min(max(0, o.Delay), math.MaxInt64/4))
		t := m.tries
		if o.Counted {
			t.counted++
		}
		if o.Kind == consumers.Overload {
			t.refusals = o.Refusals
		}
		t.yields = o.Yield
		s.keep(m.message, t, due)
		s.index.later(m.message, due)
	}
	s.tell()
	s.mu.Unlock()
	for _, d := range acked { // the feed may give it another handle meanwhile: the generation tells
		s.acks.done(d.seq, d.handle, d.gen)
	}
	s.poke()
}

// dropped forgets what is kept of a message that is no longer in the stream. It
// requires that mu is held.
func (s *Shaper) dropped(m *message) {
	s.deps.Backlog.Settled(s.index.numbered[m.lane].tenant)
	delete(s.odd, m.seq)
	if s.index.tries[m.seq].kept {
		s.state.forget(m.seq)
	}
}
