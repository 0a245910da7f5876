package shaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Pause holds every delivery back, by somebody's word.
type Pause struct {
	Since time.Time `json:"since"`
	// Until is when it ends by itself, by the time of day; zero: when somebody
	// resumes.
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Author string    `json:"author,omitempty"`
}

// Bounds of a pause's texts, in bytes.
const (
	maxPauseAuthor = 100
	maxPauseReason = 500
)

// maxPauseYear is the last year that RFC 3339 can write.
const maxPauseYear = 9999

// Validate joins all that is wrong with it.
func (p Pause) Validate() error {
	var until error
	if p.Until.Year() > maxPauseYear {
		until = fmt.Errorf("until: the year %d is too late", p.Until.Year())
	}
	return errors.Join(until, checkText("author", p.Author, maxPauseAuthor), checkText("reason", p.Reason, maxPauseReason))
}

// checkText accepts what a terminal and a log line show as it is.
func checkText(name, s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%s: %d bytes are too long; the longest is %d", name, len(s), most)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s: %q is not UTF-8", name, s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s: %q is not one line of plain text", name, s)
		}
	}
	return nil
}

const (
	// pauseKey is where the state bucket holds the pause; without a value nothing is
	// paused.
	pauseKey = "pause"
	// pauseVersion is of its form.
	pauseVersion = 1
	// pauseLook bounds the sleep until a pause ends: the time of day may be set
	// meanwhile.
	pauseLook = time.Second
)

// storedPause is the value of pauseKey.
type storedPause struct {
	V int `json:"v"`
	Pause
}

// readPause reads a value of the bucket. One that cannot be read pauses all the
// same, until somebody resumes: only who wanted a pause puts something there, and a
// delivery too late costs less than one that was not to be.
func readPause(value []byte, created time.Time) (Pause, error) {
	var s storedPause
	err := json.Unmarshal(value, &s)
	switch {
	case err != nil:
	case s.V != pauseVersion:
		err = fmt.Errorf("v: %d is not the version %d", s.V, pauseVersion)
	default:
		err = s.Validate()
	}
	if err != nil {
		return Pause{Since: created.UTC(), Reason: "the stored pause cannot be read; resume removes it"}, err
	}
	if s.Since.IsZero() {
		s.Since = created.UTC()
	}
	return s.Pause, nil
}

// pauseState is what was heard last of the pause.
type pauseState struct {
	Pause
	on bool
	// revision and created tell the value, or its removal, from others; 0: there was
	// none.
	revision uint64
	created  time.Time
}

// holds reports whether nothing may be delivered.
func (s *pauseState) holds(now func() time.Time) bool {
	// The time of day, not the monotonic clock: a clock that is set counts.
	return s.on && (s.Until.IsZero() || now().Round(0).Before(s.Until.Round(0)))
}

// pauseGate lets deliveries start, or not. Who changes the pause holds the same lock
// as a delivery that starts, so that none starts once the change is known.
type pauseGate struct {
	mu   sync.Mutex
	last atomic.Pointer[pauseState] // never nil; changed with mu held
	news chan struct{}              // closed when last changes; guarded by mu
	now  func() time.Time
}

func newPauseGate() *pauseGate {
	g := &pauseGate{news: make(chan struct{}), now: time.Now}
	g.last.Store(&pauseState{})
	return g
}

// set makes s what was heard last.
func (g *pauseGate) set(s *pauseState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last.Store(s)
	close(g.news)
	g.news = make(chan struct{})
}

// wait is how long the dispatcher has nothing to do because of a pause.
func (g *pauseGate) wait() (time.Duration, bool) {
	s := g.last.Load()
	if !s.holds(g.now) {
		return 0, false
	}
	if s.Until.IsZero() {
		return idle, true // whoever resumes wakes it
	}
	return min(max(s.Until.Sub(g.now().Round(0)), time.Millisecond), pauseLook), true
}

