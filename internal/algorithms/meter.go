package algorithms

import "time"

// Meter counts events and gives their rate over a sliding window, in steps of
// the window's part. It takes constant room. Not safe for concurrent use.
type Meter struct {
	step    int64
	counts  []uint64
	newest  int64 // number of the newest step
	started int64 // instant of the first event
	total   uint64
	any     bool
}

// NewMeter makes a meter with a window of so many steps.
func NewMeter(window time.Duration, steps int) *Meter {
	return &Meter{step: int64(window) / int64(steps), counts: make([]uint64, steps)}
}

// Add counts n events at the instant now. A clock that stepped back counts in
// the newest step.
func (m *Meter) Add(now int64, n uint64) {
	if !m.any {
		m.any, m.started, m.newest = true, now, m.number(now)
	}
	m.turn(now)
	m.counts[m.slot(m.newest)] += n
	m.total += n
}

// number is the step that an instant lies in, before the origin of time too.
func (m *Meter) number(now int64) int64 {
	number := now / m.step
	if now%m.step < 0 {
		number--
	}
	return number
}

func (m *Meter) slot(number int64) int {
	n := int64(len(m.counts))
	return int(((number % n) + n) % n)
}

// turn brings the newest step up to now and empties those in between.
func (m *Meter) turn(now int64) {
	number := m.number(now)
	for i := 0; m.newest < number && i < len(m.counts); i++ {
		m.newest++
		m.counts[m.slot(m.newest)] = 0
	}
	m.newest = max(m.newest, number)
}

// PerSecond is the events a second over the window, or over the time since the
// first event if that is shorter, but at least one step.
func (m *Meter) PerSecond(now int64) float64 {
	if !m.any {
		return 0
	}
	m.turn(now)
	var sum uint64
	for _, c := range m.counts {
		sum += c
	}
	// The newest step is under way: it covers what has passed of it, for a clock
	// that stepped back nothing.
	now = max(now, m.newest*m.step)
	covered := int64(len(m.counts)-1)*m.step + now - m.newest*m.step
	covered = max(m.step, min(covered, now-m.started))
	return float64(sum) / time.Duration(covered).Seconds()
}

// Total is all events ever counted.
func (m *Meter) Total() uint64 { return m.total }
