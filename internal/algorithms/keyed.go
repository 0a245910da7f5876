package algorithms

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
)

// Keyed is limiters by key, millions of them. Safe for concurrent use; a decision
// on a key that is there allocates nothing and waits for nobody but who decides on
// the same key.
//
// A key is told apart by its bytes, never by a hash alone; only of one longer than
// 65,535 bytes the rest does not count. It costs 8 bytes, its state (8 for a bucket of
// whole or half nanoseconds, 16 for other buckets and fixed windows, 24 for counters) and
// its own bytes in words of 8, all over a load of 0.7 to 0.8; a window log has its
// requests besides. A decision costs a hash and a look at the table, whatever the number
// of keys.
//
// A key leaves only when forgetting it changes no answer: its bucket is full again, its
// window empty. Shards look through their keys when they grow, when there is no room, and
// when Sweep comes round; all instants, those of Peek too, are of one clock, and what is
// idle at one of them may be gone at an earlier one. Past the most keys that it may hold,
// new ones share an overflow state for each entry of the policy, but for keys that the
// policy names.
type Keyed struct {
	seed   maphash.Seed
	most   int64
	keys   atomic.Int64
	policy atomic.Pointer[policy]
	shards [shardCount]shard
	unused [maxRules * maxWords]uint64 // a state before the first use, never written

	changing   sync.Mutex
	overflowed atomic.Uint64
	cursor     atomic.Uint32
}

// overflow is the state that keys share for which there is no room.
type overflow struct {
	mu    sync.Mutex
	state []uint64
	// moved: for good, the state is in the newest policy's.
	moved bool
}

// NewKeyed makes a store of at most so many keys; the error names a wrong rule.
func NewKeyed(p Policy, maxKeys int) (*Keyed, error) {
	c, err := newPolicy(p, nil)
	if err != nil {
		return nil, err
	}
	k := &Keyed{seed: maphash.MakeSeed(), most: int64(maxKeys)}
	k.policy.Store(c)
	return k, nil
}

func (k *Keyed) shard(h uint64) *shard { return &k.shards[h>>(64-shardBits)] }

// Peek decides on n tokens of key and takes nothing. rule is the one with the
// longest wait if the request is refused, else the one that has the fewest tokens
// left; nil if the key has no limit.
func (k *Keyed) Peek(key string, now, n int64) (d Decision, rule *Rule, err error) {
	p := k.Find(key)
	return k.decide(&p, now, n, false)
}

// Take decides as Peek does, and if the request passes takes its tokens from every
// rule of the key.
func (k *Keyed) Take(key string, now, n int64) (d Decision, rule *Rule, err error) {
	p := k.Find(key)
	return k.decide(&p, now, n, true)
}

// PeekAt is Peek for a key that was looked for; p is renewed if the key has moved.
func (k *Keyed) PeekAt(p *Place, now, n int64) (d Decision, rule *Rule, err error) {
	return k.decide(p, now, n, false)
}

// TakeAt is Take for a key that was looked for.
func (k *Keyed) TakeAt(p *Place, now, n int64) (d Decision, rule *Rule, err error) {
	return k.decide(p, now, n, true)
}

func (k *Keyed) decide(p *Place, now, n int64, take bool) (Decision, *Rule, error) {
	if n < 0 {
		return Decision{}, nil, ErrNegative
	}
	now = min(now, lastInstant)
	sh := k.shard(p.hash)
	for ; ; *p = k.Find(p.key) {
		t := p.table
		switch {
		case sh.table.Load() != t:
			continue
		case p.slot < 0:
			i, d, plan, again := k.unknown(sh, p, now, n, take)
			if again {
				continue
			}
			return d, plan.rule(i), nil
		case t.isPlain(p.head):
			if d, ok := t.decidePlain(p.slot, now, n, take); ok {
				return d, t.plainRule, nil
			}
		case t.lock(p.slot, p.head):
			plan := t.plan(p.head)
			i, d := plan.decide(t.state(p.slot), now, n, take)
			t.unlock(p.slot, p.head)
			return d, plan.rule(i), nil
		}
		// The shard is moving to another table.
	}
}

func (p *plan) rule(i int) *Rule {
	if i < 0 {
		return nil
	}
	return &p.rules[i]
}

