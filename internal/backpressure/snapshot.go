package backpressure

import "time"

// Snapshot is the state of the backlog at one instant.
type Snapshot struct {
	// Waiting includes what was forwarded and not yet seen by the outlet, which
	// Unseen gives apart.
	Waiting, InFlight, Delayed, Unseen uint64
	Marks                              Marks
	// Pressured: a signal is raised, so that producers are refused.
	Pressured bool
	// Raised are those signals.
	Raised Signals
	// Since is when that began, 0 while it is not so.
	Since int64
	// Signals are all of them, by number.
	Signals [signals]SignalState
	// Admitted and Drained are messages a second over the last seconds.
	Admitted, Drained float64
	// DrainTime is how long the whole backlog takes at the present rate, and
	// TimeToHigh how long until HIGH at the present growth; negative: never.
	DrainTime, TimeToHigh time.Duration
	// Hint is what a message that comes for the first time would be told, of a tenant
	// above its part, the longest of those named; 0: it would be admitted. Stalled: nothing
	// is delivered at present, and the hint is a guess.
	Hint    time.Duration
	Stalled bool
	// Slots is how many messages have a slot.
	Slots int
	// OverPart are tenants that hold more than their part, under pressure, MostOverPart at
	// most; TenantsOverPart is how many there are.
	OverPart        []Holder
	TenantsOverPart int
}

// MostOverPart bounds the tenants that a Snapshot names.
const MostOverPart = 20

// Holder is a tenant and what it has: messages in the backlog, slots, and how many
// messages are its part of HIGH.
type Holder struct {
	Tenant                string
	Messages, Slots, Part uint64
	// Hint is what its next message would be told.
	Hint time.Duration
}

// Depth is the number of messages in the backlog.
func (s Snapshot) Depth() uint64 { return s.Waiting + s.InFlight + s.Delayed }

// Snapshot reads the state at the instant now.
func (b *Backlog) Snapshot(now int64) Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	s := Snapshot{
		Unseen:    b.unseen(),
		InFlight:  b.counts.inFlight,
		Delayed:   b.counts.delayed,
		Marks:     b.rules.Marks,
		Pressured: b.raised != 0,
		Raised:    Signals(b.raised),
		Since:     b.transitions.since,
		Admitted:  b.admitted.PerSecond(now),
		Drained:   b.drained.PerSecond(now),
		Slots:     b.slots.live,
		DrainTime: -1, TimeToHigh: -1,
		TenantsOverPart: len(b.tenants.over),
	}
	for n := range b.signals {
		s.Signals[n] = b.signals[n].SignalState
	}
	s.Waiting = b.counts.waiting + s.Unseen
	depth := s.Depth()
	from, known := b.stall(now)
	s.Stalled = !known || from > now
	if d := b.drainTime(now, depth); depth == 0 {
		s.DrainTime = 0
	} else if !s.Stalled && d < 1<<62 {
		s.DrainTime = time.Duration(d)
	}
	if growth := s.Admitted - s.Drained; growth > 0 {
		if depth >= b.rules.High {
			s.TimeToHigh = 0
		} else if seconds := float64(b.rules.High-depth) / growth; seconds < 1e9 {
			s.TimeToHigh = time.Duration(seconds * float64(time.Second))
		}
	}
	if s.Pressured || b.saturated && !b.idle(depth) {
		b.hints(&s, now, depth)
	}
	return s
}

// hints adds what those who are refused would be told. It requires that mu is held.
func (b *Backlog) hints(s *Snapshot, now int64, depth uint64) {
	told := func(t *tenant) time.Duration {
		if ok, _ := b.letsIn(t, depth); ok && depth < b.rules.Max {
			return 0
		}
		if t == nil {
			t = b.whole()
		}
		return b.hint(now, t, depth >= b.rules.Max)
	}
	for _, t := range b.tenants.over[:min(len(b.tenants.over), MostOverPart)] {
		s.OverPart = append(s.OverPart, Holder{t.name, t.messages(), uint64(t.slots), b.tenants.part(t, b.rules.High), 0})
	}
	for i := range s.OverPart {
		o := &s.OverPart[i]
		if t := b.tenants.find(o.Tenant); b.rules.Fair {
			o.Hint = told(t)
			s.Hint = max(s.Hint, o.Hint)
		}
	}
	if !b.rules.Fair || len(s.OverPart) == 0 {
		s.Hint = told(nil)
		for i := range s.OverPart {
			s.OverPart[i].Hint = s.Hint
		}
	}
}
