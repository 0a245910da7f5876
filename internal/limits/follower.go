package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// retryEvery is how long to wait after the bucket could not be read.
	retryEvery = time.Second
	// readTimeout bounds reading the whole bucket.
	readTimeout = 20 * time.Second
	// auditEvery is how often the bucket's own count is compared with what was heard:
	// a watcher can stay silent for ever, and a bucket can be made anew under it.
	auditEvery = 10 * time.Second
)

var (
	errWatcherLost = errors.New("the broker stopped telling of changes")
	errBucketGone  = errors.New("the bucket of the live limits is gone")
	errAway        = errors.New("NATS cannot be reached; the limits in force stay")
	errReconnected = errors.New("the connection was lost meanwhile")
)

// reader is a watcher whose first sight of the bucket is taken in.
type reader struct {
	updates <-chan jetstream.KeyValueEntry
	cancel  func()
}

// close ends the watcher. It blocks on a full channel with its lock held, so the
// channel is emptied until it is closed.
func (r *reader) close() {
	r.cancel()
	for range r.updates {
	}
}

// open reads the whole bucket, and goes on watching.
func (l *Live) open(ctx context.Context, reconnected <-chan nats.Status) (_ *reader, err error) {
	info, err := l.info(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// The request that makes the watcher has no bound of its own.
	late := time.AfterFunc(readTimeout, func() {
		cancel(fmt.Errorf("the bucket %s was not read within %s", l.bucket.Bucket(), readTimeout))
	})
	defer late.Stop()
	w, err := l.bucket.WatchAll(ctx)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("watch the bucket %s: %w", l.bucket.Bucket(), err)
	}
	r := &reader{updates: w.Updates(), cancel: func() { cancel(nil) }}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	var all []jetstream.KeyValueEntry
	for {
		select {
		case e, ok := <-r.updates:
			if !ok {
				return nil, errWatcherLost
			}
			if e == nil { // all of it
				l.replace(info, all)
				return r, nil
			}
			all = append(all, e)
		case <-reconnected:
			return nil, errReconnected
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// info asks for the stream below the bucket.
func (l *Live) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	status, err := l.bucket.Status(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s; start the gateway again, which makes it anew", errBucketGone, l.bucket.Bucket())
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return nil, errAway
	}
	if err != nil {
		return nil, fmt.Errorf("the bucket %s: %w", l.bucket.Bucket(), err)
	}
	s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo })
	if !ok {
		return nil, fmt.Errorf("the bucket %s has no stream", l.bucket.Bucket())
	}
	return s.StreamInfo(), nil
}

// follow takes the bucket in and then each change, until something makes it
// necessary to read everything again: then nil, or what went wrong. begun is
// called once it follows.
func (l *Live) follow(ctx context.Context, reconnected <-chan nats.Status, begun func()) error {
	r, err := l.open(ctx, reconnected)
	if errors.Is(err, errReconnected) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.close()
	l.publish()
	begun()
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	expected := uint64(0) // the bucket's revision at the last audit
	for {
		select {
		case e, ok := <-r.updates:
			if !ok {
				return errWatcherLost
			}
			for more := true; more; {
				if e != nil {
					l.take(e)
				}
				select {
				case e, more = <-r.updates:
				default:
					more = false
				}
			}
			l.publish()
		case <-l.released:
			l.publish()
		case <-reconnected:
			return nil
		case <-l.another:
			return nil
		case <-audit.C:
			info, err := l.info(ctx)
			if errors.Is(err, errBucketGone) {
				return err
			}
			if err != nil { // asked again; the readiness of the stream tells
				continue
			}
			if l.missed(info, expected) {
				l.log.Warn("the bucket of live limits is another than what was heard of it; it is read again", "bucket", l.bucket.Bucket())
				return nil
			}
			expected = info.State.LastSeq
		case <-ctx.Done():
			return nil
		}
	}
}

// missed reports whether the bucket is another one, or has held changes since the
// last audit that were not heard.
func (l *Live) missed(info *jetstream.StreamInfo, expected uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !info.Created.Equal(l.created) || info.State.LastSeq < l.seen || l.seen < expected
}

// replace makes the slots what the bucket holds. info was read before all.
func (l *Live) replace(info *jetstream.StreamInfo, all []jetstream.KeyValueEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots, weights := l.slots, l.weights
	if !info.Created.Equal(l.created) { // its revisions are others
		l.applied, l.refused, l.weighed = 0, 0, 0
	}
	l.slots, l.weights = make(map[string]slot[Entry], len(all)), map[string]slot[Weight]{}
	l.changed, l.reweighed = true, true
	// The last revision may have been one that was purged, and is never heard of.
	l.created, l.seen = info.Created, info.State.LastSeq
	for _, e := range all {
		l.see(e, slots[e.Key()], weights[e.Key()])
	}
}

// take makes one change.
func (l *Live) take(e jetstream.KeyValueEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.see(e, l.slots[e.Key()], l.weights[e.Key()])
}

// see requires that mu is held; limit and weight are what was known of that key,
// which is of one or the other.
func (l *Live) see(e jetstream.KeyValueEntry, limit slot[Entry], weight slot[Weight]) {
	l.seen = max(l.seen, e.Revision())
	if !isWeightKey(e.Key()) {
		heard(l, l.slots, e, limit, "limits", decodeEntry)
		l.changed = true
	} else if l.applyWeights != nil {
		heard(l, l.weights, e, weight, "weights", l.decodeWeight)
		l.reweighed = true
	}
}

// heard brings the slot of e's key up to date. What cannot be read leaves the last
// good entry in force.
func heard[T any](l *Live, slots map[string]slot[T], e jetstream.KeyValueEntry, was slot[T], kind string, decode func(jetstream.KeyValueEntry) (T, error)) {
	if e.Operation() != jetstream.KeyValuePut {
		delete(slots, e.Key())
		return
	}
	now := slot[T]{entry: was.entry, good: was.good, revision: e.Revision()}
	if entry, err := decode(e); err == nil {
		now.entry, now.good = entry, true
	} else {
		now.fault = err.Error()
		if was.revision != e.Revision() {
			l.log.Warn("an entry of the live "+kind+" is not used",
				"bucket", l.bucket.Bucket(), "name", shownKey(e.Key()), "revision", e.Revision(), "kept", was.good, "error", err)
		}
	}
	slots[e.Key()] = now
}

func decodeEntry(e jetstream.KeyValueEntry) (Entry, error) {
	entry, err := decode(e.Key(), e.Value())
	if entry.Revision = e.Revision(); entry.At.IsZero() {
		entry.At = e.Created().UTC()
	}
	return entry, err
}
