package algorithms

import (
	"math"
	"sync/atomic"
	"time"
)

// bucket is the token bucket, GCRA and the leaky bucket as a meter: three ways to
// say the same thing, so they are one arithmetic. Its state is one number, the
// theoretical arrival time (TAT) of the generic cell rate algorithm (ITU-T I.371):
// the instant at which the bucket is full, the meter empty, again. With T = per/n
// the interval of a token,
//
//	used   = max(TAT, now) − now
//	passes if used + n·T ≤ burst·T, and then TAT = max(TAT, now) + n·T
//
// Reduced to n/per in lowest terms, everything is a whole number of 1/n ns, so
// nothing is ever rounded. This form is for n = 1 and n = 2, a whole or a half
// nanosecond: 1000/s, 100/m, 1/d. Others are a wideBucket.
//
// A decision costs a division. Set back by d, a bucket that is not full looks as
// if d had not passed; what it admits in all is bounded by the latest instant.
type bucket struct {
	shift uint   // of ns to units: n = 1 << shift
	per   uint64 // interval of a token, in units
	depth uint64 // burst·per
	burst uint64
}

// The instants that count as such; those beyond them count as the first or last. A
// clock that counts from 1970 goes from 1897 to 2116.
const (
	firstInstant = -1<<61 + 1
	finalInstant = 1<<62 - 1
	// bias keeps every instant above 0, which is "never used", at 2 units a ns.
	bias = 1 << 62
)

// newBucket picks the narrowest form that is exact.
func newBucket(r Rule) algorithm {
	if r.Rate.N == 0 {
		return &allowance{burst: r.Burst}
	}
	n, per := r.Rate.N, uint64(r.Rate.Per)
	shared := gcd(n, per)
	n, per = n/shared, per/shared
	if n <= 2 && (r.Burst == 0 || per <= (1<<62-1)/r.Burst) {
		return &bucket{shift: uint(n - 1), per: per, depth: r.Burst * per, burst: r.Burst}
	}
	return newWideBucket(n, per, r.Burst)
}

// units is an instant in units, from bias on. The largest and a whole depth fit a word.
func (b *bucket) units(now int64) uint64 {
	return uint64(max(firstInstant, min(now, finalInstant)))<<b.shift + bias
}

// ns is a span of units in nanoseconds, rounded up, at most the largest duration.
func (b *bucket) ns(units uint64) time.Duration {
	return time.Duration(min(units>>b.shift+units&uint64(b.shift), math.MaxInt64))
}

// step decides on n tokens and gives the word that the state becomes.
func (b *bucket) step(word uint64, now, n int64) (Decision, uint64) {
	at := b.units(now)
	tat := max(word, at)
	used := tat - at
	want := uint64(n)
	if want > b.burst {
		return Decision{Remaining: b.left(used), RetryAfter: Never, Reset: b.ns(used)}, word
	}
	want *= b.per
	if room := b.depth - want; used > room && want > 0 {
		return Decision{Remaining: b.left(used), RetryAfter: b.ns(used - room), Reset: b.ns(used)}, word
	}
	used += want
	return Decision{Allowed: true, Remaining: b.left(used), Reset: b.ns(used)}, tat + want
}

// left is the whole tokens beside what is used; a clock that was set back can have
// used more than there are.
func (b *bucket) left(used uint64) uint64 {
	if used >= b.depth {
		return 0
	}
	return (b.depth - used) / b.per
}

func (b *bucket) words() int      { return 1 }
func (b *bucket) forget([]uint64) {}

func (b *bucket) decide(s []uint64, now, n int64, take bool) Decision {
	d, next := b.step(s[0], now, n)
	if take && d.Allowed && n > 0 {
		s[0] = next
	}
	return d
}

func (b *bucket) idle(s []uint64, now int64) bool {
	return s[0] <= b.units(now)
}

func (b *bucket) used(s []uint64, now int64) (whole, part uint64) {
	at := b.units(now)
	if s[0] <= at {
		return 0, 0
	}
	return split(0, s[0]-at, b.per)
}

func (b *bucket) occupy(s []uint64, now int64, whole, part uint64) {
	if whole >= b.burst {
		whole, part = b.burst, 0
	}
	s[0] = b.units(now) + whole*b.per + mulDivCeilShift(part, b.per)
}

// atomicBucket is a bucket by itself: a word that is changed without a lock.
type atomicBucket struct {
	bucket
	_    [64]byte // nobody else's word on its cache line
	word atomic.Uint64
	_    [64]byte
}

// Peek implements Limiter.
func (a *atomicBucket) Peek(now, n int64) (Decision, error) {
	if n < 0 {
		return Decision{}, ErrNegative
	}
	d, _ := a.step(a.word.Load(), now, n)
	return d, nil
}

// Take implements Limiter.
func (a *atomicBucket) Take(now, n int64) (Decision, error) {
	if n < 0 {
		return Decision{}, ErrNegative
	}
	for {
		word := a.word.Load()
		d, next := a.step(word, now, n)
		if !d.Allowed || n == 0 || a.word.CompareAndSwap(word, next) {
			return d, nil
		}
		stepBack()
	}
}

// stepBack is for who lost a compare-and-swap: about 3 µs, in which the winner gets on.
// Otherwise the word goes to and fro between the processors, 90 ns a decision of two
// that contend; after 1 µs it is 57 ns, after this 49.
func stepBack() {
	for range 10_000 {
	}
}

// allowance is a bucket that never fills: its burst once, then nothing. Its state
// is what was taken.
type allowance struct{ burst uint64 }

func (a *allowance) words() int      { return 1 }
func (a *allowance) forget([]uint64) {}

func (a *allowance) decide(s []uint64, _, n int64, take bool) Decision {
	left := a.burst - s[0]
	if n > 0 && uint64(n) > left {
		return Decision{Remaining: left, RetryAfter: Never, Reset: a.reset(s[0])}
	}
	taken := s[0] + uint64(n)
	if take {
		s[0] = taken
	}
	return Decision{Allowed: true, Remaining: a.burst - taken, Reset: a.reset(taken)}
}

func (a *allowance) reset(taken uint64) time.Duration {
	if taken == 0 {
		return 0
	}
	return Never
}

func (a *allowance) idle(s []uint64, _ int64) bool { return s[0] == 0 }

func (a *allowance) used(s []uint64, _ int64) (whole, part uint64) { return s[0], 0 }

func (a *allowance) occupy(s []uint64, _ int64, whole, part uint64) {
	s[0] = min(roundUp(whole, part), a.burst)
}
