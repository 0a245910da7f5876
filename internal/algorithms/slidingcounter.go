package algorithms

import (
	"math"
	"math/bits"
	"time"
)

// slidingCounter approximates a sliding window by two counters: what passed in the
// present window, and what passed in the one before, weighted by how much of it
// the sliding window still covers:
//
//	current + n + previous·(1 − elapsed/period) ≤ limit
//
// It takes the previous window's requests as spread evenly. The comparison is
// exact, on the numbers times the period. Its state is the window's end and the
// two counters. A clock that steps back is taken as at the start of the window
// that it has seen.
type slidingCounter struct {
	limit  uint64
	period int64
}

func (c *slidingCounter) words() int      { return 3 }
func (c *slidingCounter) forget([]uint64) {}

// counters brings the state up to now: the window's end, its count, the count of
// the one before, and how much of the window is left.
func (c *slidingCounter) counters(s []uint64, now int64) (end int64, current, previous, left uint64) {
	end = decode(s[0])
	switch {
	case s[0] != 0 && now < end:
		current, previous = s[1], s[2]
	case s[0] != 0 && end < math.MaxInt64-c.period && now < end+c.period:
		end, previous = end+c.period, s[1]
	default:
		end = windowEnd(now, c.period)
	}
	return end, current, previous, min(uint64(end)-uint64(now), uint64(c.period))
}

func (c *slidingCounter) decide(s []uint64, now, n int64, take bool) Decision {
	end, current, previous, left := c.counters(s, now)
	want := uint64(n)
	var d Decision
	switch {
	case want == 0 || want <= c.limit && c.fits(current+want, previous, left):
		d.Allowed = true
		current += want
		if take && want > 0 {
			s[0], s[1], s[2] = encode(end), current, previous
		}
	case want > c.limit:
		d.RetryAfter = Never
	default:
		d.RetryAfter = c.retry(end, now, current, previous, left, want)
	}
	d.Remaining = c.remaining(current, previous, left)
	switch {
	case current > 0:
		wait, carry := bits.Add64(uint64(end)-uint64(now), uint64(c.period), 0)
		d.Reset = saturating(carry, wait)
	case previous > 0:
		d.Reset = until(end, now)
	}
	return d
}

// fits reports whether current + previous·left/period ≤ limit.
func (c *slidingCounter) fits(current, previous, left uint64) bool {
	return current <= c.limit && !product(c.limit-current, uint64(c.period)).less(product(previous, left))
}

func (c *slidingCounter) remaining(current, previous, left uint64) uint64 {
	if current >= c.limit {
		return 0
	}
	room, weight := product(c.limit-current, uint64(c.period)), product(previous, left)
	if room.less(weight) {
		return 0
	}
	q, _ := room.minus(weight).over(uint64(c.period))
	return q
}

// retry is the least wait after which want fits: in this window, as the weight of
// the one before falls, or in the next, as the weight of this one does.
func (c *slidingCounter) retry(end, now int64, current, previous, left, want uint64) time.Duration {
	toEnd := uint64(end) - uint64(now)
	if current+want <= c.limit {
		// previous·left' ≤ room·period: above 0 as it does not fit now.
		if fits := c.covered(c.limit-current-want, previous); fits > 0 {
			// Later by left − fits, and by what a clock that was set back has to make up.
			return saturating(0, toEnd-fits)
		}
	}
	fits := c.covered(c.limit-want, current)
	wait, carry := bits.Add64(toEnd, uint64(c.period)-min(fits, uint64(c.period)), 0)
	return saturating(carry, wait)
}

// covered is the most of the period that may be left so that a count of previous
// weighs no more than room.
func (c *slidingCounter) covered(room, previous uint64) uint64 {
	if previous <= room {
		return uint64(c.period)
	}
	q, _ := product(room, uint64(c.period)).over(previous)
	return q
}

func (c *slidingCounter) idle(s []uint64, now int64) bool {
	_, current, previous, _ := c.counters(s, now)
	return current == 0 && previous == 0
}

func (c *slidingCounter) used(s []uint64, now int64) (whole, part uint64) {
	_, current, previous, left := c.counters(s, now)
	return current + mulDivCeil(previous, left, uint64(c.period)), 0
}

func (c *slidingCounter) occupy(s []uint64, now int64, whole, part uint64) {
	s[0], s[1], s[2] = encode(windowEnd(now, c.period)), min(roundUp(whole, part), c.limit), 0
}
