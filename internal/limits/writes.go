package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// writers is how many writes wait for the broker at the same time: with a disk
// that is synced at each, they share it.
const writers = 16

// write stores a set.
func (l *Live) write(ctx context.Context, puts []Entry, deletes []string) error {
	tasks := make(chan func() error)
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range min(writers, len(puts)+len(deletes)) {
		group.Go(func() {
			for task := range tasks {
				if failed.Load() != nil {
					continue
				}
				if err := task(); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for _, e := range puts {
		tasks <- func() error { _, err := l.put(ctx, e); return err }
	}
	for _, k := range deletes {
		tasks <- func() error {
			if err := l.bucket.Delete(ctx, k); err != nil {
				return l.unwritten(ctx, "delete from", err)
			}
			return nil
		}
	}
	close(tasks)
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *Live) put(ctx context.Context, e Entry) (Entry, error) {
	e.At = l.now().UTC().Truncate(time.Millisecond)
	text, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("write the limit of %s %s: %w", e.Scope, e.Key, err)
	}
	if e.Revision, err = l.bucket.Put(ctx, bucketKey(e.Scope, e.Key), text); err != nil {
		return e, l.unwritten(ctx, "write to", err)
	}
	return e, nil
}

// unwritten says what became of a write that failed.
func (l *Live) unwritten(ctx context.Context, what string, err error) error {
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // or it has no leader
		if _, why := l.info(ctx); errors.Is(why, errBucketGone) {
			return why
		}
	}
	switch {
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return errAway
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrDisconnected):
		return fmt.Errorf("%s the bucket %s: it may be done all the same and take effect later: %w", what, l.bucket.Bucket(), err)
	}
	return fmt.Errorf("%s the bucket %s: %w", what, l.bucket.Bucket(), err)
}
