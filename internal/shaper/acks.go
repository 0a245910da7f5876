package shaper

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var ackBody = []byte("+ACK")

// acks acknowledges messages and remembers those whose acknowledgement the
// broker has not confirmed: after a reset they come back and must not be
// delivered again.
//
// The consumer works acks off in order, so one that asks for a confirmation
// confirms all before it. One such ack is under way at a time: at a steady pace
// every ack, in a rush one a round trip.
//
// A reset makes old handles void: what they acknowledge is ignored. So at a
// reset the unconfirmed become stale. A stale message that is handed out again is
// acknowledged again; one that is not when all has been handed out was done.
//
// A message is in flight until then: a crash repeats no more than may be in flight.
type acks struct {
	nc    *nats.Conn
	inbox string
	// settled is told which messages the broker has let go; it is called without mu.
	settled func(seqs []uint64)

	mu sync.Mutex
	// fifo holds the unconfirmed in the order of their acks; first is the number
	// of fifo[0].
	fifo  []unconfirmed
	first uint64
	seqs  map[uint64]int // how often each sequence stands in fifo
	asked bool
	at    time.Time // of the last ask
	gen   uint8     // of the handles that are valid, see message.gen
	stale map[uint64]struct{}
}

type unconfirmed struct {
	seq    uint64
	handle string
}

// ackPatience is after what time a missing confirmation is asked for again.
const ackPatience = time.Second

func newAcks(nc *nats.Conn, settled func(seqs []uint64)) *acks {
	return &acks{nc: nc, inbox: nc.NewInbox(), settled: settled, seqs: map[uint64]int{}, stale: map[uint64]struct{}{}}
}

func (a *acks) listen() error {
	_, err := a.nc.Subscribe(a.inbox+".*", a.confirmed)
	if err != nil {
		return fmt.Errorf("shaper: subscribe to ack confirmations: %w", err)
	}
	return nil
}

// reset voids the handles handed out before the generation gen.
func (a *acks) reset(gen uint8) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gen = gen
	for _, u := range a.fifo {
		a.stale[u.seq] = struct{}{}
	}
	a.first += uint64(len(a.fifo))
	a.fifo, a.asked = nil, false
	clear(a.seqs)
}

// allHandedOut tells that since the last reset everything unacknowledged was
// handed out.
func (a *acks) allHandedOut() {
	a.mu.Lock()
	var gone []uint64
	for seq := range a.stale {
		gone = append(gone, seq)
	}
	clear(a.stale)
	a.mu.Unlock()
	if len(gone) > 0 {
		a.settled(gone)
	}
}

// done acknowledges seq with a handle of the generation gen.
func (a *acks) done(seq uint64, handle string, gen uint8) {
	a.mu.Lock()
	defer a.mu.Unlock() // over the publish: fifo keeps the connection's order
	if gen != a.gen {
		a.stale[seq] = struct{}{}
		return
	}
	a.send(seq, handle)
}

// again acknowledges seq, handed out anew, if it is done already, and reports
// whether it is.
func (a *acks) again(seq uint64, handle string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, stale := a.stale[seq]
	if _, sent := a.seqs[seq]; !sent && !stale {
		return false
	}
	delete(a.stale, seq)
	a.send(seq, handle)
	return true
}

// send requires that mu is held.
func (a *acks) send(seq uint64, handle string) {
	a.fifo = append(a.fifo, unconfirmed{seq, handle})
	a.seqs[seq]++
	a.publish(handle, a.first+uint64(len(a.fifo)))
}

// publish requires that mu is held; upTo is the number after the ack's own. A
// failure means a lost connection: a reset follows, and the message comes back.
func (a *acks) publish(handle string, upTo uint64) {
	if a.asked && time.Since(a.at) < ackPatience {
		_ = a.nc.Publish(handle, ackBody)
		return
	}
	a.asked, a.at = true, time.Now()
	_ = a.nc.PublishRequest(handle, a.inbox+"."+strconv.FormatUint(upTo, 10), ackBody)
}

func (a *acks) confirmed(m *nats.Msg) {
	if m.Header.Get("Status") != "" {
		return // no responders: the consumer is gone, a reset follows
	}
	upTo, err := strconv.ParseUint(m.Subject[len(a.inbox)+1:], 10, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	a.asked = false
	var gone []uint64
	for a.first < upTo && len(a.fifo) > 0 {
		seq := a.fifo[0].seq
		if a.seqs[seq]--; a.seqs[seq] == 0 {
			delete(a.seqs, seq)
			gone = append(gone, seq)
		}
		a.fifo[0] = unconfirmed{}
		a.fifo = a.fifo[1:]
		a.first++
	}
	a.ask()
	a.mu.Unlock()
	if len(gone) > 0 {
		a.settled(gone)
	}
}

// ask repeats the newest ack, asking for its confirmation, if some are
// unconfirmed and nothing is under way. It requires that mu is held.
func (a *acks) ask() {
	if n := len(a.fifo); n > 0 && (!a.asked || time.Since(a.at) >= ackPatience) {
		a.publish(a.fifo[n-1].handle, a.first+uint64(n))
	}
}

// nudge asks again for what is overdue.
func (a *acks) nudge() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ask()
}

// len is how many are done and not confirmed.
func (a *acks) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.fifo) + len(a.stale)
}

// wait waits for the confirmations, but no longer than d.
func (a *acks) wait(d time.Duration) {
	end := time.Now().Add(d)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for a.len() > 0 && time.Now().Before(end) {
		<-tick.C
	}
}
