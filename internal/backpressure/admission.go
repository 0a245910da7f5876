package backpressure

import (
	"hash/maphash"
	"time"
)

const (
	// early is how much before its time a slot may be claimed: clocks differ.
	early = 5 * time.Millisecond
	// grace is how long after its time a slot is kept: over HTTP Retry-After is in whole
	// seconds, and the way takes its time.
	grace = 2 * time.Second
	// leastSooner is the least time before another try, and the least it must gain, to be
	// told to look in before the slot.
	leastSooner = time.Second
	// leastSpread is the least time over whose second half those without a slot are spread:
	// nobody counts how many they are.
	leastSpread = 10 * time.Second
)

// Ask is a message that asks for admission.
type Ask struct {
	Tenant string
	// ID is its own, the same when it comes again; empty if it has none.
	ID string
	// Least is the time after which its limits let it pass, negative if they never do.
	Least time.Duration
}

// Answer is what the backlog says to it.
type Answer struct {
	OK bool
	// Full: there is no room at all, whatever the mode.
	Full bool
	// Own: it is refused because of its tenant's own messages, TENANT_MAX.
	Own bool
	// Wait is the time after which to try again.
	Wait time.Duration
	// Kept: a slot at the end of Wait is kept for it, and it will pass. If not, it may, or have
	// a slot later.
	Kept bool
	// Stalled: nothing is delivered at present, and Wait is a guess.
	Stalled bool
}

// Look decides on a message at the instant now and, if it is refused, gives it a slot.
//
// Refused with a slot, it is let in at its time, if the depth is below HIGH then, or its
// tenant below its part. The backlog is saturated from HIGH on, until it is below 0.9 of
// LOW and nobody has a slot: so long who asks for the first time gets a slot too, so that
// the room is left to those who were promised it; but below 0.9 of LOW, where slots that
// nobody claims would have the outlet run dry, anyone is let in. So are tenants below their
// part, up to MAX, and those who are back at it and owe nobody a place.
//
// Look and the Enter that follows it come from one goroutine.
func (b *Backlog) Look(now int64, ask Ask) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made, b.fairly = 0, false
	depth := b.depth()
	full := depth >= b.rules.Max || b.heavy()
	if b.slots.live > 0 {
		b.expire(now)
	}
	if !full && b.raised == 0 && !b.saturated && b.rules.TenantMax == 0 {
		return Answer{OK: true}
	}
	t := b.tenants.find(ask.Tenant)
	var held ref
	if t != nil && t.slots > 0 {
		held = b.slots.find(b.key(ask), t.id)
	}
	switch {
	case full:
	case b.rules.TenantMax > 0 && t != nil && t.messages() >= b.rules.TenantMax:
		return b.refuseOwn(now, t)
	case held != 0 && b.slots.at(held) <= now+int64(early) && (depth < b.rules.High || b.rules.Fair && !b.tenants.filled(t)):
		return Answer{OK: true}
	case b.raised == 0 && (!b.saturated || b.idle(depth)):
		return Answer{OK: true}
	}
	ok := false
	if !full {
		ok, b.fairly = b.letsIn(t, depth)
	}
	if ok {
		return Answer{OK: true}
	}
	return b.refuse(now, ask, t, held, full)
}

// letsIn reports whether a message passes for what its tenant holds, while the backlog is
// saturated or under pressure, and whether that is below its part. It requires that mu is
// held.
func (b *Backlog) letsIn(t *tenant, depth uint64) (ok, fairly bool) {
	others := b.raised &^ (1 << Depth)
	if b.raised != 0 && b.strangers(depth) {
		return false, false
	}
	switch {
	case b.is(Storage), b.raised != 0 && !b.rules.Fair:
		return false, false
	case b.rules.Fair && t == nil:
		return true, true
	}
	a := b.account(t)
	if !a.over {
		return true, b.rules.Fair
	}
	if others != 0 {
		return false, false
	}
	if depth <= b.rules.Low {
		return a.open || a.slots == 0, false
	}
	// It must not bring the pressure about again: the level would go up and down all the
	// time where somebody has more to send than fits.
	return a.open && depth+1 < b.rules.High, false
}

// strangers reports whether it is not known of a good part of the backlog whose it is, as
// right after a start: then nobody can be said to hold less than its part.
func (b *Backlog) strangers(depth uint64) bool {
	return 20*(depth-min(depth, b.tenants.messages)) > b.rules.High
}

// account is what t's messages count for: its own, or that of all if there are no parts.
func (b *Backlog) account(t *tenant) *tenant {
	if !b.rules.Fair {
		t = b.whole()
	}
	b.tenants.rate(t) // what the others have may have changed
	return t
}

// idle reports whether the outlet may run dry.
func (b *Backlog) idle(depth uint64) bool { return depth == 0 || 10*depth < 9*b.rules.Low }

