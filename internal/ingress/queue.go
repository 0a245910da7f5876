package ingress

import "sync"

// queue holds what was received and not yet decided. It never blocks its
// producer, the NATS subscription: past its bounds push says no, and the
// message is refused instead of being dropped by the client library.
type queue struct {
	maxMessages, maxBytes int

	mu     sync.Mutex
	ready  sync.Cond
	buf    []incoming // a ring; its length is a power of two
	head   int
	n      int
	bytes  int
	idle   bool
	closed bool
}

func newQueue(maxMessages, maxBytes int) *queue {
	q := &queue{maxMessages: maxMessages, maxBytes: maxBytes, buf: make([]incoming, 64)}
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

// pop waits for a message; ok is false once the queue is closed and empty.
func (q *queue) pop() (in incoming, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.n == 0 {
		if q.closed {
			return incoming{}, false
		}
		q.idle = true
		q.ready.Wait()
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
