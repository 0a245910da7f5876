package shaper

import (
	"container/heap"
	"slices"
)

// later sets m, in flight until now, aside until it is due.
func (x *index) later(m *message, at int64) {
	x.flying--
	m.setState(delayed)
	if m.loaded() && x.held > x.budget/4*arrivalShare {
		x.held -= int64(m.size)
		m.body = nil
	}
	heap.Push(&x.delays, due{at, x.seqs.find(&x.slab, m.seq)})
}

// promote puts the delayed messages that are due back in their queues.
func (x *index) promote(now int64) {
	var yielding []*lane
	for len(x.delays) > 0 && x.delays[0].at <= now {
		r := heap.Pop(&x.delays).(due).message
		m := x.slab.at(r)
		l := x.numbered[m.lane]
		l.away--
		x.stepIn(l, r, m)
		x.seat(l)
		if x.tries[m.seq].yields && !slices.Contains(yielding, l) {
			yielding = append(yielding, l)
		}
	}
	for _, l := range yielding {
		x.yield(l)
	}
}

// yield brings the first message of l to the front that need not yield, if there is one. It
// costs a look at those before it: what was in flight when deliveries were held back, and
// one for each probe.
func (x *index) yield(l *lane) {
	if x.ordered {
		return
	}
	before := ref(0)
	for r := l.head; r != 0; r = x.slab.at(r).next {
		m := x.slab.at(r)
		if x.tries[m.seq].yields {
			before = r
			continue
		}
		if before != 0 {
			x.slab.at(before).next, m.next = m.next, l.head
			if l.head = r; l.tail == r {
				l.tail = before
			}
			x.seat(l)
		}
		return
	}
}

// nextDue is when the next delayed message is due; ok is false if none is.
func (x *index) nextDue() (at int64, ok bool) {
	if len(x.delays) == 0 {
		return 0, false
	}
	return x.delays[0].at, true
}

// due is a delayed message and when it may be tried again, Unix ns.
type due struct {
	at      int64
	message ref
}

// dueHeap is the delayed, next due first.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	*h = old[:len(old)-1]
	return d
}