// enter begins the start of a delivery, unless it is paused; leave ends it.
func (g *pauseGate) enter() bool {
	g.mu.Lock()
	if g.last.Load().holds(g.now) {
		g.mu.Unlock()
		return false
	}
	return true
}

func (g *pauseGate) leave() { g.mu.Unlock() }

// await returns once done accepts what was heard last.
func (g *pauseGate) await(ctx context.Context, ended <-chan struct{}, done func(*pauseState) bool) error {
	for {
		g.mu.Lock()
		s, news := g.last.Load(), g.news
		g.mu.Unlock()
		if done(s) {
			return nil
		}
		select {
		case <-news:
		case <-ended:
			return errors.New("the gateway is shutting down")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Paused gives the pause that holds now.
func (s *Shaper) Paused() (p Pause, ok bool) {
	if last := s.pause.gate.last.Load(); last.holds(s.pause.gate.now) {
		return last.Pause, true
	}
	return Pause{}, false
}

// Pause stores p, and returns it once no delivery starts any more; those in flight
// end. p must be valid; it begins now, or when the one began whose place it takes,
// which is returned as was. After an error it may be stored all the same.
func (s *Shaper) Pause(ctx context.Context, p Pause) (now Pause, was *Pause, err error) {
	k := s.pause
	p.Since = time.Now().UTC().Truncate(time.Millisecond)
	if before, ok := s.Paused(); ok {
		p.Since, was = before.Since, &before
	}
	value, err := json.Marshal(storedPause{V: pauseVersion, Pause: p})
	if err != nil {
		return p, was, fmt.Errorf("pause: %w", err)
	}
	revision, err := k.kv.Put(ctx, pauseKey, value)
	if err != nil {
		return p, was, k.unwritten("write", err)
	}
	if err := k.gate.await(ctx, k.ended, func(s *pauseState) bool { return s.revision >= revision }); err != nil {
		return p, was, fmt.Errorf("the pause is stored, and not known to hold yet: %w", err)
	}
	return p, was, nil
}

// Resume ends the pause and returns it, once deliveries start again; nil: there was
// none, and nothing is changed. author and reason are for the log. After an error
// the pause may be ended all the same.
func (s *Shaper) Resume(ctx context.Context, author, reason string) (was *Pause, err error) {
	k := s.pause
	for {
		last := k.gate.last.Load()
		if !last.on {
			// Somebody's pause may be on its way.
			e, err := k.kv.Get(ctx, pauseKey)
			switch {
			case errors.Is(err, jetstream.ErrKeyNotFound), err == nil && !e.Created().After(last.created):
				return nil, nil // or a replica tells of one that is over
			case err != nil:
				return nil, k.unwritten("read", err)
			}
		} else {
			k.resumedBy(author, reason)
			err := k.kv.Delete(ctx, pauseKey, jetstream.LastRevision(last.revision))
			if err == nil {
				was = &last.Pause
			} else if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
				return nil, k.unwritten("remove", err)
			}
		}
		// Either it is gone, or another than what was heard is there.
		if err := k.gate.await(ctx, k.ended, func(s *pauseState) bool { return s != last }); err != nil {
			return was, fmt.Errorf("the end of the pause is not known to be in force: %w", err)
		}
		if was != nil {
			return was, nil
		}
	}
}

// is reports whether e is what was heard last.
func (s *pauseState) is(e jetstream.KeyValueEntry) bool {
	return s.revision == e.Revision() && s.created.Equal(e.Created())
}

// unwritten says what became of a change that failed.
func (k *pauseKeeper) unwritten(what string, err error) error {
	switch {
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return errors.New("NATS cannot be reached; nothing was changed")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrDisconnected):
		return fmt.Errorf("%s %s in the bucket %s: it may be done all the same and take effect later: %w", what, pauseKey, k.kv.Bucket(), err)
	}
	return fmt.Errorf("%s %s in the bucket %s: %w", what, pauseKey, k.kv.Bucket(), err)
}
