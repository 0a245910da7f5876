package shaper

import (
	"container/heap"
	"strconv"
	"strings"
)

// index holds every message of the backlog that the feed has seen and that is
// not done: by sequence, in a queue a tenant, and by due time if delayed. The
// caller holds the lock.
//
// Taking the next message is O(1), whatever the number of tenants; delaying one
// is O(log delayed). Tenants without messages cost nothing.
type index struct {
	bySeq map[uint64]*message
	lanes map[string]*lane
	// first and last are the ring of lanes with waiting messages, next in turn
	// first.
	first, last *lane
	delays      dueHeap
	nWaiting    int
	nInFlight   int
	// budget is how many bytes of bodies are kept; held is how many are.
	budget, held int64
	unloaded     int // waiting messages whose body is not in memory
}

// lane is one tenant's queue, in stream order but for retries.
type lane struct {
	tenant     string
	topic      string // of the newest message
	head, tail *message
	turn       *lane // the next lane in the ring
	inRing     bool
	messages   int // of this tenant in the index, in any state
}

func newIndex(budget int64) *index {
	return &index{bySeq: map[uint64]*message{}, lanes: map[string]*lane{}, budget: budget}
}

// add takes in a message that is not there yet, delayed if it has a due time. A
// body over the budget is let go; it is read again when its turn comes near.
func (x *index) add(m *message, tenant string) {
	l := x.lanes[tenant]
	if l == nil {
		l = &lane{tenant: strings.Clone(tenant)}
		x.lanes[l.tenant] = l
	}
	m.lane = l
	l.messages++
	// A subject a message would be kept for its topic; most of a tenant's are alike.
	if l.topic != m.topic {
		l.topic = strings.Clone(m.topic)
	}
	m.topic = l.topic
	x.bySeq[m.seq] = m
	if x.held+int64(m.size) > x.budget {
		m.body = nil
	} else {
		x.held += int64(m.size)
	}
	if m.due != 0 {
		m.state = delayed
		heap.Push(&x.delays, m)
		return
	}
	x.wait(m, false)
}

// wait puts m in its lane's queue, at the front if it steps back in.
func (x *index) wait(m *message, front bool) {
	m.state = waiting
	x.nWaiting++
	if m.body == nil {
		x.unloaded++
	}
	l := m.lane
	switch {
	case l.head == nil:
		l.head, l.tail = m, m
	case front:
		m.next, l.head = l.head, m
	default:
		l.tail.next, l.tail = m, m
	}
	x.enter(l)
}

// enter gives l the last turn of the ring.
func (x *index) enter(l *lane) {
	if l.inRing {
		return
	}
	l.inRing = true
	if x.first == nil {
		x.first, x.last = l, l
		return
	}
	x.last.turn, x.last = l, l
}

// take removes the next message in turn whose body is in memory and marks it in
// flight; nil if there is none.
func (x *index) take() *message {
	for n := x.first; n != nil; n = x.first {
		m := n.head
		if m.body == nil {
			return x.takeLoaded()
		}
		x.leave(nil, n)
		return x.depart(n)
	}
	return nil
}

// takeLoaded looks past lanes whose next message is still being read: they keep
// their turn.
func (x *index) takeLoaded() *message {
	for before, l := x.first, x.first.turn; l != nil; before, l = l, l.turn {
		if l.head.body != nil {
			x.leave(before, l)
			return x.depart(l)
		}
	}
	return nil
}

// leave takes l, which follows before, out of the ring.
func (x *index) leave(before, l *lane) {
	if before == nil {
		x.first = l.turn
	} else {
		before.turn = l.turn
	}
	if x.last == l {
		x.last = before
	}
	l.turn, l.inRing = nil, false
}

// depart takes l's first message out and gives l its next turn.
func (x *index) depart(l *lane) *message {
	m := x.pop(l)
	m.state = inFlight
	x.nInFlight++
	if l.head != nil {
		x.enter(l)
	}
	return m
}

func (x *index) pop(l *lane) *message {
	m := l.head
	l.head, m.next = m.next, nil
	if l.head == nil {
		l.tail = nil
	}
	x.nWaiting--
	if m.body == nil {
		x.unloaded--
	}
	return m
}

// later sets m, in flight until now, aside until it is due.
func (x *index) later(m *message, due int64) {
	x.nInFlight--
	m.state, m.due = delayed, due
	heap.Push(&x.delays, m)
}

