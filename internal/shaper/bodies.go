package shaper

import (
	"container/heap"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// ahead asks for the bodies of the next n messages in turn that are not in memory, as
// far as a quarter of the budget reaches: at least one. ask returns false if it can
// take no more. It costs O(n log n), and is done again when a quarter of them has left.
func (x *index) ahead(n int, ask func(*message) bool) {
	if x.unloaded == 0 {
		return
	}
	for _, l := range x.out {
		if m := x.slab.at(l.head); !m.loaded() && !m.is(loading) && !x.ask(m, ask) {
			return
		}
	}
	if x.good > 0 {
		return
	}
	seen, bytes := 0, int64(0)
	x.fair.Ahead(func(f *algorithms.Flow, i int) (uint64, bool) {
		l := x.numbered[f.ID]
		if i == 0 {
			l.cursor = l.head
		} else {
			l.cursor = x.slab.at(l.cursor).next
		}
		if l.cursor == 0 {
			return 0, false
		}
		return x.slab.at(l.cursor).cost(), true
	}, func(f *algorithms.Flow, _ int) bool {
		m := x.slab.at(x.numbered[f.ID].cursor)
		if bytes += int64(m.size); bytes > x.budget/4 && seen > 0 {
			return false
		}
		if seen++; !m.loaded() && !m.is(loading) && !x.ask(m, ask) {
			return false
		}
		return seen < n
	})
	x.good = seen / 4
}

// ask asks for m's body if there is room; with nothing else under way there is.
func (x *index) ask(m *message, ask func(*message) bool) bool {
	if x.coming > 0 && x.held+x.coming+int64(m.size) > x.budget {
		return false
	}
	if !ask(m) {
		return false
	}
	m.set(loading, true)
	x.coming += int64(m.size)
	return true
}

// load gives m, whose body was asked for, its body back.
func (x *index) load(m *message, body []byte) {
	x.unasked(m)
	if m.loaded() {
		return
	}
	if m.state() == waiting {
		x.unloaded--
	}
	m.setBody(body)
	x.held += int64(m.size)
	x.seat(x.numbered[m.lane])
}

// unasked says that nobody reads m's body, or writes its attempt down, any more.
func (x *index) unasked(m *message) {
	switch {
	case !m.is(loading):
		return
	case m.loaded():
		x.writing--
	default:
		x.coming -= int64(m.size)
	}
	m.set(loading, false)
}

// gone forgets m, which waits and is no longer in the stream. It costs a look at those
// before it in its lane: what is read is near its turn.
func (x *index) gone(m *message) {
	l := x.numbered[m.lane]
	x.unasked(m)
	r := x.seqs.find(&x.slab, m.seq)
	if m.state() != waiting {
		return // it is in hand; the stream's own count tells
	}
	if l.head == r {
		l.head = m.next
		if l.head == 0 {
			l.tail = 0
		}
	} else {
		at := l.head
		for x.slab.at(at).next != r {
			at = x.slab.at(at).next
		}
		x.slab.at(at).next = m.next
		if l.tail == r {
			l.tail = at
		}
	}
	x.unqueued(m)
	x.forget(m)
	x.seat(l)
}

func (x *index) unqueued(m *message) {
	x.waiting--
	if !m.loaded() {
		x.unloaded--
	}
}

// prune forgets the waiting and delayed messages that keep does not want: the stream
// no longer has them. drop hears of each before. One pass over the index.
func (x *index) prune(keep func(*message) bool, drop func(*message)) (pruned int) {
	var delays dueHeap
	for _, d := range x.delays {
		if m := x.slab.at(d.message); keep(m) {
			delays = append(delays, d)
		} else {
			x.numbered[m.lane].away--
			drop(m)
			x.unasked(m)
			x.forget(m)
			pruned++
		}
	}
	heap.Init(&delays)
	x.delays = delays
	for _, l := range x.lanes {
		var head, tail ref
		for r := l.head; r != 0; {
			m := x.slab.at(r)
			next := m.next
			m.next = 0
			switch {
			case !keep(m):
				drop(m)
				x.unasked(m)
				x.unqueued(m)
				x.forget(m)
				pruned++
			case head == 0:
				head, tail = r, r
			default:
				x.slab.at(tail).next, tail = r, r
			}
			r = next
		}
		l.head, l.tail = head, tail
		x.seat(l)
	}
	return pruned
}
