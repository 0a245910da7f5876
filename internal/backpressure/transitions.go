package backpressure

// Transition is a change of one signal.
type Transition struct {
	// At is the clock's reading then.
	At     int64
	Signal Signal
	// Raised: it puts the backlog under pressure from then on; else it does no more.
	Raised bool
	// Value is the signal's reading, and Bound the mark that it reached, in the unit of
	// its SignalState.
	Value, Bound uint64
}

// keptTransitions is how many are remembered: a narrow band changes many times a second.
const keptTransitions = 64

// transitions are the last ones.
type transitions struct {
	kept [keptTransitions]Transition
	n    uint64 // all there were
	// since is when the level became pressured, 0 while it is not.
	since int64
}

// note keeps a change of s, made while other signals are raised or not.
func (t *transitions) note(now int64, s *SignalState, others bool) {
	bound := s.High
	if !s.Raised {
		bound = s.Low
	}
	t.kept[t.n%keptTransitions] = Transition{At: now, Signal: s.Signal, Raised: s.Raised, Value: s.Value, Bound: bound}
	t.n++
	switch {
	case others:
	case s.Raised:
		t.since = now
	default:
		t.since = 0
	}
}

// Totals are what came and went since the start, and what changed in between.
type Totals struct {
	// Admitted counts the messages that came in.
	Admitted uint64
	// Transitions counts the changes of signals.
	Transitions uint64
}

// Totals reads them; the transitions after the first so many come with them, the latest
// 64 at most, in order.
func (b *Backlog) Totals(after uint64) (Totals, []Transition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.transitions
	var kept []Transition
	for i := max(after, t.n-min(t.n, keptTransitions)); i < t.n; i++ {
		kept = append(kept, t.kept[i%keptTransitions])
	}
	return Totals{Admitted: b.admitted.Total(), Transitions: t.n}, kept
}

// Pressure is the depth, and which signals are raised.
func (b *Backlog) Pressure() (depth uint64, raised Signals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.depth(), Signals(b.raised)
}

// Signals is a set of them.
type Signals uint8

// Has reports whether s is one of them.
func (s Signals) Has(signal Signal) bool { return s&(1<<signal) != 0 }

// Names are those of the set.
func (s Signals) Names() []string {
	names := []string{}
	for n := range signals {
		if s.Has(n) {
			names = append(names, n.String())
		}
	}
	return names
}
