package limits

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Identity is who a message counts for; an empty field has no key in that scope, so
// that scope does not apply.
type Identity struct{ Tenant, Service, User, IP, APIKey string }

// gatewayKey is the one key of the gateway scope.
const gatewayKey = AnyKey

func (id *Identity) key(s Scope) string {
	switch s {
	case Gateway:
		return gatewayKey
	case Service:
		return id.Service
	case Tenant:
		return id.Tenant
	case User:
		return id.User
	case IP:
		return id.IP
	}
	return id.APIKey
}

// Excess is a limit that a message would exceed.
type Excess struct {
	Scope Scope
	// Key is whose limit it is; empty for the gateway's.
	Key  string
	Rule algorithms.Rule
	// Wait is the least time after which the same message passes this limit;
	// algorithms.Never if it cannot.
	Wait time.Duration
}

// Quota is how a key stands with one of its rules.
type Quota struct {
	Scope Scope
	Rule  algorithms.Rule
	// Remaining tokens, and the time until what was taken counts no more.
	Remaining uint64
	Reset     time.Duration
}

// Set is the limits in force. Safe for concurrent use, but for Look and the Take that
// goes with it: whoever decides holds a lock over both.
//
// A message costs a search and two decisions a rule, in each scope that has limits and
// for which it has a key, whatever the number of keys; overrides cost nothing for a key
// that is remembered.
type Set struct {
	cfg    Config
	clock  func() int64
	scopes []*scope
	found  []found // by the last Look, a scope each

	changing sync.Mutex
}

// found is where a look has found a message's key; keyed is nil if the scope does not
// apply.
type found struct {
	keyed *algorithms.Keyed
	place algorithms.Place
}

type scope struct {
	name Scope
	// keyed is nil while the scope limits nothing.
	keyed  atomic.Pointer[algorithms.Keyed]
	policy algorithms.Policy // under Set.changing
}

// New makes the limits of the environment. clock reads the monotonic nanoseconds that
// decisions are given.
func New(cfg Config, clock func() int64) (*Set, error) {
	s := &Set{cfg: cfg, clock: clock}
	for _, name := range Scopes() {
		s.scopes = append(s.scopes, &scope{name: name})
	}
	s.found = make([]found, len(s.scopes))
	return s, s.Apply(clock(), nil)
}

// Apply puts the live entries in force, in place of those before, from the instant now.
// When it returns, every decision is by them. What was used stays used. It costs a look
// at each key of the scopes that change. If an entry is wrong, nothing changes.
func (s *Set) Apply(now int64, entries []Entry) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	policies := make([]algorithms.Policy, len(s.scopes))
	for i, sc := range s.scopes {
		policies[i] = s.cfg.policy(sc.name, entries)
		if err := policies[i].Validate(); err != nil {
			return fmt.Errorf("limits of scope %s: %w", sc.name, err)
		}
	}
	for i, sc := range s.scopes {
		if err := sc.change(policies[i], s.cfg.MaxKeys, now); err != nil {
			return fmt.Errorf("limits of scope %s: %w", sc.name, err)
		}
	}
	return nil
}

// change puts the scope under a policy that is valid, if it is another one.
func (sc *scope) change(p algorithms.Policy, maxKeys int, now int64) (err error) {
	switch k := sc.keyed.Load(); {
	case k == nil && !limits(p), k != nil && reflect.DeepEqual(p, sc.policy):
		return nil
	case k == nil:
		if k, err = algorithms.NewKeyed(p, maxKeys); err == nil {
			sc.keyed.Store(k)
		}
	default:
		err = k.Change(p, now)
	}
	if err == nil {
		sc.policy = p
	}
	return err
}

// Look decides on a message of a cost and takes nothing. If limits refuse, the excess
// is the one with the longest wait. It remembers where it found the keys, for the Take
// that follows.
func (s *Set) Look(now int64, id *Identity, cost int64) (e Excess, within bool) {
	// First all searches, the decisions after them: a decision locks its key, and the
	// processor would wait for the memory of each by itself. Among 100,000 tenants a
	// message took 1.2 µs so, 1.06 with the searches apart, 0.97 with the hashes apart, too.
	for i, sc := range s.scopes {
		found := &s.found[i]
		key := id.key(sc.name)
		if found.keyed = sc.keyed.Load(); found.keyed == nil || key == "" {
			found.keyed = nil
			continue
		}
		found.place = found.keyed.Aim(key)
	}
	for i := range s.found {
		if found := &s.found[i]; found.keyed != nil {
			found.place.Seek()
		}
	}
	within = true
	for i, sc := range s.scopes {
		found := &s.found[i]
		if found.keyed == nil {
			continue
		}
		d, rule, err := found.keyed.PeekAt(&found.place, now, cost)
		if err != nil {
			d.RetryAfter, rule = algorithms.Never, &algorithms.Rule{}
		}
		if d.Allowed || !within && !algorithms.Longer(d.RetryAfter, e.Wait) {
			continue
		}
		within = false
		e = Excess{Scope: sc.name, Key: id.key(sc.name), Rule: *rule, Wait: d.RetryAfter}
		if sc.name == Gateway {
			e.Key = ""
		}
	}
	return e, within
}

// Take takes the cost of a message from every limit; Look has just said that it
// passes.
func (s *Set) Take(now int64, cost int64) {
	for i := range s.found {
		if found := &s.found[i]; found.keyed != nil {
			// It passes, unless a rule changed since the look; then this is the last
			// message that the new one does not count.
			_, _, _ = found.keyed.TakeAt(&found.place, now, cost)
		}
	}
}

// Quotas gives how a message's keys stand with each of their rules.
func (s *Set) Quotas(now int64, id *Identity) []Quota {
	var quotas []Quota
	for _, sc := range s.scopes {
		k := sc.keyed.Load()
		if k == nil {
			continue
		}
		if key := id.key(sc.name); key != "" {
			k.Each(key, now, func(r algorithms.Rule, d algorithms.Decision) {
				quotas = append(quotas, Quota{sc.name, r, d.Remaining, d.Reset})
			})
		}
	}
	return quotas
}

// Count is the keys that a scope remembers, and how many requests were decided by an
// overflow bucket for want of room.
type Count struct {
	Scope      Scope
	Keys       int
	Overflowed uint64
}

// Counts gives the counts of every scope.
func (s *Set) Counts() []Count {
	counts := make([]Count, len(s.scopes))
	for i, sc := range s.scopes {
		counts[i].Scope = sc.name
		if k := sc.keyed.Load(); k != nil {
			counts[i].Keys, counts[i].Overflowed = k.Len(), k.Overflowed()
		}
	}
	return counts
}

// The sweep comes round all 256 shards in about a minute.
const (
	sweepEvery  = 5 * time.Second
	sweepShards = 20
)

// Run gives back the memory of keys that are idle, until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, sc := range s.scopes {
			if k := sc.keyed.Load(); k != nil && k.Len() > 0 {
				k.Sweep(s.clock(), sweepShards)
			}
		}
	}
}
