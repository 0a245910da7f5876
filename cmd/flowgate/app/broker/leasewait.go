package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Acquire takes the lease of kv for id, which must be another in each process, and
// waits for it as long as another holds it. What is given back is taken at once, what
// stands still after 2.25 s. embedded is Broker.Embedded: a lease that was also taken
// so is dead, since the store is ours now, and is taken over at once.
//
// waiting hears of each holder that is waited for, and with an error of what keeps
// this process from following or taking the lease, with nil when that is over; it may
// be nil. Acquire fails if ctx ends, or if the bucket cannot be used from the start.
func Acquire(ctx context.Context, kv jetstream.KeyValue, id string, embedded bool, waiting func(LeaseHolder, error)) (*Lease, error) {
	if waiting == nil {
		waiting = func(LeaseHolder, error) {}
	}
	c := &contender{kv: kv, id: id, embedded: embedded, waiting: waiting}
	l, err := c.wait(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("take the lease in bucket %s: %w", kv.Bucket(), err)
	}
	return l, nil
}

// contender waits for a lease.
type contender struct {
	kv       jetstream.KeyValue
	id       string
	embedded bool
	waiting  func(LeaseHolder, error)

	known    bool
	gone     bool        // somebody deleted the key
	revision uint64      // the newest seen; 0: there is no key, or it is gone
	holder   LeaseHolder // zero: nobody
	due      time.Time

	shown   string // the ID that waiting heard of last
	trouble bool   // and that something is wrong
}

// These bound what a contender asks.
const (
	lookTimeout = time.Second
	takeTimeout = 2 * time.Second
)

// wait follows the key by a watch, which tells at once, and by looks, since a watch
// can fall silent. The proof that no holder is left needs neither to be complete: who
// takes the lease names the revision that it saw stand still.
func (c *contender) wait(ctx context.Context) (*Lease, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w, err := c.kv.Watch(watching, leaseKey)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	updates := w.Updates()
	look := time.NewTicker(leaseLook)
	defer look.Stop()
	due := time.NewTimer(leaseWait)
	defer due.Stop()
	for {
		if c.known {
			due.Reset(max(0, time.Until(c.due)))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e, ok := <-updates:
			if !ok {
				updates = nil // the looks go on
				continue
			}
			c.see(e)
		case <-look.C:
			c.look(ctx)
		case <-due.C:
			if !c.known {
				c.look(ctx)
				continue
			}
			if l, err := c.take(ctx); l != nil || err != nil {
				return l, err
			}
		}
	}
}

// see notes what the watch or a look brought; nil: there is nothing (more).
func (c *contender) see(e jetstream.KeyValueEntry) {
	now := time.Now()
	if e == nil { // the end of what was there when the watch began
		if !c.known {
			c.known, c.due = true, now
		}
		return
	}
	if c.known && e.Revision() <= c.revision {
		return
	}
	c.known, c.gone, c.revision, c.due = true, false, e.Revision(), now
	if e.Operation() != jetstream.KeyValuePut {
		c.vanished(now)
		return
	}
	c.holder = readHolder(e.Value())
	switch {
	case c.holder.Released, c.embedded && c.holder.Embedded:
	case c.holder.ID == c.id: // the answer to our own attempt was lost
	default:
		c.due = now.Add(leaseWait)
		c.standBy()
	}
}

// vanished: somebody deleted the key. Its holder does not know yet.
func (c *contender) vanished(now time.Time) {
	if c.gone {
		return
	}
	c.known, c.gone, c.revision, c.due = true, true, 0, now
	if !c.embedded {
		c.due = now.Add(leaseWait)
	}
}

// look asks for the key. Who cannot hear the bucket cannot tell a holder that is dead
// from a broker that is away: its wait begins anew, so that the holder has the time
// to come back.
func (c *contender) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	e, err := c.kv.Get(bounded, leaseKey)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		c.see(e)
	case errors.Is(err, jetstream.ErrKeyNotFound):
		if c.known && c.revision == 0 && !c.gone { // there never was one
			break
		}
		c.vanished(time.Now())
	default:
		c.hinder(err)
		return
	}
	c.well()
}

// take writes the lease over what was seen; nothing: it moved meanwhile, or cannot be
// taken now.
func (c *contender) take(ctx context.Context) (*Lease, error) {
	l := &Lease{kv: c.kv, alone: c.embedded, holder: self(c.id, c.embedded)}
	var err error
	if l.value, err = json.Marshal(l.holder); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	sent := time.Now()
	if c.revision == 0 {
		l.revision, err = c.kv.Create(bounded, leaseKey, l.value)
	} else {
		l.revision, err = c.kv.Update(bounded, leaseKey, l.value, c.revision)
	}
	switch {
	case err == nil:
		l.sent.Store(&sent)
		return l, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case wrongRevision(err): // another was faster, or the bucket is another
		c.known, c.gone = false, false
		c.look(ctx)
	case c.shown == "":
		return nil, err
	default:
		c.hinder(err)
	}
	return nil, nil
}

func (c *contender) standBy() {
	if c.shown == c.holder.ID {
		return
	}
	c.shown = c.holder.ID
	c.waiting(c.holder, nil)
}

func (c *contender) hinder(err error) {
	c.due = time.Now().Add(leaseWait)
	if !c.trouble {
		c.trouble = true
		c.waiting(c.holder, err)
	}
}

func (c *contender) well() {
	if c.trouble {
		c.trouble = false
		c.waiting(c.holder, nil)
	}
}
