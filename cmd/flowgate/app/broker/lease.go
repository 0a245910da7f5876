package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The lease's times. A holder renews each half second and may act for leaseLife
// after it sent its last renewal; a contender takes over when it saw the lease stand
// still for leaseWait. leaseWait begins later and is longer, so the holder has
// stopped. What is left of the 3 s in which a standby has to deliver is its start's.
const (
	leaseTTL    = 2 * time.Second
	leaseMargin = 250 * time.Millisecond
	leaseLife   = leaseTTL - leaseMargin
	leaseWait   = leaseTTL + leaseMargin

	leaseRenew = 500 * time.Millisecond // between renewals
	leaseRetry = 100 * time.Millisecond // after one that failed
	leaseLook  = 500 * time.Millisecond // between a contender's looks, beside its watch

	leaseKey = "lease"
)

// ErrLost ends a lease that another took, or that somebody removed.
var ErrLost = errors.New("the lease is lost")

// Lease makes one process the gateway of a name:
//
//	        ┌── no key, or given back: at once ──┐
//	waiting ┤                                    ├─▶ held ──renewal each 0.5 s──▶ held
//	  ▲     └── stands still for 2.25 s ─────────┘   │ │└─ 1.75 s without one ─▶ not valid ─ a renewal succeeds ─▶ held
//	  │                                              │ └─── another's value, or none ─▶ lost
//	  └────────────── another's turn ◀───────────────┴── Run's ctx ends: given back
//
// Time is each side's own: the holder counts from when it sent its last renewal, a
// contender from when it first saw a revision that does not move. No two clocks are
// compared; that they run at speeds that differ by less than a quarter is all that is
// assumed of them. What the lease does not do is fence: a delivery that began while
// it held may end after another took over.
//
// A broker that stalls for less than a second and a quarter is not noticed. A longer
// stall makes the lease run out: nothing is delivered until a renewal succeeds, and
// since a contender that cannot hear the bucket begins its wait anew, it is as a rule the
// same gateway that goes on. A longer life would bridge longer stalls and make each
// takeover after a crash as much later.
type Lease struct {
	kv       jetstream.KeyValue
	holder   LeaseHolder
	value    []byte
	revision uint64 // Run's alone
	// alone: the broker is in this process and nobody else can reach its state, so
	// that there is nobody to renew it against.
	alone bool
	// sent is when the last renewal that succeeded was sent; nil: not held.
	sent atomic.Pointer[time.Time]
}

// wrongRevision reports whether somebody else wrote the key. Replicated streams say
// it with a code of their own.
func wrongRevision(err error) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Valid reports whether the lease holds at this moment. It costs a clock reading
// and may be called before every delivery, from any goroutine.
func (l *Lease) Valid() bool {
	sent := l.sent.Load()
	if sent == nil {
		return false
	}
	if l.alone {
		return true
	}
	now := time.Now()
	// The monotonic clock does not run while a machine sleeps, a contender's does; the
	// wall clock then has jumped. It can only shorten the lease, never lengthen it.
	return now.Sub(*sent) < leaseLife && now.Round(0).Sub(sent.Round(0)) < leaseLife
}

// Until is when the lease ends without a further renewal; zero if it is not held,
// and of no meaning for an embedded broker's. It has a monotonic reading.
func (l *Lease) Until() time.Time {
	if sent := l.sent.Load(); sent != nil {
		return sent.Add(leaseLife)
	}
	return time.Time{}
}

// Run renews until ctx ends, gives the lease back, and returns nil: a successor
// takes over at once. An embedded broker's is not renewed: the lock on the data
// directory keeps everyone else out. While another broker cannot be reached the lease runs out, and is
// taken up again if nobody else has; it returns ErrLost if somebody has.
// Call it once.
func (l *Lease) Run(ctx context.Context) error {
	if l.alone {
		<-ctx.Done()
		l.release(ctx)
		return nil
	}
	timer := time.NewTimer(time.Until(l.Until().Add(leaseRenew - leaseLife)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			l.release(ctx)
			return nil
		case <-timer.C:
		}
		err := l.renew(ctx)
		switch {
		case err == nil:
			timer.Reset(time.Until(l.Until().Add(leaseRenew - leaseLife)))
		case errors.Is(err, ErrLost):
			l.sent.Store(nil)
			return err
		default:
			// Without a broker it ends; if nobody took it meanwhile, it is ours again.
			timer.Reset(leaseRetry)
		}
	}
}

// renew writes the lease once more. It does not stop with ctx, so that the revision
// is known when the lease is given back, and ends with the lease. One that ended
// already, in a long start or in a process that was stopped, gets one try: if
// nobody took it, it is still ours.
func (l *Lease) renew(ctx context.Context) error {
	sent := time.Now()
	until := sent.Add(leaseRenew)
	if end := l.Until(); end.After(sent) && end.Before(until) {
		until = end
	}
	bounded, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	revision, err := l.kv.Update(bounded, leaseKey, l.value, l.revision)
	if err == nil {
		l.revision = revision
		l.sent.Store(&sent)
		return nil
	}
	if !wrongRevision(err) {
		return err
	}
	// A renewal whose answer was lost looks like this too.
	entry, err := l.kv.Get(bounded, leaseKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return fmt.Errorf("%w: its key was deleted", ErrLost)
	case err != nil:
		return err
	case string(entry.Value()) != string(l.value):
		other := readHolder(entry.Value())
		return fmt.Errorf("%w: %s on host %s, process %d, took it", ErrLost, other.ID, other.Host, other.PID)
	}
	l.revision = max(l.revision, entry.Revision()) // a replica may be behind
	return errors.New("the answer to a renewal was lost")
}

// release lets a successor take over at once: it writes that the lease is given back.
// A key that is deleted says nothing like it, for anybody may have done that while
// the holder acts. If it fails, the lease runs out.
func (l *Lease) release(ctx context.Context) {
	l.sent.Store(nil)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	given := l.holder
	given.Released = true
	if value, err := json.Marshal(given); err == nil {
		_, _ = l.kv.Update(bounded, leaseKey, value, l.revision)
	}
}
