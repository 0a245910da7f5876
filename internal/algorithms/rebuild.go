package algorithms

import (
	"hash/maphash"
	"time"
)

// insert puts a key into the shard, unused, unless the shard's table is no longer t.
func (k *Keyed) insert(sh *shard, t *table, key string, h uint64, now int64, plan int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.table.Load() != t {
		return
	}
	if t == nil {
		c := k.policy.Load()
		plan = c.of(key) // the policy may have changed since it was asked
		first := &lengths{}
		first.add(len(key))
		t = newTable(c, first)
		sh.table.Store(t)
	} else if slot, _ := t.find(key, h); slot >= 0 {
		return
	}
	if !t.fits(len(key)) {
		t = k.rebuild(sh, t, t.policy, now, len(key))
	}
	slot, head := t.add([]byte(key), h, plan)
	t.unlock(slot, head)
	k.keys.Add(1)
}

// rebuild gives the shard a table without its idle keys, under the policy c, with
// room for another key of so many bytes; without another, it leaves a table as it is
// that has no idle keys. It requires that the shard is locked. Whoever decides on one
// of its keys meanwhile waits.
func (k *Keyed) rebuild(sh *shard, t *table, c *policy, now int64, more int) *table {
	sh.swept = now
	// Frozen, no state changes any more.
	live := &lengths{}
	plain := t.plainRoom()
	for slot, head := range t.heads {
		t.freeze(slot, head, plain)
		if !t.plan(head).idle(t.frozen(slot, head, plain), now) {
			live.add(t.length(slot))
		}
	}
	if more == 0 && c == t.policy && live.total == t.keys {
		for slot, head := range t.heads {
			t.thaw(slot, head, plain)
		}
		return t
	}
	var next *table
	room := make([]byte, 0, largestCell*wordBytes)
	if more > 0 {
		live.add(more)
	}
	if live.total > 0 {
		next = newTable(c, live)
	}
	for slot, head := range t.heads {
		plan, state := t.plan(head), t.frozen(slot, head, plain)
		if plan.idle(state, now) {
			plan.forget(state)
			continue
		}
		name := t.name(slot, room)
		number := int(head >> planShift & (maxPlans - 1))
		if c != t.policy {
			number = c.of(string(name))
		}
		to, moved := next.add(name, maphash.Bytes(k.seed, name), number)
		if c == t.policy {
			copy(next.state(to), state)
		} else {
			c.plans[number].carry(next.state(to), plan, state, now)
		}
		next.unlock(to, moved)
	}
	kept := 0
	if next != nil {
		kept = next.keys
	}
	k.keys.Add(int64(kept - t.keys))
	sh.table.Store(next)
	for slot, head := range t.heads {
		t.unlock(slot, head|movedBit)
	}
	return next
}

// sweepEvery is the least time between two looks for room in a shard.
const sweepEvery = int64(250 * time.Millisecond)

// makeRoom forgets idle keys of the shard at hand, and of the next in turn, and
// reports whether there is room.
func (k *Keyed) makeRoom(sh *shard, now int64) bool {
	next := &k.shards[k.cursor.Add(1)%shardCount]
	for _, s := range []*shard{sh, next} {
		if s.mu.TryLock() {
			if t := s.table.Load(); t != nil && (s.swept == 0 || now-s.swept >= sweepEvery || now < s.swept) {
				k.rebuild(s, t, t.policy, now, 0)
			}
			s.mu.Unlock()
		}
	}
	return k.keys.Load() < k.most
}

// Sweep forgets the idle keys of so many shards of 256, those that come next in
// turn. It is for whoever wants the memory of a rush back without another one.
func (k *Keyed) Sweep(now int64, shards int) {
	now = min(now, lastInstant)
	for range shards {
		sh := &k.shards[k.cursor.Add(1)%shardCount]
		sh.mu.Lock()
		if t := sh.table.Load(); t != nil {
			k.rebuild(sh, t, t.policy, now, 0)
		}
		sh.mu.Unlock()
	}
}
