package algorithms

import (
	"math"
	"math/bits"
	"time"
)

// wideBucket is a bucket of any rate: TAT in 1/n ns is a number of 128 bits, which
// holds every instant, and every burst at every rate, without a rounding. Its
// state is two words, the upper one first.
type wideBucket struct {
	n, per uint64 // n tokens in per ns, in lowest terms
	depth  uint128
	burst  uint64
}

// uint128 is hi·2⁶⁴ + lo.
type uint128 struct{ hi, lo uint64 }

func product(a, b uint64) uint128 {
	hi, lo := bits.Mul64(a, b)
	return uint128{hi, lo}
}

func (a uint128) plus(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

func (a uint128) minus(b uint128) uint128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return uint128{hi, lo}
}

func (a uint128) less(b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// over is a divided by b and the rest; the quotient must fit a word.
func (a uint128) over(b uint64) (q, rest uint64) {
	if a.hi == 0 {
		return a.lo / b, a.lo % b
	}
	return bits.Div64(a.hi, a.lo, b)
}

func newWideBucket(n, per, burst uint64) *wideBucket {
	return &wideBucket{n: n, per: per, burst: burst, depth: product(burst, per)}
}

// instant is now in units, above 0 for every now: |now|·n is below 2¹²⁴.
func (w *wideBucket) instant(now int64) uint128 {
	origin := uint128{hi: 1 << 62}
	if now < 0 {
		return origin.minus(product(uint64(-now), w.n))
	}
	return origin.plus(product(uint64(now), w.n))
}

// ns is a span in nanoseconds, rounded up, at most the largest duration.
func (w *wideBucket) ns(span uint128) time.Duration {
	if span.hi >= w.n {
		return math.MaxInt64
	}
	q, rest := span.over(w.n)
	if rest > 0 && q < math.MaxInt64 {
		q++
	}
	return saturating(0, q)
}

func (w *wideBucket) left(used uint128) uint64 {
	if !used.less(w.depth) {
		return 0
	}
	q, _ := w.depth.minus(used).over(w.per)
	return q
}

func (w *wideBucket) words() int      { return 2 }
func (w *wideBucket) forget([]uint64) {}

func (w *wideBucket) decide(s []uint64, now, n int64, take bool) Decision {
	at := w.instant(now)
	tat := uint128{s[0], s[1]}
	if tat.less(at) {
		tat = at
	}
	used := tat.minus(at)
	want := uint64(n)
	if want > w.burst {
		return Decision{Remaining: w.left(used), RetryAfter: Never, Reset: w.ns(used)}
	}
	need := product(want, w.per)
	after := used.plus(need)
	if w.depth.less(after) && want > 0 {
		return Decision{Remaining: w.left(used), RetryAfter: w.ns(after.minus(w.depth)), Reset: w.ns(used)}
	}
	if take && want > 0 {
		tat = tat.plus(need)
		s[0], s[1] = tat.hi, tat.lo
	}
	return Decision{Allowed: true, Remaining: w.left(after), Reset: w.ns(after)}
}

func (w *wideBucket) idle(s []uint64, now int64) bool {
	return !w.instant(now).less(uint128{s[0], s[1]})
}

func (w *wideBucket) used(s []uint64, now int64) (whole, part uint64) {
	at, tat := w.instant(now), uint128{s[0], s[1]}
	if !at.less(tat) {
		return 0, 0
	}
	span := tat.minus(at)
	return split(span.hi, span.lo, w.per)
}

func (w *wideBucket) occupy(s []uint64, now int64, whole, part uint64) {
	if whole >= w.burst {
		whole, part = w.burst, 0
	}
	tat := w.instant(now).plus(product(whole, w.per)).plus(uint128{lo: mulDivCeilShift(part, w.per)})
	s[0], s[1] = tat.hi, tat.lo
}

// split is a span over the interval of a token: whole tokens, and 2⁻⁶⁴ths of one
// rounded up.
func split(hi, lo, per uint64) (whole, part uint64) {
	if hi >= per {
		return math.MaxUint64, 0
	}
	whole, rest := bits.Div64(hi, lo, per)
	part, rest = bits.Div64(rest, 0, per)
	if rest > 0 {
		if part++; part == 0 {
			whole++
		}
	}
	return whole, part
}

// mulDivCeilShift is ceil(part·per/2⁶⁴).
func mulDivCeilShift(part, per uint64) uint64 {
	hi, lo := bits.Mul64(part, per)
	if lo > 0 {
		hi++
	}
	return hi
}
