package backpressure

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Signal is something that puts the backlog under pressure, with hysteresis of its own.
type Signal uint8

// The signals.
const (
	// Depth is the number of messages.
	Depth Signal = iota
	// Bytes is their size: from seven eighths of MAX_BYTES, until seven tenths.
	Bytes
	// Age is that of the oldest message waiting: from HIGH_AGE, until LOW's part of it.
	Age
	// Storage is the room that the broker has left for the stream: from a sixteenth of
	// MAX_BYTES, 1 GiB at most, until twice that.
	Storage
	// Outage is how long the consumer has been away: from HIGH_OUTAGE, until it is back.
	Outage
	signals
)

var signalNames = [signals]string{"depth", "bytes", "age", "storage", "outage"}

// String is the signal's name in metrics and logs.
func (s Signal) String() string { return signalNames[s] }

// SignalState is a signal at one instant: its reading and its two marks, in messages,
// bytes or nanoseconds. Of Storage it is what is missing of MAX_BYTES.
type SignalState struct {
	Signal           Signal
	Raised           bool
	Value, High, Low uint64
	// ToPressured and ToNormal count its changes.
	ToPressured, ToNormal uint64
}

// signal is one at work. A narrow band changes its level many times a second, and the log
// tells of some.
type signal struct {
	SignalState
	level              algorithms.Hysteresis
	quietUp, quietDown rate.Sometimes
}

// Readings are what is not known by events.
type Readings struct {
	// Age is that of the oldest waiting message, 0 without one.
	Age time.Duration
	// Room is how many bytes the broker's storage has left for the stream; negative: it
	// does not tell.
	Room int64
	// Outage is how long the consumer has been held back by its breaker; 0: it is not.
	Outage time.Duration
}

// mostLeft bounds the room that makes no signal, however large MAX_BYTES is.
const mostLeft = 1 << 30

// setSignals sets the marks; a signal with HIGH 0 is off.
func (b *Backlog) setSignals(r Rules) {
	set := func(n Signal, high, low uint64) {
		s := &b.signals[n]
		s.SignalState = SignalState{Signal: n, High: high, Low: low}
		s.level = algorithms.Hysteresis{High: high, Low: low}
		s.quietUp.First, s.quietUp.Interval = 10, 5*time.Second
		s.quietDown.First, s.quietDown.Interval = 10, 5*time.Second
	}
	set(Depth, r.High, r.Low)
	part := func(n, of uint64) uint64 { return r.MaxBytes/of*n + r.MaxBytes%of*n/of }
	set(Bytes, part(7, 8), part(7, 10))
	set(Age, uint64(r.HighAge), uint64(r.HighAge)/5*4)
	left := min(part(1, 16), mostLeft)
	set(Storage, r.MaxBytes-left, r.MaxBytes-2*left)
	set(Outage, uint64(r.HighOutage), 0)
}

// Observe takes readings, about once a second.
func (b *Backlog) Observe(now int64, r Readings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read(Age, uint64(max(0, r.Age)))
	if r.Room >= 0 {
		b.read(Storage, b.rules.MaxBytes-min(uint64(r.Room), b.rules.MaxBytes))
	}
	b.read(Outage, uint64(max(0, r.Outage)))
	b.stall(now)
}

// read brings a signal up to date; it requires that mu is held.
func (b *Backlog) read(n Signal, value uint64) {
	s := &b.signals[n]
	s.Value = value
	if s.High == 0 {
		return
	}
	raised, changed := s.level.Update(value)
	if !changed {
		return
	}
	s.Raised = raised
	b.transitions.note(b.deps.Clock(), &s.SignalState, b.raised&^(1<<n) != 0)
	select {
	case b.changed <- struct{}{}:
	default: // whoever listens has not looked yet
	}
	if raised {
		b.raised |= 1 << n
		s.ToPressured++
		s.quietUp.Do(func() {
			consequence := "producers are refused"
			if b.deps.Lenient {
				consequence = "producers would be refused if the mode were enforce"
			}
			b.log.Warn("the backlog is under pressure: "+consequence, "signal", n.String(), "value", s.shown(s.Value), "high", s.shown(s.High), "low", s.shown(s.Low), "depth", b.depth(), "times", s.ToPressured)
		})
		return
	}
	b.raised &^= 1 << n
	s.ToNormal++
	s.quietDown.Do(func() {
		text := "the backlog is back at its low mark: producers are admitted, those first who were promised a place"
		if b.raised != 0 {
			text = "the backlog is back at a low mark, and still under pressure by another signal"
		}
		b.log.Info(text, "signal", n.String(), "value", s.shown(s.Value), "high", s.shown(s.High), "low", s.shown(s.Low), "depth", b.depth(), "times", s.ToNormal)
	})
}

// shown is a reading as a person reads it.
func (s *SignalState) shown(v uint64) any {
	if s.Signal == Age || s.Signal == Outage {
		return time.Duration(v)
	}
	return v
}

// is reports whether a signal is raised; it requires that mu is held.
func (b *Backlog) is(n Signal) bool { return b.raised&(1<<n) != 0 }

// Changed hears of changes of the signals, one word for several that come close together.
// One listener can hear it.
func (b *Backlog) Changed() <-chan struct{} { return b.changed }
