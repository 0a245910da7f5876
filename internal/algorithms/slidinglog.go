package algorithms

import (
	"sync"
	"sync/atomic"
)

// slidingLog is a window (now − period, now] that moves with every instant. The log
// remembers each request and is exact; it costs 16 bytes for each instant at which
// something passed in the last period. The sliding window is the same up to 128
// instants; past them it merges those within a 64th of the period into the latest,
// so its memory is bounded and it never admits more than the limit in any window,
// but may hold a request for up to a 64th of the period too long.
//
// Its state is the number of its ring, from 1 on. A decision costs a look at the
// requests that have left the window since the last one that passed. A clock that
// steps back is taken as at the latest request.
type slidingLog struct {
	limit  uint64
	period int64
	// cell is the width within which requests are merged, in ns; 0: never.
	cell int64

	// A ring is its key's, and so is its place here: they need no lock.
	rings atomic.Pointer[[]*ring]
	mu    sync.Mutex // guards the numbers
	free  []uint64
}

const (
	cells      = 64
	mergedFrom = 2 * cells
	// maxLogged is the largest limit of a log: 16 MB a key.
	maxLogged = 1_000_000
)

// ring holds what passed, the oldest first.
type ring struct {
	events []event
	head   int // those before it are out of the window
	sum    uint64
}

type event struct {
	at int64
	n  uint64
}

func (l *slidingLog) words() int { return 1 }

func (l *slidingLog) ring(s []uint64) *ring {
	if s[0] == 0 {
		return nil
	}
	return (*l.rings.Load())[s[0]-1]
}

// number gives the state a ring of its own.
func (l *slidingLog) number(s []uint64) *ring {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &ring{}
	var rings []*ring
	if p := l.rings.Load(); p != nil {
		rings = *p
	}
	if last := len(l.free) - 1; last >= 0 {
		s[0] = l.free[last]
		l.free = l.free[:last]
		rings[s[0]-1] = r
		return r
	}
	rings = append(rings, r)
	s[0] = uint64(len(rings))
	l.rings.Store(&rings)
	return r
}

func (l *slidingLog) forget(s []uint64) {
	if s[0] == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	(*l.rings.Load())[s[0]-1] = nil
	l.free = append(l.free, s[0])
	s[0] = 0
}

// inside is what of r is still in the window at an instant: from which event on,
// and how much.
func (l *slidingLog) inside(r *ring, now int64) (first int, sum uint64) {
	first, sum = r.head, r.sum
	for first < len(r.events) && later(r.events[first].at, l.period) <= now {
		sum -= r.events[first].n
		first++
	}
	return first, sum
}

func (l *slidingLog) decide(s []uint64, now, n int64, take bool) Decision {
	r := l.ring(s)
	var (
		first int
		sum   uint64
		last  = now // the latest request
		want  = uint64(n)
		d     Decision
	)
	if r != nil {
		last = r.events[len(r.events)-1].at
		first, sum = l.inside(r, max(now, last))
	}
	switch {
	case want == 0 || sum < l.limit && want <= l.limit-sum:
		d.Allowed = true
		sum += want
		if take && want > 0 {
			if r == nil {
				r = l.number(s)
			}
			last = max(now, last)
			l.add(r, first, sum, event{last, want})
		} else if want > 0 {
			last = max(now, last)
		}
	case want > l.limit:
		d.RetryAfter = Never
	default:
		over, i := sum-(l.limit-want), first
		for ; r.events[i].n < over; i++ {
			over -= r.events[i].n
		}
		d.RetryAfter = until(later(r.events[i].at, l.period), now)
	}
	if sum < l.limit {
		d.Remaining = l.limit - sum
	}
	if sum > 0 {
		d.Reset = until(later(last, l.period), now)
	}
	return d
}

// add drops what is before first and appends e.
func (l *slidingLog) add(r *ring, first int, sum uint64, e event) {
	clear(r.events[r.head:first])
	r.head, r.sum = first, sum
	if last := len(r.events) - 1; last >= first && r.events[last].at == e.at {
		r.events[last].n += e.n
		return
	}
	live := r.events[first:]
	switch size := max(4, len(live)+len(live)/2); {
	case l.cell > 0 && len(live) >= mergedFrom:
		r.events, r.head = merge(r.events[:0], live, l.cell), 0
	case len(r.events) < cap(r.events):
	case size <= cap(r.events)/2, size > cap(r.events): // room is given back, or made
		r.events, r.head = append(make([]event, 0, size), live...), 0
	default:
		r.events, r.head = append(r.events[:0], live...), 0
	}
	r.events = append(r.events, e)
}

// merge joins the requests of a cell into its latest, and puts them where kept begins,
// which may be where events lie.
func merge(kept, events []event, cell int64) []event {
	for _, e := range events {
		if last := len(kept) - 1; last >= 0 && floorDiv(kept[last].at, cell) == floorDiv(e.at, cell) {
			kept[last] = event{e.at, kept[last].n + e.n}
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

func (l *slidingLog) idle(s []uint64, now int64) bool {
	r := l.ring(s)
	return r == nil || later(r.events[len(r.events)-1].at, l.period) <= now
}

func (l *slidingLog) used(s []uint64, now int64) (whole, part uint64) {
	r := l.ring(s)
	if r == nil {
		return 0, 0
	}
	_, sum := l.inside(r, max(now, r.events[len(r.events)-1].at))
	return sum, 0
}

func (l *slidingLog) occupy(s []uint64, now int64, whole, part uint64) {
	if n := min(roundUp(whole, part), l.limit); n > 0 {
		l.add(l.number(s), 0, n, event{now, n})
	}
}

// inherit takes over the requests that another log has of a key.
func (l *slidingLog) inherit(s []uint64, other *slidingLog, from []uint64, now int64) {
	old := other.ring(from)
	if old == nil {
		return
	}
	first, sum := l.inside(old, max(now, old.events[len(old.events)-1].at))
	if first == len(old.events) {
		return
	}
	events := append([]event(nil), old.events[first:]...)
	if l.cell > 0 && len(events) > mergedFrom {
		events = merge(events[:0], events, l.cell)
	}
	*l.number(s) = ring{events: events, sum: sum}
}
