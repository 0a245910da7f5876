package ingress

import (
	"strings"
	"sync"
)

// queue holds what was received and not yet decided. It never blocks its
// producer, the NATS subscription: past its bounds push says no, and the
// message is refused instead of being dropped by the client library.
//
// A tenant that floods it must not cost the others their answers: while the queue
// is half full and others wait too, whoever holds more than half of it gets no more.
type queue struct {
	maxMessages, maxBytes int
	prefix                int // length of the ingress prefix, its dot included

	mu     sync.Mutex
	ready  sync.Cond
	buf    []incoming // a ring; its length is a power of two
	head   int
	n      int
	bytes  int
	idle   bool
	closed bool
	nudged bool
	held   map[string]int // messages by tenant
}

func newQueue(maxMessages, maxBytes int, prefix string) *queue {
	q := &queue{maxMessages: maxMessages, maxBytes: maxBytes, prefix: len(prefix), buf: make([]incoming, 64), held: map[string]int{}}
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
	mine, known := q.held[tenant]
	if q.n >= q.maxMessages/2 && 2*mine > q.n && len(q.held) > 1 {
		return false
	}
	if !known {
		tenant = strings.Clone(tenant)
	}
	q.held[tenant] = mine + 1
	if q.n == len(q.buf) {
		q.resize(2 * len(q.buf))
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = in
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
	return q.take(), true
}

// popBefore takes the oldest message if it was received before the instant.
func (q *queue) popBefore(instant int64) (in incoming, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 || q.buf[q.head].at >= instant {
		return incoming{}, false
	}
	return q.take(), true
}

// take requires that mu is held and n > 0.
func (q *queue) take() incoming {
	in := q.buf[q.head]
	q.buf[q.head] = incoming{}
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	q.bytes -= in.msg.Size()
	tenant := q.tenant(in)
	if n := q.held[tenant]; n > 1 {
		q.held[tenant] = n - 1
	} else {
		delete(q.held, tenant)
	}
	if q.n == 0 && len(q.buf) > 1024 {
		q.buf, q.head = make([]incoming, 64), 0 // a burst's room is given back
	}
	return in
}

// resize requires that mu is held.
func (q *queue) resize(size int) {
	buf := make([]incoming, size)
	for i := range q.n {
		buf[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
	}
	q.buf, q.head = buf, 0
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
