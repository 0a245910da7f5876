package algorithms

import "hash/maphash"

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
// of its keys meanwhile waits: it costs about 20 ns a key.
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
