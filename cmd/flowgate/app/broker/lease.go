package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The lease's times. A holder renews each second and may act for leaseLife after it
// sent its last renewal; a contender takes over when it saw the lease stand still
// for leaseWait. leaseWait begins later and is longer, so the holder has stopped.
const (
	leaseTTL    = 3 * time.Second
	leaseMargin = 500 * time.Millisecond
	leaseLife   = leaseTTL - leaseMargin
	leaseWait   = leaseTTL + leaseMargin

	leaseRenew = time.Second            // between renewals
	leaseRetry = 200 * time.Millisecond // after one that failed
	leaseLook  = 250 * time.Millisecond // between a contender's looks

	leaseKey = "lease"
)

// ErrHeld means that another process is the gateway of this name.
var ErrHeld = errors.New("another gateway of this name is active")

// ErrLost ends a lease that another took, or that somebody removed.
var ErrLost = errors.New("the lease is lost")

// holder is the lease's value.
type holder struct {
	V     int       `json:"v"`
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	// Embedded: the broker ran in the holder's process and for it alone, so that the
	// holder is gone if another process runs it now.
	Embedded bool `json:"embedded"`
}

// Lease makes one process the gateway of a name:
//
//	free ──Acquire──▶ held ──renewal each second──▶ held
//	  ▲                │ │└─ 2.5 s without one ─▶ not valid ─ a renewal succeeds ─▶ held
//	  │                │ └─── another's value, or none ─▶ lost
//	  └──── Run's ctx ends: the key is deleted
//
// Time is each side's own: the holder counts from when it sent its last renewal, a
// contender from when it first saw a revision that does not move. No two clocks are
// compared. What the lease does not do is fence: a delivery that began while it
// held may end after another took over.
type Lease struct {
	kv       jetstream.KeyValue
	value    []byte
	revision uint64 // Run's alone
	// alone: the broker is in this process and nobody else can reach its state, so
	// that there is nobody to renew it against.
	alone bool
	// sent is when the last renewal that succeeded was sent; nil: not held.
	sent atomic.Pointer[time.Time]
}

// Acquire takes the lease of kv for id, which must be another in each process. It
// returns ErrHeld, with who holds it and what to do, when it sees the lease move;
// one that stands still is taken over after 3.5 s. embedded is Broker.Embedded: a
// lease that was also taken so is dead, since the store is ours now, and is
// taken over at once.
func Acquire(ctx context.Context, kv jetstream.KeyValue, id string, embedded bool) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l := &Lease{kv: kv, alone: embedded}
	l.value, err = json.Marshal(holder{
		V: 1, ID: id, Host: host, PID: os.Getpid(),
		Since: time.Now().UTC().Truncate(time.Millisecond), Embedded: embedded,
	})
	if err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	for {
		taken, err := l.attempt(ctx, embedded)
		if err != nil {
			return nil, err
		}
		if taken {
			return l, nil
		}
	}
}

// attempt is one round of Acquire; false: the lease changed hands meanwhile, look
// again.
func (l *Lease) attempt(ctx context.Context, embedded bool) (bool, error) {
	entry, err := l.kv.Get(ctx, leaseKey)
	free := errors.Is(err, jetstream.ErrKeyNotFound)
	if err != nil && !free {
		return false, l.failed(ctx, "read", err)
	}
	if !free {
		other := readHolder(entry.Value())
		if dead := embedded && other.Embedded; !dead {
			if gone, err := l.stands(ctx, entry.Revision()); gone || err != nil {
				return false, err
			}
		}
	}
	sent := time.Now()
	if free {
		l.revision, err = l.kv.Create(ctx, leaseKey, l.value)
	} else {
		l.revision, err = l.kv.Update(ctx, leaseKey, l.value, entry.Revision())
	}
	switch {
	case wrongRevision(err):
		return false, nil // another contender was faster
	case err != nil:
		return false, l.failed(ctx, "take", err)
	}
	l.sent.Store(&sent)
	return true, nil
}

// stands waits for the lease's time. It returns ErrHeld if the revision moves, and
// gone if the lease was given back.
func (l *Lease) stands(ctx context.Context, revision uint64) (gone bool, err error) {
	deadline := time.NewTimer(leaseWait)
	defer deadline.Stop()
	tick := time.NewTicker(leaseLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, l.failed(ctx, "wait for", ctx.Err())
		case <-deadline.C:
			return false, nil
		case <-tick.C:
		}
		entry, err := l.kv.Get(ctx, leaseKey)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			return true, nil
		case err == nil && entry.Revision() != revision:
			return false, readHolder(entry.Value()).held()
		}
		// An error is no sign of life nor of death: what counts is the revision when
		// the lease is taken.
	}
}

func (l *Lease) failed(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%s the lease in bucket %s: %w", what, l.kv.Bucket(), err)
}

// readHolder reads what another process wrote; what it cannot read it shows as
// unknown.
func readHolder(value []byte) holder {
	var h holder
	if json.Unmarshal(value, &h) != nil || h.ID == "" {
		return holder{ID: "unknown", Host: "unknown"}
	}
	return h
}

func (h holder) held() error {
	return fmt.Errorf("%w: %s on host %s, process %d, since %s; stop that one, or start this one with another FLOWGATE_NAME",
		ErrHeld, h.ID, h.Host, h.PID, h.Since.Format(time.RFC3339))
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

// release lets a successor take over at once. If it fails, the lease runs out.
func (l *Lease) release(ctx context.Context) {
	l.sent.Store(nil)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	_ = l.kv.Delete(bounded, leaseKey, jetstream.LastRevision(l.revision))
}
