package shaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"
)

// The keys of the state bucket.
const (
	departureKey = "departure"
	retryPrefix  = "retry."
)

// departure is the departure clock, kept so that a restart does not begin with a
// burst.
type departure struct {
	V    int   `json:"v"`
	Next int64 `json:"next"` // Unix ns of the earliest next departure
	// Clean: the process ended in order, with nothing in flight.
	Clean bool `json:"clean,omitempty"`
}

// attempts is what a message that failed has behind it. The server's delivery
// counts begin anew at each reset, so these are ours, from the second attempt on.
type attempts struct {
	V        int   `json:"v"`
	Attempts int   `json:"attempts"`
	Due      int64 `json:"due"` // Unix ns
}

// departEvery is how often the departure clock is written: a restart behaves as
// if a delivery had just left anyway.
const departEvery = time.Second

// stateKeeper writes the state bucket, off the message path: changes to the same
// key are merged while the one before is being written.
type stateKeeper struct {
	kv     jetstream.KeyValue
	stream jetstream.Stream
	log    *slog.Logger
	wake   chan struct{}

	// writing is held over each write, so that an older value never follows a newer.
	writing sync.Mutex

	mu       sync.Mutex
	changes  map[string][]byte // nil: remove
	departed time.Time
}

func newStateKeeper(kv jetstream.KeyValue, stream jetstream.Stream, log *slog.Logger) *stateKeeper {
	return &stateKeeper{kv: kv, stream: stream, log: log, wake: make(chan struct{}, 1), changes: map[string][]byte{}}
}

// load reads what a predecessor left: attempts by sequence, and the departure
// clock, which is zero if there is none.
func (k *stateKeeper) load(ctx context.Context) (map[uint64]attempts, departure, error) {
	saved := map[uint64]attempts{}
	var d departure
	if e, err := k.kv.Get(ctx, departureKey); err == nil {
		if err := json.Unmarshal(e.Value(), &d); err != nil {
			k.log.Warn("departure state not understood; the clock begins anew", "error", err)
		}
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, d, fmt.Errorf("shaper: read %s from bucket %s: %w", departureKey, k.kv.Bucket(), err)
	}
	w, err := k.kv.Watch(ctx, retryPrefix+"*", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, d, fmt.Errorf("shaper: read %s* from bucket %s: %w", retryPrefix, k.kv.Bucket(), err)
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil, d, ctx.Err()
		case e, ok := <-w.Updates():
			if !ok || e == nil {
				return saved, d, nil
			}
			var a attempts
			seq, err := strconv.ParseUint(strings.TrimPrefix(e.Key(), retryPrefix), 10, 64)
			if err == nil {
				err = json.Unmarshal(e.Value(), &a)
			}
			if err != nil {
				k.log.Warn("attempts not understood", "key", e.Key(), "error", err)
				continue
			}
			saved[seq] = a
		}
	}
}

// depart notes the departure clock's next instant; it is written each second.
func (k *stateKeeper) depart(next int64) {
	k.mu.Lock()
	at := time.Now()
	if at.Sub(k.departed) < departEvery {
		k.mu.Unlock()
		return
	}
	k.departed = at
	k.mu.Unlock()
	k.put(departureKey, departure{V: 1, Next: next})
}

// end notes it for the last time, when nothing is in flight.
func (k *stateKeeper) end(next int64) {
	k.put(departureKey, departure{V: 1, Next: next, Clean: true})
}

// begin writes that a process is at work, so that one that is killed is not taken for
// one that ended in order.
func (k *stateKeeper) begin(ctx context.Context, next int64) error {
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := k.write(bounded, departureKey, encode(departure{V: 1, Next: next})); err != nil {
		return fmt.Errorf("shaper: write %s to bucket %s: %w", departureKey, k.kv.Bucket(), err)
	}
	return nil
}

func (k *stateKeeper) save(seq uint64, a attempts) {
	a.V = 1
	k.put(retryPrefix+formatSeq(seq), a)
}

// saveNow is save that returns when it is written, or why it is not.
func (k *stateKeeper) saveNow(ctx context.Context, seq uint64, a attempts) error {
	a.V = 1
	key := retryPrefix + formatSeq(seq)
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	delete(k.changes, key)
	k.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return k.write(bounded, key, encode(a))
}

func (k *stateKeeper) forget(seq uint64) { k.change(retryPrefix+formatSeq(seq), nil) }

func (k *stateKeeper) put(key string, v any) { k.change(key, encode(v)) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of our own structs
	}
	return b
}

func (k *stateKeeper) change(key string, value []byte) {
	k.mu.Lock()
	k.changes[key] = value
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run writes changes until ctx ends, and then what is left.
func (k *stateKeeper) run(ctx context.Context) {
	complain := rate.Sometimes{Interval: 10 * time.Second}
	for {
		select {
		case <-ctx.Done():
			k.flush(&complain)
			return
		case <-k.wake:
			if !k.flush(&complain) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}
	}
}

// writeTimeout bounds one write.
const writeTimeout = 2 * time.Second

// flush writes what has changed; what fails is kept, unless it changed again.
func (k *stateKeeper) flush(complain *rate.Sometimes) bool {
	k.mu.Lock()
	keys := slices.Collect(maps.Keys(k.changes))
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	ok := true
	for _, key := range keys {
		if err := k.flushKey(ctx, key); err != nil {
			ok = false
			complain.Do(func() { k.log.Warn("state not written; tried again", "key", key, "error", err) })
		}
	}
	if !ok {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	return ok
}

func (k *stateKeeper) flushKey(ctx context.Context, key string) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	value, ok := k.changes[key]
	delete(k.changes, key)
	k.mu.Unlock()
	if !ok {
		return nil // written meanwhile
	}
	err := k.write(ctx, key, value)
	if err != nil {
		k.mu.Lock()
		if _, newer := k.changes[key]; !newer {
			k.changes[key] = value
		}
		k.mu.Unlock()
	}
	return err
}

// write removes a key for good when its value is nil: a delete marker a message
// would stay for ever.
func (k *stateKeeper) write(ctx context.Context, key string, value []byte) error {
	if value == nil {
		return k.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+k.kv.Bucket()+"."+key))
	}
	_, err := k.kv.Put(ctx, key, value)
	return err
}
