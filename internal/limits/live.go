// Limits that change while the gateway runs live in a key-value bucket. Live
// follows it: whoever writes to the bucket, by the gateway or past it, is heard at
// once, and the whole set is handed to Apply.
//
// One goroutine (Run's) reads the bucket and calls Apply; changes write to the
// bucket and wait until it has come round. A change costs a write, and an Apply
// over all entries; a burst of changes is applied together, so n changes at once
// cost far fewer than n Applies. Memory is the entries; a deleted one leaves a
// marker of about 100 bytes in the bucket.

package limits

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Connection tells when the connection to the broker is there again.
type Connection interface {
	StatusChanged(statuses ...nats.Status) chan nats.Status
	RemoveStatusListener(ch chan nats.Status)
}

// LiveDeps are what Live works with.
type LiveDeps struct {
	Bucket jetstream.KeyValue
	// Connection is the one that Bucket uses.
	Connection Connection
	// Apply gets all entries in force, sorted, at every change; it is never called
	// twice at the same time, and the slice is its own. If it fails, those before stay
	// in force.
	Apply func(entries []Entry) error
	// ApplyWeights gets all tenants' weights in force, sorted, at every change of them;
	// nil: weights are passed over. The slice is its own. CheckWeight says what is
	// wrong with one.
	ApplyWeights func(weights []Weight)
	CheckWeight  func(tenant string, weight uint64) error
	// Now is the time of day.
	Now    func() time.Time
	Logger *slog.Logger
}

// Live is the bucket of limits, followed.
type Live struct {
	bucket     jetstream.KeyValue
	connection Connection
	apply      func([]Entry) error
	now        func() time.Time
	log        *slog.Logger

	applyWeights func([]Weight) // nil: weights are passed over
	checkWeight  func(tenant string, weight uint64) error

	changing sync.RWMutex  // a change of the set as a whole excludes all others
	released chan struct{} // something held back may be applied
	another  chan struct{} // the bucket is not the one that was read

	mu      sync.Mutex
	slots   map[string]slot[Entry] // by the bucket's key
	changed bool                   // they are others than those that were applied last
	created time.Time              // the bucket that was read
	seen    uint64                 // up to which revision slots holds it
	applied uint64                 // up to which revision it is in force
	inForce []Entry
	refused uint64        // up to which revision it could not be put in force, for fault
	fault   error         // nil: the set that was read last is in force
	lost    error         // why the bucket is not followed; nil if it is
	held    bool          // a change of many entries takes effect as one
	news    chan struct{} // closed when seen, applied or weighed moves on

	weights        map[string]slot[Weight] // by the bucket's key
	reweighed      bool                    // they are others than those that were applied last
	weighed        uint64                  // up to which revision they are in force
	weightsInForce []Weight
}

// slot is what is known of one key of the bucket.
type slot[T any] struct {
	entry    T
	good     bool   // entry is in force
	revision uint64 // the last one seen, good or not
	fault    string // what is wrong with it
}

// BrokenEntry is something in the bucket that is no limit.
type BrokenEntry struct {
	// Name is its key in the bucket.
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	Error    string `json:"error"`
	// Kept says that the last good one of this key is still in force.
	Kept bool `json:"kept"`
}

// NewLive makes one; nothing is read before Load.
func NewLive(d LiveDeps) *Live {
	return &Live{
		bucket: d.Bucket, connection: d.Connection, apply: d.Apply, now: d.Now,
		applyWeights: d.ApplyWeights, checkWeight: d.CheckWeight,
		log:      d.Logger.With("component", "limits"),
		released: make(chan struct{}, 1), another: make(chan struct{}, 1), news: make(chan struct{}),
		slots: map[string]slot[Entry]{}, weights: map[string]slot[Weight]{},
	}
}

// Load reads the bucket once and applies it, so that no message is decided on
// before. It must have returned before Run is called.
func (l *Live) Load(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := l.open(ctx, nil)
	if err != nil {
		return err
	}
	defer r.close()
	l.publish()
	return nil
}

// Run follows the bucket until ctx ends; then it returns nil. While the broker is
// away, or the bucket is gone, what is in force stays.
func (l *Live) Run(ctx context.Context) error {
	reconnected := l.connection.StatusChanged(nats.CONNECTED)
	defer l.connection.RemoveStatusListener(reconnected)
	for {
		err := l.follow(ctx, reconnected, func() {
			if l.setLost(nil) != nil {
				l.log.Info("the live limits are followed again")
			}
		})
		if ctx.Err() != nil {
			return nil
		}
		if err == nil { // read everything again
			continue
		}
		if l.setLost(err) == nil {
			l.log.Warn("the live limits cannot be followed; those in force stay, and it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-reconnected:
		case <-time.After(retryEvery):
		}
	}
}

// setLost stores why the bucket is not followed, and gives why it was not.
func (l *Live) setLost(err error) (was error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, l.lost = l.lost, err
	return was
}

// Stale says why the entries in force may not be those of the bucket; nil if they are.
func (l *Live) Stale() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.lost, l.fault)
}

// List gives the entries in force, sorted.
func (l *Live) List() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.inForce)
}

// Broken lists what is in the bucket and is no limit, sorted by name.
func (l *Live) Broken() []BrokenEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return broken(l.slots)
}

// publish applies what was read. Only Run's goroutine calls it, and Load's before.
func (l *Live) publish() {
	l.publishWeights()
	l.mu.Lock()
	if l.held || !l.changed {
		if !l.held {
			l.applied = l.seen
		}
		l.announce()
		l.mu.Unlock()
		return
	}
	seen := l.seen
	var entries []Entry
	for _, s := range l.slots {
		if s.good {
			entries = append(entries, s.entry)
		}
	}
	sorted(entries)
	first := len(l.inForce) == 0
	l.mu.Unlock()

	err := l.apply(slices.Clone(entries))
	var some []Entry
	switch {
	case err == nil:
	case first:
		// There are none before: as many as can be, rather than no limit at all.
		if some = fewer(entries); l.apply(slices.Clone(some)) != nil {
			some = nil
		}
		l.log.Error("the live limits are not all in force", "of", len(entries), "in force", len(some), "error", err)
	default:
		l.log.Error("the live limits are not in force; those before stay", "error", err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault = err; err != nil {
		l.refused = seen
		if first {
			l.inForce = some
		}
	} else {
		l.applied, l.inForce, l.changed = seen, entries, false
	}
	l.announce()
}

// fewer are the first entries of each scope, as many as a scope may have.
func fewer(entries []Entry) []Entry {
	var kept []Entry
	count := map[Scope]int{}
	for _, e := range entries {
		if count[e.Scope]++; count[e.Scope] <= maxEntries {
			kept = append(kept, e)
		}
	}
	return kept
}

// announce wakes those who wait; it requires that mu is held.
func (l *Live) announce() {
	close(l.news)
	l.news = make(chan struct{})
}
