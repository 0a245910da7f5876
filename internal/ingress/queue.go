package ingress

import (
	"strings"
	"sync"
)

// queue holds what was received and not yet decided, in a line a tenant: they take turns,
// so that who floods it delays nobody else by more than one message. It never blocks its
// producer, the NATS subscription: past its bounds push says no, and the message is
// refused instead of being dropped by the client library.
//
// A tenant that floods it must not cost the others their answers: while the queue
// is half full and others wait too, whoever holds more than half of it gets no more.
//
// Push and pop are O(1), popBefore looks at the first of each line.
type queue struct {
	maxMessages, maxBytes int
	prefix                int // length of the ingress prefix, its dot included

	mu     sync.Mutex
	ready  sync.Cond
	slab   []queued
	free   place
	lines  map[string]*tenantLine // by tenant, of those who wait
	spare  *tenantLine
	turn   *tenantLine // whose turn it is; the others follow
	last   *tenantLine
	n      int
	bytes  int
	idle   bool
	closed bool
	nudged bool
}

// queued is a message in its line.
type queued struct {
	incoming
	next place
}

// place is where a message stands in the slab, + 1; 0: nowhere.
type place int32

// tenantLine is a tenant's messages, oldest first.
type tenantLine struct {
	tenant      string
	first, last place
	n           int
	next        *tenantLine // in turn, or spare
}

// keptSlab bounds the room that an empty queue keeps.
const keptSlab = 1024

func newQueue(maxMessages, maxBytes int, prefix string) *queue {
	q := &queue{maxMessages: maxMessages, maxBytes: maxBytes, prefix: len(prefix), lines: map[string]*tenantLine{}}
	q.ready.L = &q.mu
	return q
}

// push reports false if the queue is full or closed.
func (q *queue) push(in incoming) bool {
	size := in.msg.Size()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.n >= q.maxMessages || q.n > 0 && q.bytes+size > q.maxBytes {
		return false
	}
	tenant := q.tenant(in)
	l := q.lines[tenant]
	if l != nil && q.n >= q.maxMessages/2 && 2*l.n > q.n && len(q.lines) > 1 {
		return false
	}
	if l == nil {
		l = q.open(strings.Clone(tenant))
	}
	at := q.free
	if at != 0 {
		q.free = q.slab[at-1].next
	} else {
		q.slab = append(q.slab, queued{})
		at = place(len(q.slab))
	}
	q.slab[at-1] = queued{incoming: in}
	if l.n == 0 {
		l.first = at
	} else {
		q.slab[l.last-1].next = at
	}
	l.last = at
	l.n++
	q.n++
	q.bytes += size
	if q.idle {
		q.idle = false
		q.ready.Signal()
	}
	return true
}

// tenant is the subject's token after the prefix, whatever it is.
func (q *queue) tenant(in incoming) string {
	subject := in.msg.Subject
	tenant, _, _ := strings.Cut(subject[min(q.prefix, len(subject)):], ".")
	return tenant
}

// open makes a tenant's line, the last in turn.
func (q *queue) open(tenant string) *tenantLine {
	l := q.spare
	if l != nil {
		q.spare = l.next
		*l = tenantLine{tenant: tenant}
	} else {
		l = &tenantLine{tenant: tenant}
	}
	q.lines[tenant] = l
	q.append(l)
	return l
}

// append makes a line the last in turn.
func (q *queue) append(l *tenantLine) {
	l.next = nil
	if q.turn == nil {
		q.turn = l
	} else {
		q.last.next = l
	}
	q.last = l
}

// nudge has pop return an incoming without a message, for whoever pops to look at
// something else.
func (q *queue) nudge() {
	q.mu.Lock()
	q.nudged, q.idle = true, false
	q.mu.Unlock()
	q.ready.Signal()
}

// pop waits for a message or a nudge; ok is false once the queue is closed and empty.
func (q *queue) pop() (in incoming, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.nudged {
		q.nudged = false
		return incoming{}, true
	}
	for q.n == 0 {
		if q.closed {
			return incoming{}, false
		}
		q.idle = true
		q.ready.Wait()
		if q.nudged {
			q.nudged = false
			return incoming{}, true
		}
	}
	l := q.turn
	q.turn = l.next
	in = q.take(l)
	if l.n > 0 {
		q.append(l)
	}
	return in, true
}

// popBefore takes a message that was received before the instant, if there is one.
func (q *queue) popBefore(instant int64) (in incoming, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var before *tenantLine
	for l := q.turn; l != nil; before, l = l, l.next {
		if q.slab[l.first-1].at >= instant {
			continue
		}
		if l.n == 1 {
			q.unlink(before, l)
		}
		return q.take(l), true
	}
	return incoming{}, false
}

// unlink takes a line out of the turn; before is the one before it, nil for the first.
func (q *queue) unlink(before, l *tenantLine) {
	if before == nil {
		q.turn = l.next
	} else {
		before.next = l.next
	}
	if q.last == l {
		q.last = before
	}
}

// take takes a line's first message. It requires that mu is held; a line that becomes
// empty must not be in turn any more.
func (q *queue) take(l *tenantLine) incoming {
	at := l.first
	s := &q.slab[at-1]
	in := s.incoming
	l.first = s.next
	*s = queued{next: q.free}
	q.free = at
	l.n--
	q.n--
	q.bytes -= in.msg.Size()
	if l.n == 0 {
		delete(q.lines, l.tenant)
		*l = tenantLine{next: q.spare}
		q.spare = l
	}
	if q.n == 0 && len(q.slab) > keptSlab { // a burst's room is given back
		q.slab, q.free, q.spare, q.lines = nil, 0, nil, map[string]*tenantLine{}
	}
	return in
}

// close lets pop give out what is left and then end.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.ready.Broadcast()
}

// resting reports whether the queue is empty and pop waits: whoever called it has
// dealt with the message before.
func (q *queue) resting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n == 0 && q.idle
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}
