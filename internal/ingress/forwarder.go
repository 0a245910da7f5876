package ingress

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// The forwarder's times. A producer is answered within 2 s of its message's
// arrival, whatever the broker does: async JetStream clients have no timeout of
// their own.
const (
	canaryEvery = 20 * time.Millisecond
	canaryLost  = 250 * time.Millisecond
	silence     = time.Second
	patience    = 1800 * time.Millisecond
)

// errUnconfirmed means that too much was forwarded that the broker has not
// confirmed.
var errUnconfirmed = errors.New("ingress: the broker does not keep up with confirming")

// Forwarder publishes admitted messages into the backlog stream with the
// producers' reply subjects, so that the broker answers them itself.
//
// What it cannot see is whether the broker did: with the stream gone or without
// a leader a forwarded message gets no answer at all. So while there is traffic
// it sends a canary through the same stream on the same connection. The broker
// works in order, so the canary's answer confirms all that went before it on that
// connection. What stays unconfirmed for too long is answered by the gateway, and
// nothing more is taken until a canary comes back.
//
// On a stream without replicas the canary is a publish that expects an
// impossible last sequence: the stream refuses it in order, tells its last
// sequence, and stores nothing. With replicas such a refusal would come before
// the messages ahead of it are replicated, so there the canary is stored, under
// a subject no tenant can have, and the outlet takes it away on sight.
//
// A refusal by the expected sequence comes before the write, though: if the disk is
// full the canary is answered and the messages before it are not, nor are they
// stored. So the two last sequences are compared with what was forwarded between
// them. If fewer were stored (duplicates, which the broker answered, or a fault of
// its disk), nothing is confirmed until a canary that has to be stored was.
//
// A message costs an entry of a ring, held for about one canary (20 ms); the
// canaries cost 50 publishes a second under traffic and none without.
type Forwarder struct {
	nc        *nats.Conn
	canary    string // its subject
	stored    bool   // canaries are always stored
	inbox     string
	now       func() int64
	unanswer  func(reply string)
	confirmed func(forwarded, lastSeq uint64, own bool)
	wake      chan struct{}
	answers   chan *nats.Msg

	// The watch's own: how often the connection was made again, the last canary that
	// told the stream's last sequence, and whether what was forwarded since is missing.
	epoch uint64
	base  *mark
	doubt *mark
	sub   *nats.Subscription

	// sent counts the messages published, by the worker alone. order is held over a
	// publish and its count, so that a canary knows exactly what it follows.
	order  sync.Mutex
	sent   atomic.Uint64
	silent atomic.Bool
	down   atomic.Bool // there is no connection

	mu   sync.Mutex
	ring []pending // indexed by count, modulo its length
	head uint64    // messages entered
	tail uint64    // of these, confirmed or given up
}

// pending is a forwarded message that is not confirmed.
type pending struct {
	reply string
	at    int64 // received
	sent  int64 // forwarded: it may have been held before
}

// impossibleSequence is a last sequence that no stream has.
const impossibleSequence = "9007199254740991"

const ringSize = 1 << 16

// mark is how many messages were forwarded before a canary, and the stream's last
// sequence then.
type mark struct{ forwarded, lastSeq uint64 }

// CanarySubject is the last token of the subject that stored canaries have
// below the backlog's prefix. No tenant can be called that.
const CanarySubject = "$canary"

// newForwarder: stored asks for canaries that the stream stores; unanswer gives
// a producer the answer that the broker does not; confirmed is told how many
// messages are through the stream and the stream's last sequence then, and whether
// that is a canary's own.
func newForwarder(nc *nats.Conn, backlog string, stored bool, now func() int64, unanswer func(reply string), confirmed func(forwarded, lastSeq uint64, own bool)) *Forwarder {
	return &Forwarder{
		nc: nc, now: now, unanswer: unanswer, confirmed: confirmed,
		inbox:   nc.NewInbox(),
		canary:  backlog + CanarySubject,
		stored:  stored,
		wake:    make(chan struct{}, 1),
		answers: make(chan *nats.Msg, 256),
		ring:    make([]pending, ringSize),
	}
}

// forward publishes m, received at the instant at, at the instant now. It is called by one
// goroutine. An error means that the message did not leave and its producer has
// no answer.
func (f *Forwarder) forward(m *nats.Msg, at, now int64) error {
	f.mu.Lock()
	if f.head-f.tail >= ringSize {
		f.mu.Unlock()
		return errUnconfirmed
	}
	entry := f.head
	f.ring[entry%ringSize] = pending{m.Reply, at, now}
	f.head++
	first := f.head-f.tail == 1
	f.mu.Unlock()

	f.order.Lock()
	err := f.nc.PublishMsg(m)
	f.sent.Store(entry + 1)
	f.order.Unlock()
	if err != nil {
		f.mu.Lock()
		answered := f.tail > entry
		if !answered {
			f.ring[entry%ringSize].reply = ""
		}
		f.mu.Unlock()
		if answered {
			err = nil
		}
	}
	if first {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return err
}

// listen subscribes to the canaries' answers and sends a first one, to compare the
// next with.
func (f *Forwarder) listen() (err error) {
	f.sub, err = f.nc.ChanSubscribe(f.inbox+".*.*", f.answers)
	if err != nil {
		return fmt.Errorf("ingress: subscribe to the canary's answers: %w", err)
	}
	f.epoch = f.nc.Stats().Reconnects
	if !f.stored {
		f.sendCanary()
	}
	return nil
}

// watch sends canaries and hears their answers. It can hang where the connection
// hangs, so giveUp is called from elsewhere.
func (f *Forwarder) watch(ctx context.Context) {
	defer func() { _ = f.sub.Unsubscribe() }()
	tick := time.NewTicker(canaryEvery)
	tick.Stop()
	defer tick.Stop()
	status := f.nc.StatusChanged()
	defer f.nc.RemoveStatusListener(status)
	f.down.Store(!f.nc.IsConnected())
	watching := false
	var last int64 // when the last canary left
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			if !watching {
				watching = true
				tick.Reset(canaryEvery)
			}
		case <-status:
			f.down.Store(!f.nc.IsConnected())
		case m := <-f.answers:
			if f.heard(m) {
				last = 0
			}
		case <-tick.C:
			f.renew()
			if !f.open() {
				tick.Stop()
				watching = false
				continue
			}
			if now := f.now(); last == 0 || now-last >= int64(canaryLost) {
				last = now
				f.sendCanary()
			}
		}
	}
}