// unknown decides on a key that its table does not hold. again says that it was put
// there, or that the table is no more: to be looked up once more.
func (k *Keyed) unknown(sh *shard, at *Place, now, n int64, take bool) (rule int, d Decision, p *plan, again bool) {
	t := at.table
	c := k.policy.Load()
	if t != nil {
		c = t.policy
	}
	number := c.of(at.key)
	p = c.plans[number]
	if len(p.algorithms) > 0 && !p.exempt && k.keys.Load() >= k.most && !k.makeRoom(sh, now) {
		if sh.table.Load() != t {
			return 0, Decision{}, nil, true
		}
		p = k.lockOverflow(p, at.key)
		rule, d = p.decide(p.overflow.state, now, n, take)
		p.overflow.mu.Unlock()
		// Who only takes what passes has looked before: a look that refuses is the end of
		// a request, one that does not is followed by another decision.
		if take || !d.Allowed {
			k.overflowed.Add(1)
		}
		return rule, d, p, false
	}
	rule, d = p.decide(k.unused[:p.words], now, n, false)
	if take && d.Allowed && n > 0 && len(p.algorithms) > 0 {
		k.insert(sh, t, at.key, at.hash, now, number)
		return 0, Decision{}, nil, true
	}
	return rule, d, p, false
}

// lockOverflow locks the overflow of a key's plan, or of the plan that has taken its
// place: a change comes to the overflows before it comes to the shards.
func (k *Keyed) lockOverflow(p *plan, key string) *plan {
	for p.overflow.mu.Lock(); p.overflow.moved; p.overflow.mu.Lock() {
		p.overflow.mu.Unlock()
		runtime.Gosched()
		newest := k.policy.Load()
		p = newest.plans[newest.of(key)]
	}
	return p
}

// Change puts the keys under another policy at the instant now. What was used stays
// used. Once it has returned every decision is by the new one; meanwhile some keys
// go by the old. It costs a look at each key, a shard at a time, and decisions wait
// for their own shard at most.
func (k *Keyed) Change(p Policy, now int64) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	now = min(now, lastInstant)
	old := k.policy.Load()
	c, err := newPolicy(p, old)
	if err != nil {
		return err
	}
	after := map[string]*plan{}
	for _, plan := range c.plans {
		after[plan.origin] = plan
	}
	for _, was := range old.plans {
		was.overflow.mu.Lock()
		if plan := after[was.origin]; plan != nil {
			plan.carry(plan.overflow.state, was, was.overflow.state, now)
		} else {
			was.forget(was.overflow.state)
		}
		was.overflow.moved = true
		was.overflow.mu.Unlock()
	}
	k.policy.Store(c)
	for i := range k.shards {
		sh := &k.shards[i]
		sh.mu.Lock()
		if t := sh.table.Load(); t != nil {
			k.rebuild(sh, t, c, now, 0)
		}
		sh.mu.Unlock()
	}
	return nil
}

// Each gives each rule of a key with how it stands for a request of 0 tokens. yield
// must not use k: the key is locked.
func (k *Keyed) Each(key string, now int64, yield func(Rule, Decision)) {
	now = min(now, lastInstant)
	for {
		p := k.Find(key)
		t := p.table
		switch {
		case p.slot < 0:
			k.eachUnknown(p.key, now, yield)
			return
		case t.isPlain(p.head):
			if d, ok := t.decidePlain(p.slot, now, 0, false); ok {
				yield(*t.plainRule, d)
				return
			}
		case t.lock(p.slot, p.head):
			t.plan(p.head).each(t.state(p.slot), now, yield)
			t.unlock(p.slot, p.head)
			return
		}
	}
}

// eachUnknown is Each for a key that is not held: it is unused, or shares the overflow.
func (k *Keyed) eachUnknown(key string, now int64, yield func(Rule, Decision)) {
	c := k.policy.Load()
	p := c.plans[c.of(key)]
	if p.exempt || k.keys.Load() < k.most {
		p.each(k.unused[:p.words], now, yield)
		return
	}
	p = k.lockOverflow(p, key)
	p.each(p.overflow.state, now, yield)
	p.overflow.mu.Unlock()
}

func (p *plan) each(s []uint64, now int64, yield func(Rule, Decision)) {
	for i, a := range p.algorithms {
		yield(p.rules[i], a.decide(s, now, 0, false))
		s = s[a.words():]
	}
}

// Len is the number of keys held.
func (k *Keyed) Len() int { return int(k.keys.Load()) }

// Overflowed is how many requests were decided by a shared overflow state because
// there was no room for their key: those that took from it, and those that it refused,
// at a Peek too.
func (k *Keyed) Overflowed() uint64 { return k.overflowed.Load() }
