package backpressure

import "time"

// Snapshot is the state of the backlog at one instant.
type Snapshot struct {
	// Waiting includes what was forwarded and not yet seen by the outlet, which
	// Unseen gives apart.
	Waiting, InFlight, Delayed, Unseen uint64
	Marks                              Marks
	Pressured                          bool
	// Admitted and Drained are messages a second over the last seconds.
	Admitted, Drained float64
	// DrainTime is how long the whole backlog takes at the present rate, and
	// TimeToHigh how long until HIGH at the present growth; negative: never.
	DrainTime, TimeToHigh time.Duration
	// ToNormal and ToPressured count changes of the level.
	ToNormal, ToPressured uint64
}

// Depth is the number of messages in the backlog.
func (s Snapshot) Depth() uint64 { return s.Waiting + s.InFlight + s.Delayed }

// Snapshot reads the state at the instant now.
func (b *Backlog) Snapshot(now int64) Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Snapshot{
		Unseen:    b.unseen(),
		InFlight:  b.counts.inFlight,
		Delayed:   b.counts.delayed,
		Marks:     b.marks,
		Pressured: b.level.Pressured(),
		Admitted:  b.admitted.PerSecond(now),
		Drained:   b.drained.PerSecond(now),
		ToNormal:  b.transitions[0], ToPressured: b.transitions[1],
		DrainTime: -1, TimeToHigh: -1,
	}
	s.Waiting = b.counts.waiting + s.Unseen
	depth := s.Depth()
	const never = 1<<63 - 1
	if d := b.drainTime(now, depth); d != never {
		s.DrainTime = d
	}
	if growth := s.Admitted - s.Drained; growth > 0 {
		if depth >= b.marks.High {
			s.TimeToHigh = 0
		} else if seconds := float64(b.marks.High-depth) / growth; seconds < 1e9 {
			s.TimeToHigh = time.Duration(seconds * float64(time.Second))
		}
	}
	return s
}