// renew answers for what was under way when the connection broke: a canary on the
// new one says nothing of what went by the old one.
func (f *Forwarder) renew() {
	if n := f.nc.Stats().Reconnects; n != f.epoch {
		f.epoch = n
		f.giveUpTo(f.sent.Load())
	}
}

// ready reports whether a message can leave now. It does not ask the connection,
// which may hang.
func (f *Forwarder) ready() bool {
	f.mu.Lock()
	room := f.head-f.tail < ringSize
	f.mu.Unlock()
	return room && !f.down.Load()
}

// open reports whether there is something to watch: unconfirmed messages, or a
// silent broker.
func (f *Forwarder) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head > f.tail || f.silent.Load()
}

// The kinds of canaries, as their reply subjects say.
const (
	refusedCanary = "r"
	storedCanary  = "s"
)

func (f *Forwarder) sendCanary() {
	m := nats.Msg{Subject: f.canary}
	kind := storedCanary
	if !f.stored && f.doubt == nil {
		kind = refusedCanary
		m.Header = nats.Header{"Nats-Expected-Last-Sequence": {impossibleSequence}}
	}
	f.order.Lock()
	defer f.order.Unlock()
	m.Reply = f.inbox + "." + kind + "." + strconv.FormatUint(f.sent.Load(), 10)
	// Without a connection there is no answer either; giveUp deals with that.
	_ = f.nc.PublishMsg(&m)
}

// heard takes a canary's answer and reports whether the next one may leave.
func (f *Forwarder) heard(m *nats.Msg) bool {
	kind, number, _ := strings.Cut(m.Subject[len(f.inbox)+1:], ".")
	forwarded, err := strconv.ParseUint(number, 10, 64)
	if err != nil || forwarded > f.sent.Load() || f.nc.Stats().Reconnects != f.epoch {
		return false
	}
	own := kind == storedCanary
	a := readCanary(m, own)
	now := mark{forwarded, a.lastSeq}
	switch {
	case a.kind == canaryNoStream:
		// Nobody will answer what went before it.
		f.silent.Store(true)
		f.giveUpTo(forwarded)
		return false
	case a.kind != canaryThrough:
		return false
	case !own && a.known && f.missing(now):
		f.doubt = &now
		return true
	case own && !a.known && f.doubt != nil:
		// Full: the broker answered it, and so those before. The one that raised the
		// doubt knew the sequence.
		now, own, a.known = *f.doubt, false, true
	}
	f.doubt = nil
	f.confirm(now.forwarded)
	if a.known {
		f.base = &now
		f.confirmed(now.forwarded, now.lastSeq, own)
	}
	return true
}

// missing reports whether the stream stored less than was forwarded since the last
// canary that told its sequence; without one nothing is known.
func (f *Forwarder) missing(now mark) bool {
	if f.base == nil {
		return false
	}
	return now.lastSeq < f.base.lastSeq || now.forwarded-f.base.forwarded > now.lastSeq-f.base.lastSeq
}

func (f *Forwarder) confirm(forwarded uint64) {
	f.silent.Store(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.tail < min(forwarded, f.head) {
		f.ring[f.tail%ringSize] = pending{}
		f.tail++
	}
}

// giveUp answers for what was received before the instant and is unconfirmed.
func (f *Forwarder) giveUp(instant int64) {
	for {
		f.mu.Lock()
		if f.tail == f.head {
			f.mu.Unlock()
			return
		}
		oldest := f.ring[f.tail%ringSize]
		if oldest.sent < instant+int64(patience-silence) {
			f.silent.Store(true)
		}
		if oldest.at >= instant {
			f.mu.Unlock()
			return
		}
		f.drop()
	}
}

// giveUpTo answers for all up to the mark.
func (f *Forwarder) giveUpTo(mark uint64) {
	for {
		f.mu.Lock()
		if f.tail >= mark || f.tail == f.head {
			f.mu.Unlock()
			return
		}
		f.drop()
	}
}

// drop takes the oldest entry off the ring and answers it. It requires that mu
// is held, and releases it.
func (f *Forwarder) drop() {
	reply := f.ring[f.tail%ringSize].reply
	f.ring[f.tail%ringSize] = pending{}
	f.tail++
	f.mu.Unlock()
	f.unanswer(reply)
}

// settled reports whether everything forwarded is confirmed or given up.
func (f *Forwarder) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head == f.tail
}
