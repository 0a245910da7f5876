package ingress

import (
	"container/heap"
	"sync"
	"time"
)

// longestHold bounds how long a message is held, whatever FLOWGATE_INGRESS_HOLD says: of
// the 2 s within which a producer is answered the rest is the broker's.
const longestHold = 1500 * time.Millisecond

// The bounds of what is held; beyond them it is refused as if nothing were.
const (
	heldMessages = 1 << 14
	heldBytes    = 32 << 20
)

// holding keeps messages that would be refused now and pass soon, until they do, so that
// a producer with a window of unanswered messages is slowed down by it in place of being
// refused (FLOWGATE_INGRESS_HOLD).
//
// A tenant's messages stay in their order: while one is held, those behind it are too.
// Only the first of a line is looked at, at the time of its hint, so what is held costs a
// step of a heap a message, however many are.
//
// The worker alone puts messages in and takes them out in turn; the sweep takes out what
// has been there for too long.
type holding struct {
	most  int64 // for so long; 0: nothing is held
	alarm *time.Timer

	mu    sync.Mutex
	lines map[string]*line // by tenant; none is empty
	due   lineHeap
	n     int
	bytes int
}

// heldMessage is a message and what the door found of it.
type heldMessage struct {
	in incoming
	v  verdict
	at int64 // when it passes, by its hint
}

// line is what is held of a tenant.
type line struct {
	tenant string
	queue  []heldMessage
	cost   int64 // of them all
	at     int64 // when the first is looked at again
	place  int   // in the heap
}

// newHolding holds messages for so long; wake is called when the first is due.
func newHolding(most time.Duration, wake func()) *holding {
	h := &holding{most: int64(min(most, longestHold)), lines: map[string]*line{}}
	if h.most > 0 {
		h.alarm = time.AfterFunc(time.Hour, wake)
		h.alarm.Stop()
	}
	return h
}

// ahead is what is held of a tenant: its cost, and whether there is anything.
func (h *holding) ahead(tenant string) (cost int64, any bool) {
	if h.most == 0 {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[tenant]; l != nil {
		return l.cost, true
	}
	return 0, false
}

// put holds a message that is refused for so long at the instant now, 0 if only by those
// that stand before it. It returns false if it cannot be held.
func (h *holding) put(m heldMessage, wait time.Duration, now int64) bool {
	if h.most == 0 || wait < 0 || int64(wait) > m.in.at+h.most-now {
		return false
	}
	size := m.in.msg.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n >= heldMessages || h.bytes+size > heldBytes {
		return false
	}
	m.at = now + int64(wait)
	l := h.lines[m.v.tenant]
	if l == nil {
		l = &line{tenant: m.v.tenant, at: m.at}
		h.lines[m.v.tenant] = l
		heap.Push(&h.due, l)
	}
	l.queue = append(l.queue, m)
	l.cost += m.v.wishes.cost
	h.n++
	h.bytes += size
	h.set(now)
	return true
}

// again puts back in its place a message that take gave out and that is refused again.
func (h *holding) again(m heldMessage, wait time.Duration, now int64) bool {
	if wait < 0 || int64(wait) > m.in.at+h.most-now {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[m.v.tenant]
	if l == nil {
		l = &line{tenant: m.v.tenant}
		h.lines[m.v.tenant] = l
		heap.Push(&h.due, l)
	}
	l.queue = append(l.queue, heldMessage{})
	copy(l.queue[1:], l.queue)
	l.cost += m.v.wishes.cost
	h.n++
	h.bytes += m.in.msg.Size()
	m.at = now + max(int64(wait), int64(time.Millisecond))
	l.queue[0], l.at = m, m.at
	heap.Fix(&h.due, l.place)
	h.set(now)
	return true
}

// take gives out the first message that is due at the instant now.
func (h *holding) take(now int64) (m heldMessage, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == 0 || h.due[0].at > now {
		h.set(now)
		return heldMessage{}, false
	}
	return h.pop(h.due[0]), true
}

// takeBefore gives out a message that was received before an instant.
func (h *holding) takeBefore(instant int64) (m heldMessage, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if l.queue[0].in.at < instant {
			return h.pop(l), true
		}
	}
	return heldMessage{}, false
}

// pop takes the first of a line; it requires that mu is held.
func (h *holding) pop(l *line) heldMessage {
	m := l.queue[0]
	l.queue[0] = heldMessage{}
	l.queue = l.queue[1:]
	l.cost -= m.v.wishes.cost
	h.n--
	h.bytes -= m.in.msg.Size()
	if len(l.queue) == 0 {
		heap.Remove(&h.due, l.place)
		delete(h.lines, l.tenant)
		return m
	}
	l.at = l.queue[0].at
	heap.Fix(&h.due, l.place)
	return m
}

// set sets the alarm; it requires that mu is held.
func (h *holding) set(now int64) {
	switch {
	case h.alarm == nil:
	case h.n == 0:
		h.alarm.Stop()
	default:
		h.alarm.Reset(time.Duration(max(0, h.due[0].at-now)))
	}
}

// stop ends the alarm.
func (h *holding) stop() {
	if h.alarm != nil {
		h.alarm.Stop()
	}
}

func (h *holding) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// lineHeap has the line that is due next first.
type lineHeap []*line

func (h lineHeap) Len() int           { return len(h) }
func (h lineHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *lineHeap) Push(x any) {
	l := x.(*line)
	l.place = len(*h)
	*h = append(*h, l)
}

func (h *lineHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
