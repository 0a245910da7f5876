package algorithms

import (
	"math"
	"strings"
	"sync"
	"time"
)

// Keyed is token buckets by key, all under the same rules; a request must pass
// every rule. Safe for concurrent use.
//
// A key that is there costs one map lookup a decision and no allocation. A key
// leaves only when all its buckets are full again, so that forgetting it changes
// no answer: a sweep looks at every key once the number of keys has doubled since
// the last one, which is O(1) an insertion. A key takes about 50 bytes, its own
// bytes, and 32 a rule.
type Keyed struct {
	rules  []Rule
	limits []TokenBucket

	mu      sync.Mutex
	keys    map[string][]Bucket
	sweepAt int
}

const firstSweep = 1024

// NewKeyed makes a store for the rules; without any, everything passes.
func NewKeyed(rules []Rule) (*Keyed, error) {
	k := &Keyed{rules: rules, keys: map[string][]Bucket{}, sweepAt: firstSweep}
	for _, r := range rules {
		t, err := NewTokenBucket(r)
		if err != nil {
			return nil, err
		}
		k.limits = append(k.limits, t)
	}
	return k, nil
}

// Rule gives the rule of an index that Look returned.
func (k *Keyed) Rule(i int) Rule { return k.rules[i] }

// Look decides on n tokens of key and takes nothing. If it refuses, rule is the
// one with the longest wait, and Never is the longest; if not, the one that has
// the fewest tokens left.
func (k *Keyed) Look(key string, now, n int64) (rule int, d Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.look(k.keys[key], now, n)
}

// look requires that mu is held; buckets is nil for a key that is not there.
func (k *Keyed) look(buckets []Bucket, now, n int64) (rule int, d Decision) {
	d = Decision{Allowed: true, Remaining: math.MaxUint64}
	for i := range k.limits {
		var b Bucket
		if buckets != nil {
			b = buckets[i]
		}
		one, err := k.limits[i].Look(b, now, n)
		if err != nil {
			one.RetryAfter = Never
		}
		switch {
		case !one.Allowed && (d.Allowed || longer(one.RetryAfter, d.RetryAfter)),
			one.Allowed && d.Allowed && one.Remaining < d.Remaining:
			rule, d = i, one
		}
	}
	return rule, d
}

func longer(a, b time.Duration) bool { return b != Never && (a == Never || a > b) }

// Take takes n tokens of key from every rule, or none if one refuses.
func (k *Keyed) Take(key string, now, n int64) (rule int, d Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	buckets := k.keys[key]
	if rule, d = k.look(buckets, now, n); !d.Allowed || len(k.limits) == 0 {
		return rule, d
	}
	if buckets == nil {
		if len(k.keys) >= k.sweepAt {
			k.sweep(now)
		}
		buckets = make([]Bucket, len(k.limits))
		k.keys[strings.Clone(key)] = buckets
	}
	for i := range k.limits {
		// Looked at above under the same lock: it passes.
		_, _ = k.limits[i].Take(&buckets[i], now, n)
	}
	return rule, d
}

// sweep forgets the keys whose buckets are all full; it requires that mu is held.
func (k *Keyed) sweep(now int64) {
	kept := make(map[string][]Bucket)
	for key, buckets := range k.keys {
		for i := range buckets {
			if !k.limits[i].Full(buckets[i], now) {
				kept[key] = buckets
				break
			}
		}
	}
	k.keys = kept
	k.sweepAt = max(firstSweep, 2*len(kept))
}

// Len is the number of keys held.
func (k *Keyed) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)
}
