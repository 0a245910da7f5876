package client

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// lane is a line of messages under one limit: they go one by one, in the order in which
// they came, each as soon as the limit has what it costs. Whoever gives up leaves the
// line, and nothing is kept for it. It is guarded by the mutex of lanes.
type lane struct {
	queue []*ticket
	// last is when the last one went, and floor what the gateway said: before that
	// nobody passes.
	last, floor time.Time
	// interval is what one token takes.
	interval time.Duration
	// stretch widens it where others use up the same limit.
	stretch float64
	// jitter spreads the gaps over 0.5 to 1.5 intervals.
	jitter bool
	spread float64
	timer  *time.Timer
}

const (
	// maxGuess is how long a lane waits by its own reckoning. Then it asks: the limit may
	// have been raised.
	maxGuess = 30 * time.Second
	// catchUp is the interval below which lateness is made up: timers are late by so much.
	catchUp = 5 * time.Millisecond
	// A try from a lane that is refused tells of others under the same limit.
	widen, narrow, widest = 1.1, 0.95, 64
)

// ticket is a message in line.
type ticket struct {
	number uint64
	cost   float64
	// from is the lane it came through last, and guessed: it did so after maxGuess.
	from    laneKey
	guessed bool
	ready   chan struct{}
}

// laneKey is a scope and a key in it.
type laneKey struct{ scope, key string }

// gap is how long a message of such a cost waits after the last, and whether that is
// cut short.
func (l *lane) gap(cost float64) (time.Duration, bool) {
	if d := float64(l.interval) * l.stretch * l.spread * cost; d < float64(maxGuess) {
		return time.Duration(d), false
	}
	return maxGuess, true
}

// due is when a message of such a cost may go.
func (l *lane) due(cost float64) (at time.Time, guessed bool) {
	gap, guessed := l.gap(cost)
	if at = l.last.Add(gap); at.Before(l.floor) {
		return l.floor, false
	}
	return at, guessed
}

// idle reports whether a message may pass as if there were no lane.
func (l *lane) idle(now time.Time) bool {
	at, _ := l.due(1)
	return len(l.queue) == 0 && !at.After(now)
}

// insert keeps the order of numbers: who was refused again stands where it stood.
func (l *lane) insert(t *ticket) {
	t.ready = make(chan struct{})
	i, _ := slices.BinarySearchFunc(l.queue, t, func(a, b *ticket) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	l.queue = slices.Insert(l.queue, i, t)
}

// lanes are a client's.
type lanes struct {
	mu      sync.Mutex
	byKey   map[laneKey]*lane
	numbers uint64
	sweep   int // at so many, those that are idle are forgotten
	closed  bool
}

const sweepFrom = 256

func newLanes() *lanes { return &lanes{byKey: map[laneKey]*lane{}, sweep: sweepFrom} }

// ticket numbers a message.
func (s *lanes) ticket(cost float64) *ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers++
	return &ticket{number: s.numbers, cost: cost}
}

// get finds a lane or makes it; it requires that mu is held.
func (s *lanes) get(key laneKey, now time.Time) *lane {
	if l := s.byKey[key]; l != nil {
		return l
	}
	if len(s.byKey) >= s.sweep {
		for k, l := range s.byKey {
			if l.idle(now) {
				delete(s.byKey, k)
			}
		}
		s.sweep = max(sweepFrom, 2*len(s.byKey))
	}
	l := &lane{stretch: 1, spread: 1}
	l.timer = time.AfterFunc(time.Hour, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.advance(key, l)
	})
	l.timer.Stop()
	s.byKey[key] = l
	return l
}

// join lines t up if there is a lane of that key that does not stand open.
func (s *lanes) join(key laneKey, t *ticket, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byKey[key]
	if l == nil {
		return false
	}
	if l.idle(now) {
		delete(s.byKey, key)
		return false
	}
	s.line(key, l, t)
	return true
}

