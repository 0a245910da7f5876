package backpressure

import (
	"hash/maphash"
	"math"
	"time"
)

// The hint's bounds. Below, the answer would come back before the producer has
// had time to wait; above, a producer would sleep through the recovery.
const (
	minHint = 50 * time.Millisecond
	maxHint = 60 * time.Second
)

const (
	// early is how much before its time a slot may be claimed: clocks differ.
	early = 5 * time.Millisecond
	// grace is how long after its time a slot is kept: over HTTP Retry-After is in whole
	// seconds, and the way takes its time.
	grace = 2 * time.Second
	// firstStall is the hint when deliveries have just stopped and nobody knows for how
	// long.
	firstStall = time.Second
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
	// Wait is the time after which a retry will pass.
	Wait time.Duration
	// Kept: a slot at the end of Wait is kept for it.
	Kept bool
	// Stalled: nothing is delivered at present, and Wait is a guess.
	Stalled bool
}

// Look decides on a message at the instant now and, if it is refused, gives it a slot.
//
// Refused with a slot, it is let in at its time, if the depth is below HIGH then. While
// there are slots to come, who asks for the first time gets one too, so that the room is
// left to those who were promised it; but below 0.9 of LOW, where slots that nobody
// claims would have the outlet run dry, anyone is let in. A tenant below its part is let
// in all the same, up to MAX.
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
	if !full && b.raised == 0 && b.slots.live == 0 && b.rules.TenantMax == 0 {
		return Answer{OK: true}
	}
	t := b.tenants.find(ask.Tenant)
	var held ref
	var key uint64
	if t != nil && t.slots > 0 {
		key = b.key(ask)
		held = b.slots.find(key, t.id)
	}
	switch {
	case full:
	case b.rules.TenantMax > 0 && t != nil && t.messages() >= b.rules.TenantMax:
		return b.refuseOwn(now, t)
	case held != 0 && b.slots.at(held) <= now+int64(early) && depth < b.rules.High:
		return Answer{OK: true}
	case b.raised != 0:
		b.fairly = b.underPart(t)
	case b.slots.live == 0 || b.idle(depth) || b.vacant(now, depth, t, ask.Tenant):
		return Answer{OK: true}
	default:
		b.fairly = b.underPart(t)
	}
	if b.fairly {
		return Answer{OK: true}
	}
	return b.refuse(now, ask, t, held, full)
}

// underPart reports whether t holds less than its part and there may be room for it; it
// requires that mu is held.
func (b *Backlog) underPart(t *tenant) bool {
	if !b.rules.Fair || b.is(Storage) {
		return false
	}
	if t == nil {
		return true
	}
	b.tenants.rate(t) // the others' parts may have changed
	return !t.over
}

// idle reports whether the outlet may run dry.
func (b *Backlog) idle(depth uint64) bool { return depth == 0 || 10*depth < 9*b.rules.Low }

// vacant reports whether a place is free now that was promised to nobody.
func (b *Backlog) vacant(now int64, depth uint64, t *tenant, name string) bool {
	if depth > b.rules.Low {
		return false
	}
	gap := b.gap(now, t, name)
	return gap < math.MaxInt64/2 && b.slots.next(gap) <= now
}

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

// expire forgets slots whose time has passed.
func (b *Backlog) expire(now int64) {
	for {
		owner, ok := b.slots.expired(now - int64(grace))
		if !ok {
			return
		}
		b.tenants.unslot(b.tenants.numbered[owner])
	}
}

// refuse gives a message its hint: that of the slot it holds, or that of a new one, if it
// lies within the horizon and its limits let it pass by then.
func (b *Backlog) refuse(now int64, ask Ask, t *tenant, held ref, full bool) Answer {
	a := Answer{Full: full}
	if held != 0 {
		if at := b.slots.at(held); at > now+int64(early) && ask.ID != "" {
			a.Wait, a.Kept = time.Duration(at-now), true
			return a
		}
		if b.slots.at(held) <= now+int64(early) {
			// Its time has come, and the room has not: it gets another.
			b.slots.remove(held)
			b.tenants.unslot(t)
			t = b.tenants.find(ask.Tenant)
		}
	}
	from, known := b.stall(now)
	if b.is(Storage) {
		known = false // it is not the outlet alone that makes room there
	}
	gap := b.gap(now, t, ask.Tenant)
	ahead := float64(gap) * float64(b.ahead(full))
	if !known || gap >= math.MaxInt64/2 {
		a.Wait, a.Stalled = b.guess(now, ahead), true
		return a
	}
	first := float64(from) + ahead
	if first > float64(now)+float64(maxHint) || b.slots.full() {
		a.Wait = b.spread(maxHint)
		return a
	}
	at := max(int64(first), b.slots.next(gap), now+int64(minHint))
	a.Wait = time.Duration(at - now)
	switch {
	case a.Wait > maxHint:
		// Beyond the horizon nothing is promised, so that they are not all told the same.
		a.Wait = b.spread(maxHint)
	case ask.Least < 0 || ask.Least > a.Wait:
		// It could not use it.
	default:
		if t == nil {
			t = b.tenants.of(ask.Tenant)
		}
		b.made = b.slots.add(b.key(ask), t.id, at)
		t.slots++
		b.tenants.rate(t)
		a.Kept = true
	}
	return a
}

