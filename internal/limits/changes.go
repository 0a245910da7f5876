package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
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
	// Cleared is what was removed from the bucket and was no limit, by its names there.
	Cleared []string `json:"cleared"`
}

// Set stores an entry and returns it as stored, once it is in force. If ctx ends
// before, it may be stored all the same.
func (l *Live) Set(ctx context.Context, e Entry) (Entry, error) {
	if err := e.Validate(); err != nil {
		return e, &InvalidError{err}
	}
	l.changing.RLock()
	defer l.changing.RUnlock()
	if err := l.room(e); err != nil {
		return e, &InvalidError{err}
	}
	e, err := l.put(ctx, e)
	if err != nil {
		return e, err
	}
	if err := l.catchUp(ctx, &l.applied); err != nil {
		return e, fmt.Errorf("the limit is stored, and not known to be in force: %w", err)
	}
	return e, nil
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
	if err := l.catchUp(ctx, &l.seen); err != nil {
		return err
	}
	k := bucketKey(s, key)
	if !l.has(k) {
		return fmt.Errorf("%w for %s %s", ErrNoEntry, s, key)
	}
	if err := l.bucket.Delete(ctx, k); err != nil {
		return l.unwritten(ctx, "delete from", err)
	}
	if err := l.catchUp(ctx, &l.applied); err != nil {
		return fmt.Errorf("the limit is deleted, and may be in force still: %w", err)
	}
	return nil
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
	if err := l.catchUp(ctx, &l.seen); err != nil {
		return Changes{}, err
	}
	c, puts, deletes := l.compare(want)
	l.hold(true)
	defer l.hold(false)
	if err := l.write(ctx, puts, deletes); err != nil {
		return Changes{}, fmt.Errorf("not all of the set was stored; apply it again: %w", err)
	}
	if err := l.catchUp(ctx, &l.seen); err != nil {
		return c, err
	}
	l.hold(false)
	if err := l.catchUp(ctx, &l.applied); err != nil {
		return c, fmt.Errorf("the set is stored, and not known to be in force: %w", err)
	}
	return c, nil
}

// ValidateSet joins all that is wrong with entries that are to be the whole set.
func ValidateSet(entries []Entry) error {
	_, err := unique(entries)
	return err
}

// unique keys valid entries, or joins all that is wrong with them.
func unique(entries []Entry) (map[string]Entry, error) {
	want := make(map[string]Entry, len(entries))
	counts := map[Scope]int{}
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
		counts[e.Scope]++
		if _, twice := want[k]; twice {
			errs = append(errs, fmt.Errorf("%s: stands twice", name))
		}
		want[k] = e
	}
	for _, s := range Scopes() {
		if err := validateCount(s, counts[s]); err != nil {
			errs = append(errs, err)
		}
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
			} else {
				c.Cleared = append(c.Cleared, shownKey(k))
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
	if slices.Sort(c.Cleared); c.Cleared == nil {
		c.Cleared = []string{}
	}
	for _, list := range []*[]Entry{&c.Added, &c.Changed, &c.Removed, &c.Unchanged} {
		if *list = sorted(*list); *list == nil {
			*list = []Entry{}
		}
	}
	return c, puts, deletes
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

// maxEntries is the most limits of a scope: their numbers, with those of the
// environment, have to fit into 16 bits.
const maxEntries = 60_000

// room says whether an entry may be added to those of its scope.
func (l *Live) room(e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.slots[bucketKey(e.Scope, e.Key)]; there {
		return nil
	}
	n := 0
	for _, s := range l.slots {
		if s.good && s.entry.Scope == e.Scope {
			n++
		}
	}
	return validateCount(e.Scope, n+1)
}

func validateCount(s Scope, n int) error {
	if n > maxEntries {
		return fmt.Errorf("%d limits of the scope %s are too many; the most is %d. A glob like free-* stands for many names", n, s, maxEntries)
	}
	return nil
}

func (l *Live) has(k string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.slots[k]
	return ok
}

// catchUp waits until all that the bucket holds now is reached: seen or applied. A
// delete does not tell its revision; and a revision says nothing if the bucket is
// another than the one that is followed, which is then read at once.
func (l *Live) catchUp(ctx context.Context, reached *uint64) error {
	for {
		info, err := l.info(ctx)
		if err != nil {
			return err
		}
		if same, err := l.await(ctx, reached, info); same || err != nil {
			return err
		}
	}
}

// await returns once the bucket's last revision of that moment is reached; same is
// false if another bucket is being read instead.
func (l *Live) await(ctx context.Context, reached *uint64, info *jetstream.StreamInfo) (same bool, err error) {
	for same = true; same; {
		l.mu.Lock()
		same = info.Created.Equal(l.created)
		done, news := same && *reached >= info.State.LastSeq, l.news
		if reached == &l.applied && same && !done && l.refused >= info.State.LastSeq {
			err = l.fault
		}
		l.mu.Unlock()
		if done || err != nil {
			return true, err
		}
		if !same {
			select {
			case l.another <- struct{}{}:
			default:
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return same, fmt.Errorf("the bucket %s was not heard of in time; a change may be stored and take effect later: %w", l.bucket.Bucket(), context.Cause(ctx))
		}
	}
	return false, nil
}
