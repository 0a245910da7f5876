package ingress

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// callerPatience is how long an HTTP request waits, with callerLook added at most: a
// little longer than the sweep that answers for a worker or a broker that does not.
const (
	callerPatience = 2300 * time.Millisecond
	callerLook     = 200 * time.Millisecond
)

// outcome is the answer to a message that came over HTTP: the broker's word, or a
// refusal.
type outcome struct {
	ack     []byte
	refused *Refusal
}

// caller waits for one outcome at a time.
type caller struct {
	at      int64        // when its message was received
	outcome chan outcome // holds one
}

// relayed is a message over NATS whose answer the gateway passes on.
type relayed struct {
	reply string
	at    int64
}

// callers are those who get the broker's answer through the gateway, by the number at
// the end of their message's reply subject, which is the gateway's own: HTTP requests,
// and messages that another account imports; their reply subject is one that the
// broker lets no client but itself publish with. An answer for a number that nobody
// waits for any more is dropped. It costs a map entry under an uncontended lock and,
// but for the subject, no memory: callers are used again.
type callers struct {
	inbox string // with its dot
	// pass answers what was relayed.
	pass func(reply string, o outcome)
	now  func() int64

	mu      sync.Mutex
	looking bool // the timer runs
	last    uint64
	waiting map[uint64]*caller
	relays  map[uint64]relayed
	pool    sync.Pool
}

func newCallers(inbox string, now func() int64, pass func(string, outcome)) *callers {
	return &callers{inbox: inbox + ".", now: now, pass: pass, waiting: map[uint64]*caller{}, relays: map[uint64]relayed{}}
}

// enter gives a caller for a message received at the instant at, and the reply subject
// that reaches it.
func (c *callers) enter(at int64) (w *caller, reply string) {
	w, _ = c.pool.Get().(*caller)
	if w == nil {
		w = &caller{outcome: make(chan outcome, 1)}
	}
	w.at = at
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = w
	if !c.looking {
		c.looking = true
		time.AfterFunc(callerLook, c.look)
	}
	c.mu.Unlock()
	return w, c.subject(id)
}

// await waits for the outcome, which comes in any case. w is not to be used again.
func (c *callers) await(w *caller) outcome {
	o := <-w.outcome
	c.pool.Put(w)
	return o
}

// look answers who has waited too long.
func (c *callers) look() {
	instant := c.now() - int64(callerPatience)
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, w := range c.waiting {
		if w.at < instant {
			delete(c.waiting, id)
			w.outcome <- outcome{refused: unconfirmed()} // has room
		}
	}
	if c.looking = len(c.waiting) > 0; c.looking {
		time.AfterFunc(callerLook, c.look)
	}
}

// relay gives the reply subject in whose place the gateway answers the other one.
func (c *callers) relay(reply string, at int64) string {
	c.mu.Lock()
	c.last++
	id := c.last
	c.relays[id] = relayed{reply, at}
	c.mu.Unlock()
	return c.subject(id)
}

func (c *callers) subject(id uint64) string {
	var digits [20]byte
	return c.inbox + string(strconv.AppendUint(digits[:0], id, 36))
}

// answer gives o to whom the reply subject belongs; false if that is not one of ours.
func (c *callers) answer(reply string, o outcome) bool {
	number, ours := strings.CutPrefix(reply, c.inbox)
	if !ours {
		return false
	}
	id, err := strconv.ParseUint(number, 36, 64)
	if err != nil {
		return true
	}
	c.mu.Lock()
	w, r := c.waiting[id], c.relays[id]
	delete(c.waiting, id)
	delete(c.relays, id)
	c.mu.Unlock()
	if w != nil {
		w.outcome <- o
	} else if r.reply != "" {
		c.pass(r.reply, o)
	}
	return true
}

// forget drops what was to be relayed: it did not leave.
func (c *callers) forget(reply string) {
	if number, ours := strings.CutPrefix(reply, c.inbox); ours {
		if id, err := strconv.ParseUint(number, 36, 64); err == nil {
			c.mu.Lock()
			delete(c.relays, id)
			c.mu.Unlock()
		}
	}
}

// giveUp answers what was received before the instant and is still to be relayed: the
// broker's answer was lost on its way here. HTTP requests do not depend on the sweep,
// which may hang where a connection hangs.
func (c *callers) giveUp(instant int64) {
	var late []string
	c.mu.Lock()
	for id, r := range c.relays {
		if r.at < instant {
			late = append(late, r.reply)
			delete(c.relays, id)
		}
	}
	c.mu.Unlock()
	for _, reply := range late {
		c.pass(reply, outcome{refused: unconfirmed()})
	}
}

// none reports whether nobody waits.
func (c *callers) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)+len(c.relays) == 0
}
