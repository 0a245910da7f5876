package backpressure

import (
	"math"
	"time"
)

// The hint's bounds. Below, the answer would come back before the producer has
// had time to wait; above, a producer would sleep through the recovery.
const (
	minHint = 50 * time.Millisecond
	maxHint = 60 * time.Second
	// firstStall is the hint when deliveries have just stopped and nobody knows for how
	// long.
	firstStall = time.Second
)

// never stands for what takes too long to count.
const never = math.MaxInt64 / 4

// first is the time until the next of an account may be let in, were there no line, and the
// time between two of its line, both in nanoseconds and at most never.
func (b *Backlog) first(now int64, a *tenant, full bool) (first, gap int64) {
	gap = b.gap(now, a)
	depth, all := b.depth(), 0.0
	// Whichever comes first: the backlog at LOW, or its own part of it.
	held, low := a.messages(), b.tenants.part(a, b.rules.Low)
	wait := float64(gap) * float64(held-min(held, low))
	if !a.alone {
		left := max(b.left(now), b.drainRate(now)*b.tenants.share(a))
		wait = min(wait, float64(depth-min(depth, b.rules.Low))/left*float64(time.Second))
	}
	if full {
		all = float64(depth - min(depth, b.rules.High))
	}
	if s := &b.signals[Bytes]; (s.Raised || full) && s.Value > s.Low && b.messages > 0 {
		// So many messages of the average size.
		all = max(all, float64((s.Value-s.Low)/max(1, b.bytes/b.messages)+1))
	}
	if s := &b.signals[Age]; s.Raised && s.Value > s.Low {
		// As if they had come evenly: then so many of them are older than the low mark.
		all = max(all, float64(depth)*float64(s.Value-s.Low)/float64(s.Value)+1)
	}
	if all > 0 {
		wait = max(wait, all/b.drainRate(now)*float64(time.Second))
	}
	return int64(min(wait, never)), gap
}

// gap is the time between two places of an account's line, at most never. Its rate is its
// share, or its part of what tenants below their part leave to those above.
func (b *Backlog) gap(now int64, a *tenant) int64 {
	rate := b.drainRate(now)
	if !a.alone {
		rate = max(rate*b.tenants.share(a), b.left(now)*b.tenants.shareOver(a))
	}
	if gap := float64(time.Second) / rate; gap < never {
		return int64(gap)
	}
	return never
}

// left is the rate that tenants below their part leave.
func (b *Backlog) left(now int64) float64 { return b.drainRate(now) - b.byPart.PerSecond(now) }

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
func (b *Backlog) guess(now, ahead int64) time.Duration {
	wait := float64(max(2*time.Duration(now-b.stalledSince), 2*firstStall))
	if b.stalledSince == 0 {
		wait = float64(maxHint)
	}
	if ahead < int64(maxHint) {
		wait += float64(ahead)
	}
	return b.spread(time.Duration(min(wait, float64(maxHint))))
}

// spread gives hints between half of d and d, each far from those before it: steps of
// the golden ratio (Weyl's sequence).
func (b *Backlog) spread(d time.Duration) time.Duration {
	b.steps += 0x9E3779B9
	return d - time.Duration(float64(d)/2*float64(b.steps)/(1<<32))
}

// hint is what a message of an account would be told now; it makes no slot.
func (b *Backlog) hint(now int64, a *tenant, full bool) time.Duration {
	from, known := b.stall(now)
	if b.is(Storage) {
		known = false // as in refuse
	}
	first, gap := b.first(now, a, full)
	if !known || gap >= never {
		return min(max(2*time.Duration(now-b.stalledSince), 2*firstStall), maxHint)
	}
	at := a.after(from+first, gap)
	wait, _ := b.sooner(now, min(max(time.Duration(at-now), minHint), maxHint))
	return wait
}

// Stay is how long a message of a tenant that is admitted at the instant now will wait
// for its delivery: behind its tenant's own at their share of the rate and behind one of
// each other tenant, but no longer than behind all there are.
func (b *Backlog) Stay(now int64, tenant string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	depth := b.depth()
	t := b.tenants.find(tenant)
	own, share := uint64(0), 1.0
	if t != nil {
		own, share = t.messages(), b.tenants.share(t)
	}
	// Whose the others are may not be known yet, right after the start.
	others := min(uint64(len(b.tenants.named)), b.tenants.messages-own)
	others += depth - min(depth, b.tenants.messages)
	from, known := b.stall(now)
	if !known {
		return math.MaxInt64
	}
	wait := min(b.drainTime(now, depth), float64(own)/share*b.drainTime(now, 1)+b.drainTime(now, others))
	return duration(wait + float64(from-now))
}

// duration is the longest there is for what is longer, and for what is no number.
func duration(ns float64) time.Duration {
	if ns < math.MaxInt64/2 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}