// key finds a message's slot; 0 if it has no id.
func (b *Backlog) key(ask Ask) uint64 {
	if ask.ID == "" {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(b.seed)
	_, _ = h.WriteString(ask.Tenant)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(ask.ID)
	return max(1, h.Sum64())
}

// expire forgets slots whose time has passed. If nobody came for the last of them, nobody
// waits any more.
func (b *Backlog) expire(now int64) {
	for {
		owner, ok := b.slots.expired(now - int64(grace))
		if !ok {
			return
		}
		b.tenants.unslot(b.tenants.numbered[owner])
		if b.slots.live == 0 && b.raised == 0 {
			b.saturated = false
		}
	}
}

// refuse gives a message its hint: that of the slot it holds, or that of a new one, if it
// lies within the horizon and its limits let it pass by then.
func (b *Backlog) refuse(now int64, ask Ask, t *tenant, held ref, full bool) Answer {
	r := Answer{Full: full}
	if held != 0 {
		if at := b.slots.at(held); at > now+int64(early) {
			if ask.ID != "" {
				r.Wait, r.Kept = b.sooner(now, time.Duration(at-now))
				return r
			}
		} else {
			// Its time has come, and the room has not: it gets another.
			b.slots.remove(held)
			b.tenants.unslot(t)
		}
	}
	t = b.tenants.of(ask.Tenant)
	defer b.tenants.leave(t)
	from, known := b.stall(now)
	if b.is(Storage) {
		known = false // it is not the outlet alone that makes room there
	}
	a := b.account(t)
	first, gap := b.first(now, a, full)
	if !known || gap >= never {
		r.Wait, r.Stalled = b.guess(now, first), true
		return r
	}
	at := max(a.after(from+first, gap), now+int64(minHint))
	r.Wait = time.Duration(at - now)
	switch {
	case r.Wait > maxHint || b.slots.full() || t.slots >= maxSlots/2:
		// Beyond the horizon nothing is promised, so that they are not all told the same.
		r.Wait = b.spread(min(maxHint, max(2*b.soonest(now), leastSpread)))
	case ask.Least < 0 || ask.Least > r.Wait:
		// It could not use it.
	default:
		b.made, b.lineBefore = b.slots.add(b.key(ask), t.id, at), a.line
		a.line = at
		t.slots++
		b.tenants.rate(t)
		b.saturated = true
		if r.Kept = true; ask.ID != "" { // without one it would be taken for another when it looks in
			r.Wait, r.Kept = b.sooner(now, r.Wait)
		}
	}
	return r
}

// sooner is the hint of a message whose slot is so far off, and whether it is that of the
// slot. Slots lie as far apart as if all who share the rate went on for ever. If they do
// not, all who wait now may be through long before the slots of a tenant whose line is
// longer than the others', and the outlet would idle until then. So it is told to look in
// at that time. Unless there is room it is refused again, and its slot stays its own.
func (b *Backlog) sooner(now int64, slot time.Duration) (wait time.Duration, kept bool) {
	if b.raised&^(1<<Depth) != 0 {
		return slot, true
	}
	soonest := max(b.soonest(now), leastSooner)
	if slot-soonest < max(soonest/2, leastSooner) {
		return slot, true // to ask twice is not worth it
	}
	return soonest, false
}

// soonest is the time until anyone is let in, if all who have a slot come, and beside them
// as many of tenants below their part as do now.
func (b *Backlog) soonest(now int64) time.Duration {
	from, _ := b.stall(now)
	ahead := b.depth() + uint64(b.slots.live)
	ahead -= min(ahead, b.rules.Low/10*9)
	left := max(b.left(now), 1e-9)
	return time.Duration(min(float64(from-now)+float64(ahead)/left*float64(time.Second), never))
}

// refuseOwn is for a tenant that holds TENANT_MAX messages: the hint is the time until so
// many of its own are gone, at its share of the rate, that one fits in, one after the
// other, and from the beginning once all its own would be gone: who asks again and again
// does not put off the others for longer than that. It is no promise.
func (b *Backlog) refuseOwn(now int64, t *tenant) Answer {
	a := Answer{Own: true}
	from, known := b.stall(now)
	gap := float64(time.Second) / (b.drainRate(now) * b.tenants.share(t))
	ahead := float64(t.messages()-b.rules.TenantMax+1) * gap
	if !known || gap >= never {
		a.Wait, a.Stalled = b.guess(now, int64(min(ahead, never))), true
		return a
	}
	first := max(float64(from)+ahead, float64(now)+float64(minHint))
	at := max(first, float64(t.own)+gap)
	if at > first+float64(b.rules.TenantMax)*gap {
		at = first
	}
	if at-float64(now) > float64(maxHint) {
		a.Wait = b.spread(maxHint)
		return a
	}
	t.own = int64(at)
	a.Wait = time.Duration(t.own - now)
	return a
}

// Full reports whether there is no room at all, and after what time there may be: all
// that counts while limits and watermarks are switched off.
func (b *Backlog) Full(now int64) (wait time.Duration, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.depth() < b.rules.Max && !b.heavy() {
		return 0, false
	}
	return b.hint(now, b.whole(), true), true
}

// whole is the account of all there is.
func (b *Backlog) whole() *tenant {
	b.all.held, b.all.slots = b.depth(), uint32(b.slots.live)
	return &b.all
}
