package shaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pauseAudit is how often the bucket is asked for what a watcher should have told:
	// one can stay silent for ever, and a bucket can be made anew under it.
	pauseAudit = 10 * time.Second
	// pauseRetry is how long to wait after the bucket could not be watched.
	pauseRetry = time.Second
	// pauseRead bounds reading the bucket.
	pauseRead = 10 * time.Second
)

var errPauseWatch = errors.New("the broker stopped telling of changes")

// pauseKeeper follows the pause in the state bucket, whoever writes it there.
type pauseKeeper struct {
	kv      jetstream.KeyValue
	nc      *nats.Conn
	log     *slog.Logger
	changed func() // wakes the dispatcher
	gate    *pauseGate
	ended   chan struct{} // closed when it is followed no more

	mu             sync.Mutex
	author, reason string // of who resumes at the moment
}

func newPauseKeeper(kv jetstream.KeyValue, nc *nats.Conn, log *slog.Logger, changed func()) *pauseKeeper {
	return &pauseKeeper{kv: kv, nc: nc, log: log, changed: changed, gate: newPauseGate(), ended: make(chan struct{})}
}

// load reads the pause, so that nothing is delivered before it is known.
func (k *pauseKeeper) load(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := k.watch(ctx)
	if err != nil {
		return fmt.Errorf("shaper: read %s from bucket %s: %w", pauseKey, k.kv.Bucket(), err)
	}
	w.close()
	return nil
}

// run follows the pause until ctx ends. While the broker is away what was heard
// last holds.
func (k *pauseKeeper) run(ctx context.Context) error {
	defer close(k.ended)
	reconnected := k.nc.StatusChanged(nats.CONNECTED)
	defer k.nc.RemoveStatusListener(reconnected)
	lost := false
	for {
		err := k.follow(ctx, reconnected, func() {
			if lost {
				k.log.Info("the pause is followed again")
			}
			lost = false
		})
		if ctx.Err() != nil {
			return nil
		}
		if err == nil { // read again
			continue
		}
		if !lost {
			k.log.Warn("the pause cannot be followed; what was known holds, and it is tried again", "error", err)
		}
		lost = true
		select {
		case <-ctx.Done():
			return nil
		case <-reconnected:
		case <-time.After(pauseRetry):
		}
	}
}

// follow takes each change in until something makes it necessary to read again:
// then nil, or what went wrong.
func (k *pauseKeeper) follow(ctx context.Context, reconnected <-chan nats.Status, begun func()) error {
	w, err := k.watch(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	begun()
	audit := time.NewTicker(pauseAudit)
	defer audit.Stop()
	end := time.NewTimer(idle)
	defer end.Stop()
	for {
		k.expire(ctx)
		wait, paused := k.gate.wait()
		if !paused {
			wait = idle
		}
		end.Reset(wait)
		select {
		case e, ok := <-w.updates:
			if !ok {
				return errPauseWatch
			}
			if e != nil {
				k.take(e)
			}
		case <-audit.C:
			if k.missed(ctx) {
				return nil
			}
		case <-end.C:
		case <-reconnected:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// pauseWatch is a watcher whose first sight was taken in.
type pauseWatch struct {
	updates <-chan jetstream.KeyValueEntry
	cancel  func()
}

// close ends the watcher. It blocks on a full channel with its lock held, so the
// channel is emptied until it is closed.
func (w *pauseWatch) close() {
	w.cancel()
	for range w.updates {
	}
}

func (k *pauseKeeper) watch(ctx context.Context) (_ *pauseWatch, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	// The request that makes the watcher has no bound of its own.
	late := time.AfterFunc(pauseRead, func() { cancel(fmt.Errorf("no answer within %s", pauseRead)) })
	defer late.Stop()
	kw, err := k.kv.Watch(ctx, pauseKey)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, fmt.Errorf("watch it: %w", err)
	}
	w := &pauseWatch{updates: kw.Updates(), cancel: func() { cancel(nil) }}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	there := false
	for {
		select {
		case e, ok := <-w.updates:
			switch {
			case !ok:
				return nil, errPauseWatch
			case e != nil:
				there = true
				k.take(e)
				continue
			case !there:
				k.none()
			}
			return w, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// missed reports whether the bucket holds another pause than the one that was heard
// of. One that ended by itself may still be there.
func (k *pauseKeeper) missed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pauseRead)
	defer cancel()
	last := k.gate.last.Load()
	switch e, err := k.kv.Get(ctx, pauseKey); {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return last.on
	case err == nil:
		return !last.is(e)
	}
	return false // asked again
}

// take takes in a value of the bucket, or its removal.
func (k *pauseKeeper) take(e jetstream.KeyValueEntry) {
	last := k.gate.last.Load()
	if last.is(e) {
		return // also one that ended: a clock that is set back does not bring it back
	}
	next := &pauseState{revision: e.Revision(), created: e.Created(), on: e.Operation() == jetstream.KeyValuePut}
	var err error
	if next.on {
		next.Pause, err = readPause(e.Value(), e.Created())
	}
	k.put(last, next, err)
}

// none takes in that the bucket holds nothing of a pause.
func (k *pauseKeeper) none() {
	if last := k.gate.last.Load(); last.on {
		k.put(last, &pauseState{}, nil)
	}
}

// put makes next what holds, and says once what changed; unread is why it could not
// be read.
func (k *pauseKeeper) put(last, next *pauseState, unread error) {
	k.gate.set(next)
	k.changed()
	author, reason := k.takeResumed()
	switch {
	case unread != nil:
		k.log.Error("the stored pause cannot be read; deliveries are paused until somebody resumes",
			"bucket", k.kv.Bucket(), "key", pauseKey, "revision", next.revision, "error", unread)
	case next.holds(k.gate.now):
		until := "somebody resumes"
		if !next.Until.IsZero() {
			until = next.Until.UTC().Format(time.RFC3339)
		}
		k.log.Info("deliveries are paused", "since", next.Since.UTC().Format(time.RFC3339), "until", until, "author", next.Author, "reason", next.Reason)
	case last.on && !next.on:
		k.log.Info("deliveries are resumed", "author", author, "reason", reason)
	}
}

// resumedBy notes who is about to resume: the removal of a key says nothing of it.
func (k *pauseKeeper) resumedBy(author, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.author, k.reason = author, reason
}

func (k *pauseKeeper) takeResumed() (author, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	author, reason = k.author, k.reason
	k.author, k.reason = "", ""
	return author, reason
}

// expire ends a pause whose time has come.
func (k *pauseKeeper) expire(ctx context.Context) {
	last := k.gate.last.Load()
	if !last.on || last.holds(k.gate.now) {
		return
	}
	k.gate.set(&pauseState{revision: last.revision, created: last.created})
	k.changed()
	k.log.Info("the pause ended at its time; deliveries are resumed", "until", last.Until.UTC().Format(time.RFC3339), "author", last.Author, "reason", last.Reason)
	// If that fails it is passed over as one that ended.
	ctx, cancel := context.WithTimeout(ctx, pauseRead)
	defer cancel()
	_ = k.kv.Delete(ctx, pauseKey, jetstream.LastRevision(last.revision))
}
