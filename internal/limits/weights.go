package limits

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
)

// Tenants' weights lie in the bucket of the live limits and are followed with them;
// a set of limits leaves them alone.

// ErrNoWeight says that a weight to be deleted is not there.
var ErrNoWeight = errors.New("there is no such live weight")

// weightScope is where the bucket holds weights: weight.<base64url of the tenant>.
const weightScope Scope = "weight"

// Weight is a tenant's part of the delivery rate, set while the gateway runs.
type Weight struct {
	Tenant string `json:"tenant"`
	Weight uint64 `json:"weight"`
	// Author and Reason are for those who read the list later.
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Revision is the bucket's.
	Revision uint64 `json:"-"`
}

// Validate joins all that is wrong; check knows what a tenant and a weight are.
func (w Weight) Validate(check func(tenant string, weight uint64) error) error {
	return errors.Join(
		check(w.Tenant, w.Weight),
		validateText("author", w.Author, maxAuthor),
		validateText("reason", w.Reason, maxReason),
	)
}

func weightKey(tenant string) string { return bucketKey(weightScope, tenant) }

func isWeightKey(k string) bool { return strings.HasPrefix(k, string(weightScope)+".") }

// decodeWeight reads a weight of the bucket. It may name its tenant once more, and
// then the same.
func (l *Live) decodeWeight(e jetstream.KeyValueEntry) (Weight, error) {
	_, tenant, err := splitBucketKey(e.Key())
	if err != nil {
		return Weight{}, err
	}
	if !utf8.Valid(e.Value()) {
		return Weight{}, errors.New("it is not UTF-8")
	}
	w := Weight{Tenant: tenant}
	if err := json.Unmarshal(bytes.TrimSpace(e.Value()), &w); err != nil {
		return Weight{}, fmt.Errorf("it cannot be read: %w", err)
	}
	if w.Tenant != tenant {
		return Weight{}, fmt.Errorf("it says that it is for tenant %q, but its name in the bucket is that of another", w.Tenant)
	}
	if err := w.Validate(l.checkWeight); err != nil {
		return Weight{}, err
	}
	if w.Revision = e.Revision(); w.At.IsZero() {
		w.At = e.Created().UTC()
	}
	return w, nil
}

// publishWeights applies the weights that were read, if there was a change. Only
// publish calls it.
func (l *Live) publishWeights() {
	l.mu.Lock()
	seen, changed := l.seen, l.reweighed
	l.reweighed = false
	list := []Weight{}
	for _, s := range l.weights {
		if s.good {
			list = append(list, s.entry)
		}
	}
	l.mu.Unlock()
	if slices.SortFunc(list, func(a, b Weight) int { return cmp.Compare(a.Tenant, b.Tenant) }); changed && l.applyWeights != nil {
		l.applyWeights(slices.Clone(list))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weighed, l.weightsInForce = seen, list
}

// Weights gives those in force, sorted by tenant.
func (l *Live) Weights() []Weight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.weightsInForce)
}

// BrokenWeights lists what is in the bucket in a weight's place and is none, sorted by
// name.
func (l *Live) BrokenWeights() []BrokenEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return broken(l.weights)
}

// WeightsStale says why the weights in force may not be those of the bucket; nil if
// they are.
func (l *Live) WeightsStale() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// SetWeight stores a weight and returns it as stored, once it is in force. If ctx ends
// before, it may be stored all the same.
func (l *Live) SetWeight(ctx context.Context, w Weight) (Weight, error) {
	if err := w.Validate(l.checkWeight); err != nil {
		return w, &InvalidError{err}
	}
	w.At = l.now().UTC().Truncate(time.Millisecond)
	text, err := json.Marshal(w)
	if err != nil {
		return w, fmt.Errorf("write the weight of %s: %w", w.Tenant, err)
	}
	if w.Revision, err = l.bucket.Put(ctx, weightKey(w.Tenant), text); err != nil {
		return w, l.unwritten(ctx, "write to", err)
	}
	if err := l.catchUp(ctx, &l.weighed); err != nil {
		return w, fmt.Errorf("the weight is stored, and not known to be in force: %w", err)
	}
	return w, nil
}

// DeleteWeight removes a weight and returns once it is no longer in force;
// ErrNoWeight if there is none.
func (l *Live) DeleteWeight(ctx context.Context, tenant string) error {
	if err := l.checkWeight(tenant, 1); err != nil {
		return &InvalidError{err}
	}
	// What others wrote just now counts.
	if err := l.catchUp(ctx, &l.seen); err != nil {
		return err
	}
	k := weightKey(tenant)
	l.mu.Lock()
	_, there := l.weights[k]
	l.mu.Unlock()
	if !there {
		return fmt.Errorf("%w for tenant %s", ErrNoWeight, tenant)
	}
	if err := l.bucket.Delete(ctx, k); err != nil {
		return l.unwritten(ctx, "delete from", err)
	}
	if err := l.catchUp(ctx, &l.weighed); err != nil {
		return fmt.Errorf("the weight is deleted, and may be in force still: %w", err)
	}
	return nil
}

// broken lists the slots with a fault, sorted by name.
func broken[T any](slots map[string]slot[T]) []BrokenEntry {
	var list []BrokenEntry
	for _, k := range slices.Sorted(maps.Keys(slots)) {
		if s := slots[k]; s.fault != "" {
			list = append(list, BrokenEntry{Name: shownKey(k), Revision: s.revision, Error: s.fault, Kept: s.good})
		}
	}
	return list
}
