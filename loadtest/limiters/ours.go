package main

import (
	"fmt"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// All that is known here of flowgate's own limiters.

// algorithmNames are flowgate's, those with a bound on their time first.
var algorithmNames = []string{"token-bucket", "gcra", "leaky-bucket", "fixed-window", "sliding-window", "sliding-window-log", "sliding-window-counter"}

// base is the origin of the instants that ours get.
var base = time.Now()

// limiter is one limiter of ours, safe for concurrent use.
type limiter interface {
	Take(now, n int64) (algorithms.Decision, error)
}

// newLimiter makes a limiter of one rule.
func newLimiter(rule string) (limiter, error) {
	rules, err := algorithms.ParseRules(rule)
	if err != nil {
		return nil, err
	}
	if len(rules) != 1 {
		return nil, fmt.Errorf("%q is not one rule", rule)
	}
	return algorithms.New(rules[0])
}

// ownStore is our limiters by key.
type ownStore struct{ keyed *algorithms.Keyed }

// keepsKeys says whether ownStore holds the keys' own bytes.
const keepsKeys = true

// newStore makes a store of so many keys at most, each under all the rules.
func newStore(rules string, maxKeys int) (ownStore, error) {
	parsed, err := algorithms.ParseRules(rules)
	if err != nil {
		return ownStore{}, err
	}
	k, err := algorithms.NewKeyed(algorithms.Policy{Default: parsed}, maxKeys)
	return ownStore{k}, err
}

func (s ownStore) take(key string, now int64) bool {
	d, _, err := s.keyed.Take(key, now, 1)
	return err == nil && d.Allowed
}

// decide is a keyDecider.
func (s ownStore) decide(keys []string) (admitted int) {
	for _, key := range keys {
		if s.take(key, int64(time.Since(base))) {
			admitted++
		}
	}
	return admitted
}

func (s ownStore) len() int { return s.keyed.Len() }
