package fragile

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// State is how it is.
type State string

// The states.
const (
	Up      State = "up"
	Warming State = "warming" // up, and slower than it will be
	Down    State = "down"
)

// Health is how it is at an instant.
type Health struct {
	State    State
	InFlight int
	// Latency is what a mean statement takes that starts now if the load stays as it is;
	// 0 while it is down.
	Latency time.Duration
	// Counts are since the beginning.
	Counts Counts
}

// Health looks at it.
func (d *Database) Health(now int64) Health {
	d.advance(now)
	h := Health{State: Up, InFlight: len(d.running), Counts: d.counts}
	if d.down {
		h.State = Down
		return h
	}
	cold := d.coldness()
	if cold > 1 {
		h.State = Warming
	}
	h.Latency = time.Duration(float64(d.cfg.Latency) * cold / d.speed(max(1, len(d.running))))
	return h
}

func sortByID(o []Outcome) {
	slices.SortFunc(o, func(a, b Outcome) int { return cmp.Compare(a.ID, b.ID) })
}

// statements is a heap of those in flight: the one that ends first is on top.
type statements []*statement

var _ heap.Interface = (*statements)(nil)

func (s statements) Len() int { return len(s) }

func (s statements) Less(i, j int) bool {
	if s[i].mark != s[j].mark {
		return s[i].mark < s[j].mark
	}
	return s[i].id < s[j].id
}

func (s statements) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

func (s *statements) Push(v any) {
	added := v.(*statement)
	added.place = len(*s)
	*s = append(*s, added)
}

func (s *statements) Pop() any {
	old := *s
	top := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	return top
}