// ahead is how many messages have to go before any of the refused is let in.
func (b *Backlog) ahead(full bool) uint64 {
	depth := b.depth()
	n := uint64(0)
	if depth > b.rules.Low {
		n = depth - b.rules.Low
	}
	if s := &b.signals[Bytes]; (s.Raised || full) && s.Value > s.Low && b.messages > 0 {
		// So many messages of the average size.
		n = max(n, (s.Value-s.Low)/max(1, b.bytes/b.messages)+1)
	}
	if s := &b.signals[Age]; s.Raised && s.Value > s.Low {
		// As if they had come evenly: then so many of them are older than the low mark.
		n = max(n, uint64(float64(depth)*float64(s.Value-s.Low)/float64(s.Value))+1)
	}
	return n
}

// gap is the time between two places, 1/rate; what tenants below their part take of the
// rate is theirs, but no more than leaves t its share.
func (b *Backlog) gap(now int64, t *tenant, name string) int64 {
	rate := b.drainRate(now)
	if others := b.byPart.PerSecond(now); others > 0 {
		rate = max(rate-others, rate*b.tenants.share(t, name))
	}
	if gap := float64(time.Second) / rate; gap < math.MaxInt64/2 {
		return int64(gap)
	}
	return math.MaxInt64 / 2
}

// refuseOwn is for a tenant that holds TENANT_MAX messages: the hint is the time until so
// many of its own are gone, at its share of the rate, that one fits in, one after the
// other.
func (b *Backlog) refuseOwn(now int64, t *tenant) Answer {
	a := Answer{Own: true}
	from, known := b.stall(now)
	gap := float64(time.Second) / (b.drainRate(now) * b.tenants.share(t, t.name))
	ahead := float64(t.messages()-b.rules.TenantMax+1) * gap
	if !known || math.IsInf(gap, 1) {
		a.Wait, a.Stalled = b.guess(now, ahead), true
		return a
	}
	at := max(float64(from)+ahead, float64(t.own)+gap, float64(now)+float64(minHint))
	if at-float64(now) > float64(maxHint) {
		a.Wait = b.spread(maxHint)
		return a
	}
	t.own = int64(at)
	a.Wait = time.Duration(t.own - now)
	return a
}

// stall is from when on messages are delivered: now, or at the end of a pause if it is
// known. It requires that mu is held.
func (b *Backlog) stall(now int64) (from int64, known bool) {
	until, stalled := b.deps.Stalled()
	if !stalled {
		if b.stalledSince != 0 && b.busySince != 0 {
			b.busySince, b.drainedBefore = now, b.drained.Total() // the standstill says nothing of the rate
		}
		b.stalledSince = 0
		return now, true
	}
	if b.stalledSince == 0 {
		b.stalledSince = now
	}
	return max(now, until), until > 0
}

// guess is the hint while nothing is delivered and nobody knows for how long: as long
// again as it has lasted, and the time that the messages ahead take afterwards.
func (b *Backlog) guess(now int64, ahead float64) time.Duration {
	wait := float64(max(2*time.Duration(now-b.stalledSince), 2*firstStall))
	if b.stalledSince == 0 {
		wait = float64(maxHint)
	}
	if ahead < float64(maxHint) {
		wait += ahead
	}
	return b.spread(time.Duration(min(wait, float64(maxHint))))
}

// spread gives hints between half of d and d, each far from those before it: steps of
// the golden ratio (Weyl's sequence).
func (b *Backlog) spread(d time.Duration) time.Duration {
	b.steps += 0x9E3779B9
	return d - time.Duration(float64(d)/2*float64(b.steps)/(1<<32))
}

// Full reports whether there is no room at all, and after what time there may be: all
// that counts while limits and watermarks are switched off.
func (b *Backlog) Full(now int64) (wait time.Duration, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.depth() < b.rules.Max && !b.heavy() {
		return 0, false
	}
	return b.firstTry(now), true
}

// firstTry is the hint that a message would get now; it makes no slot.
func (b *Backlog) firstTry(now int64) time.Duration {
	from, known := b.stall(now)
	gap := b.gap(now, nil, "")
	if at := float64(from) + float64(gap)*float64(b.ahead(true)); known && gap < math.MaxInt64/2 && at < float64(now)+float64(maxHint) {
		return min(max(time.Duration(max(int64(at), b.slots.next(gap))-now), minHint), maxHint)
	}
	return maxHint
}

// Stay is how long a message of a tenant that is admitted at the instant now will wait
// for its delivery: behind its tenant's own at their share of the rate and behind one of
// each other tenant, but no longer than behind all there are.
func (b *Backlog) Stay(now int64, tenant string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	depth := b.depth()
	t := b.tenants.find(tenant)
	var own uint64
	if t != nil {
		own = t.messages()
	}
	// Whose the others are may not be known yet, right after the start.
	others := min(uint64(len(b.tenants.named)), b.tenants.messages-own)
	others += depth - min(depth, b.tenants.messages)
	from, known := b.stall(now)
	if !known {
		return math.MaxInt64
	}
	wait := min(b.drainTime(now, depth), float64(own)/b.tenants.share(t, tenant)*b.drainTime(now, 1)+b.drainTime(now, others))
	return duration(wait + float64(from-now))
}

// duration is the longest there is for what is longer, and for what is no number.
func duration(ns float64) time.Duration {
	if ns < math.MaxInt64/2 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}
