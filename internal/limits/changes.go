package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoEntry says that a limit to be deleted is not there.
var ErrNoEntry = errors.New("there is no such live limit")

// InvalidError is what is wrong with entries that were to be set.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

// Changes is what a new set made of the old one.
type Changes struct {
	Added     []Entry `json:"added"`
	Changed   []Entry `json:"changed"`
	Removed   []Entry `json:"removed"`
	Unchanged []Entry `json:"unchanged"`
}

// Set stores an entry and returns it as stored, once it is in force. If ctx ends
// before, it may be stored all the same.
func (l *Live) Set(ctx context.Context, e Entry) (Entry, error) {
	if err := e.Validate(); err != nil {
		return e, &InvalidError{err}
	}
	l.changing.RLock()
	defer l.changing.RUnlock()
	e, err := l.put(ctx, e)
	if err != nil {
		return e, err
	}
	return e, l.await(ctx, &l.applied, e.Revision)
}

// Delete removes an entry and returns once it is no longer in force; ErrNoEntry if
// there is none.
func (l *Live) Delete(ctx context.Context, s Scope, key string) error {
	if err := validateKey(s, key); err != nil {
		return &InvalidError{err}
	}
	l.changing.RLock()
	defer l.changing.RUnlock()
	// What others wrote just now counts.
	if err := l.catchUp(ctx); err != nil {
		return err
	}
	k := bucketKey(s, key)
	if !l.has(k) {
		return fmt.Errorf("%w for %s %s", ErrNoEntry, s, key)
	}
	if err := l.bucket.Delete(ctx, k); err != nil {
		return fmt.Errorf("delete from the bucket %s: %w", l.bucket.Bucket(), err)
	}
	return l.catchUp(ctx)
}

// Replace makes the set exactly these entries, broken ones of the bucket removed
// too, and returns once it is in force: as a whole in this gateway, one after the
// other in the bucket. If one is invalid nothing changes. After another error part
// of it may be stored; doing it again is safe.
func (l *Live) Replace(ctx context.Context, entries []Entry) (Changes, error) {
	want, err := unique(entries)
	if err != nil {
		return Changes{}, &InvalidError{err}
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if err := l.catchUp(ctx); err != nil {
		return Changes{}, err
	}
	c, puts, deletes := l.compare(want)
	l.hold(true)
	defer l.hold(false)
	if err := l.write(ctx, puts, deletes); err != nil {
		return Changes{}, fmt.Errorf("not all of the set was stored; apply it again: %w", err)
	}
	info, err := l.info(ctx)
	if err != nil {
		return c, err
	}
	if err := l.await(ctx, &l.seen, info.State.LastSeq); err != nil {
		return c, err
	}
	l.hold(false)
	return c, l.await(ctx, &l.applied, info.State.LastSeq)
}

// ValidateSet joins all that is wrong with entries that are to be the whole set.
func ValidateSet(entries []Entry) error {
	_, err := unique(entries)
	return err
}

// unique keys valid entries, or joins all that is wrong with them.
func unique(entries []Entry) (map[string]Entry, error) {
	want := make(map[string]Entry, len(entries))
	var errs []error
	for i, e := range entries {
		name := fmt.Sprintf("entry %d", i+1)
		if validateKey(e.Scope, e.Key) == nil {
			name += fmt.Sprintf(" (%s %s)", e.Scope, e.Key)
		}
		if err := e.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "; ")))
			continue
		}
		k := bucketKey(e.Scope, e.Key)
		if _, twice := want[k]; twice {
			errs = append(errs, fmt.Errorf("%s: stands twice", name))
		}
		want[k] = e
	}
	return want, errors.Join(errs...)
}

// compare finds what has to be written to get from the slots to want.
func (l *Live) compare(want map[string]Entry) (c Changes, puts []Entry, deletes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, s := range l.slots {
		if _, stays := want[k]; !stays {
			deletes = append(deletes, k)
			if s.good {
				c.Removed = append(c.Removed, s.entry)
			}
		}
	}
	for k, e := range want {
		s, there := l.slots[k]
		switch {
		case there && s.good && s.fault == "" && e.same(s.entry):
			c.Unchanged = append(c.Unchanged, s.entry)
			continue
		case there && s.good:
			c.Changed = append(c.Changed, e)
		default:
			c.Added = append(c.Added, e)
		}
		puts = append(puts, e)
	}
	for _, list := range []*[]Entry{&c.Added, &c.Changed, &c.Removed, &c.Unchanged} {
		if *list = sorted(*list); *list == nil {
			*list = []Entry{}
		}
	}
	return c, puts, deletes
}

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
				return fmt.Errorf("delete from the bucket %s: %w", l.bucket.Bucket(), err)
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

// hold keeps back what is read until it is let go.
func (l *Live) hold(on bool) {
	l.mu.Lock()
	l.held = on
	l.mu.Unlock()
	if !on {
		select {
		case l.released <- struct{}{}:
		default:
		}
	}
}

func (l *Live) put(ctx context.Context, e Entry) (Entry, error) {
	e.At = l.now().UTC().Truncate(time.Millisecond)
	text, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("write the limit of %s %s: %w", e.Scope, e.Key, err)
	}
	if e.Revision, err = l.bucket.Put(ctx, bucketKey(e.Scope, e.Key), text); err != nil {
		return e, fmt.Errorf("write to the bucket %s: %w", l.bucket.Bucket(), err)
	}
	return e, nil
}

func (l *Live) has(k string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.slots[k]
	return ok
}

// catchUp waits until all that the bucket holds now is in force. A delete does not
// tell its revision.
func (l *Live) catchUp(ctx context.Context) error {
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	return l.await(ctx, &l.applied, info.State.LastSeq)
}

// await returns once a revision is reached: seen or applied.
func (l *Live) await(ctx context.Context, reached *uint64, revision uint64) error {
	for {
		l.mu.Lock()
		done, news := *reached >= revision, l.news
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("the bucket %s was not heard of in time; a change may be stored and take effect later: %w", l.bucket.Bucket(), context.Cause(ctx))
		}
	}
}