// promote puts the delayed messages that are due back in their queues, at the
// front: they are their tenant's oldest.
func (x *index) promote(now int64) {
	for len(x.delays) > 0 && x.delays[0].due <= now {
		x.wait(heap.Pop(&x.delays).(*message), true)
	}
}

// nextDue is when the next delayed message is due; ok is false if none is.
func (x *index) nextDue() (due int64, ok bool) {
	if len(x.delays) == 0 {
		return 0, false
	}
	return x.delays[0].due, true
}

// putBack undoes take: m is its tenant's next again, whose turn it was.
func (x *index) putBack(m *message) {
	x.nInFlight--
	l := m.lane
	x.wait(m, true)
	if x.first == l {
		return
	}
	for before := x.first; before != nil; before = before.turn {
		if before.turn == l {
			x.leave(before, l)
			break
		}
	}
	l.inRing, l.turn, x.first = true, x.first, l
	if x.last == nil {
		x.last = l
	}
}

// done forgets m, which is in flight.
func (x *index) done(m *message) {
	x.nInFlight--
	x.forget(m)
}

func (x *index) forget(m *message) {
	delete(x.bySeq, m.seq)
	if m.body != nil {
		x.held -= int64(m.size)
	}
	l := m.lane
	if l.messages--; l.messages == 0 {
		delete(x.lanes, l.tenant)
	}
}

// load gives m its body back.
func (x *index) load(m *message, body []byte, headers int) {
	if m.body != nil {
		return
	}
	if m.state == waiting {
		x.unloaded--
	}
	m.setBody(body, headers)
	x.held += int64(m.size)
}

// unloadedAhead calls f with up to n of the messages next in turn, for those
// whose body is neither in memory nor being read.
func (x *index) unloadedAhead(n int, f func(*message)) {
	if x.unloaded == 0 {
		return
	}
	depth := 1
	for seen := 0; seen < n; depth++ {
		any := false
		for l := x.first; l != nil && seen < n; l = l.turn {
			m := l.head
			for i := 1; i < depth && m != nil; i++ {
				m = m.next
			}
			if m == nil {
				continue
			}
			any = true
			seen++
			if m.body == nil && !m.loading {
				f(m)
			}
		}
		if !any {
			return
		}
	}
}

// prune forgets the waiting and delayed messages that keep does not want: the
// stream no longer has them. One pass over the index.
func (x *index) prune(keep func(*message) bool) (pruned []*message) {
	for _, l := range x.lanes {
		var head, tail *message
		for m := l.head; m != nil; {
			next := m.next
			m.next = nil
			switch {
			case !keep(m):
				pruned = append(pruned, m)
				x.nWaiting--
				if m.body == nil {
					x.unloaded--
				}
			case head == nil:
				head, tail = m, m
			default:
				tail.next, tail = m, m
			}
			m = next
		}
		l.head, l.tail = head, tail
	}
	for before, l := (*lane)(nil), x.first; l != nil; {
		next := l.turn
		if l.head == nil {
			x.leave(before, l)
		} else {
			before = l
		}
		l = next
	}
	var delays dueHeap
	for _, m := range x.delays {
		if keep(m) {
			m.heap = int32(len(delays))
			delays = append(delays, m)
		} else {
			pruned = append(pruned, m)
		}
	}
	heap.Init(&delays)
	x.delays = delays
	for _, m := range pruned {
		x.forget(m)
	}
	return pruned
}

// oldest is when the broker stored the oldest message; ok is false without one.
// It costs a look at each tenant's first message and at the delayed.
func (x *index) oldest() (at int64, ok bool) {
	consider := func(m *message) {
		if !ok || m.at < at {
			at, ok = m.at, true
		}
	}
	for _, l := range x.lanes {
		if l.head != nil {
			consider(l.head)
		}
	}
	for _, m := range x.delays {
		consider(m)
	}
	return at, ok
}

func (x *index) len() int { return len(x.bySeq) }

// dueHeap orders delayed messages by due time, then by sequence.
type dueHeap []*message

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq > h[j].seq // put back at the front one by one: the oldest last
}
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = int32(i), int32(j)
}
func (h *dueHeap) Push(v any) {
	m := v.(*message)
	m.heap = int32(len(*h))
	*h = append(*h, m)
}
func (h *dueHeap) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}

func formatSeq(seq uint64) string { return strconv.FormatUint(seq, 10) }