// slow lines t up in a lane that goes at a pace which nobody enforces.
func (s *lanes) slow(key laneKey, t *ticket, interval time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.get(key, now)
	l.interval, l.jitter = interval, true
	s.line(key, l, t)
}

// refused lines t up again after a limit refused it with a hint.
func (s *lanes) refused(key laneKey, t *ticket, limit string, hint time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.get(key, now)
	if l.interval = interval(limit); l.interval <= 0 {
		l.interval = max(hint, time.Millisecond)
	}
	if at := now.Add(hint); at.After(l.floor) {
		l.floor = at
	}
	if t.from == key && !t.guessed {
		l.stretch = min(l.stretch*widen, widest)
	}
	s.line(key, l, t)
}

// admitted hears of a message that passed.
func (s *lanes) admitted(t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byKey[t.from]
	if l == nil {
		return
	}
	l.stretch = max(1, l.stretch*narrow)
	if t.guessed {
		// It was earlier than the lane thought: what the lane knows is out of date.
		s.dismiss(t.from, l)
	}
}

// line requires that mu is held.
func (s *lanes) line(key laneKey, l *lane, t *ticket) {
	l.insert(t)
	if s.closed {
		s.dismiss(key, l)
		return
	}
	s.advance(key, l)
}

// leave takes t out of its line.
func (s *lanes) leave(key laneKey, t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byKey[key]
	if l == nil {
		return
	}
	if i := slices.Index(l.queue, t); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		s.advance(key, l)
	}
}

// advance lets go whoever may, and sets the timer for the next; it requires that mu is
// held.
func (s *lanes) advance(key laneKey, l *lane) {
	for len(l.queue) > 0 {
		now, head := time.Now(), l.queue[0]
		at, guessed := l.due(head.cost)
		if d := at.Sub(now); d > 0 {
			l.timer.Reset(d)
			return
		}
		l.queue = l.queue[1:]
		l.last = now
		if l.interval < catchUp && now.Sub(at) < catchUp {
			l.last = at
		}
		if l.spread = 1; l.jitter || l.stretch > 1 { // or those who share it would keep step
			l.spread = 0.5 + rand.Float64()
		}
		head.from, head.guessed = key, guessed
		close(head.ready)
	}
	l.timer.Stop()
}

// dismiss lets all of a lane go; it requires that mu is held.
func (s *lanes) dismiss(key laneKey, l *lane) {
	for _, t := range l.queue {
		t.from = laneKey{}
		close(t.ready)
	}
	l.queue = nil
	l.timer.Stop()
	if s.byKey[key] == l {
		delete(s.byKey, key)
	}
}

// open lets all go of the lanes that a scope has and keep does not name.
func (s *lanes) open(scope string, keep func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, l := range s.byKey {
		if k.scope == scope && !keep(k.key) {
			s.dismiss(k, l)
		}
	}
}

// pace changes how fast a scope's lanes go.
func (s *lanes) pace(scope string, interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, l := range s.byKey {
		if k.scope == scope {
			l.interval = interval
			s.advance(k, l)
		}
	}
}

// close lets everyone go.
func (s *lanes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for k, l := range s.byKey {
		s.dismiss(k, l)
	}
}

// interval is what one token of a limit like token-bucket:100/s,burst=200 takes; 0 if
// it cannot be told.
func interval(limit string) time.Duration {
	_, rule, ok := strings.Cut(limit, ":")
	if !ok {
		return 0
	}
	rule, _, _ = strings.Cut(rule, ",")
	count, per, ok := strings.Cut(rule, "/")
	n, err := strconv.ParseFloat(count, 64)
	if !ok || err != nil || !(n > 0) {
		return 0
	}
	period := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[per]
	if period == 0 {
		if period, err = time.ParseDuration(per); err != nil || period <= 0 {
			return 0
		}
	}
	return time.Duration(min(max(1, float64(period)/n), float64(math.MaxInt64/2)))
}
