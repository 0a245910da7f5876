package algorithms

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// DepartureClock is the leaky bucket as a queue: it says when the next departure
// conforms to a constant rate, in the form of the generic cell rate algorithm
// (ITU-T I.371, ATM Forum TM 4.0), with T the time between departures at the rate:
//
//	at = max(next, now − tolerance)      a departure at now conforms if now ≥ at
//	next = at + n·T                      after a departure of n
//
// So in any window of length w there are at most w·rate + tolerance·rate + 1
// departures (with batches, the largest batch in place of 1). Lateness up to the
// tolerance is made up, more is not, and idling earns nothing.
//
// It is not safe for concurrent use.
type DepartureClock struct {
	rate      Rate
	tolerance int64
	// next is the earliest conforming instant if nothing is late: next + part/N
	// ns, with N the rate's. It is left·T after from, the last departure's at.
	next     int64
	part     uint64
	from     int64
	fromPart uint64
	left     uint64 // how many departed then
	set      bool
}

// NewDepartureClock makes a clock that lets the first departure go at once. The
// tolerance is at least 0.
func NewDepartureClock(rate Rate, tolerance time.Duration) (*DepartureClock, error) {
	if err := rate.valid(); err != nil {
		return nil, fmt.Errorf("algorithms: departure clock: %w", err)
	}
	if tolerance < 0 {
		return nil, fmt.Errorf("algorithms: departure clock: tolerance %s is negative", tolerance)
	}
	return &DepartureClock{rate: rate, tolerance: int64(tolerance)}, nil
}

// at is the theoretical instant of a departure at now: ns and 1/N of one.
func (c *DepartureClock) at(now int64) (ns int64, part uint64) {
	if late := now - c.tolerance; !c.set || late > c.next {
		return late, 0
	}
	return c.next, c.part
}

// Wait is how long it is from now until a departure conforms; 0 if one does now,
// the largest duration if the rate is 0.
func (c *DepartureClock) Wait(now int64) time.Duration {
	switch {
	case c.rate.IsUnlimited():
		return 0
	case c.rate.N == 0:
		return math.MaxInt64
	}
	ns, part := c.at(now)
	if part > 0 {
		ns++
	}
	if ns <= now {
		return 0
	}
	return time.Duration(min(uint64(ns)-uint64(now), math.MaxInt64))
}

// Depart lets n leave together at the instant now, if that conforms; if not, it
// changes nothing and returns false.
func (c *DepartureClock) Depart(now int64, n uint64) bool {
	if c.rate.IsUnlimited() {
		return true
	}
	if c.Wait(now) > 0 {
		return false
	}
	c.from, c.fromPart = c.at(now)
	c.left, c.set = n, true
	c.next, c.part = c.later(c.from, c.fromPart, n)
	return true
}

// Forgo gives up what lateness there is from before an instant, so that a departure which
// something else than the clock held back does not make all of it up.
func (c *DepartureClock) Forgo(before int64) {
	if c.set && c.next < before {
		c.next, c.part = before, 0
	}
}

// later is n·T after an instant; the largest instant if that is beyond it.
func (c *DepartureClock) later(ns int64, part, n uint64) (int64, uint64) {
	hi, lo := bits.Mul64(n, uint64(c.rate.Per))
	lo, carry := bits.Add64(lo, part, 0)
	hi += carry
	if hi >= c.rate.N {
		return math.MaxInt64, 0
	}
	whole, rest := bits.Div64(hi, lo, c.rate.N)
	if whole >= math.MaxInt64 || ns >= math.MaxInt64-int64(whole) {
		return math.MaxInt64, 0
	}
	return ns + int64(whole), rest
}

// Next is the earliest instant of the next departure if nothing is late, rounded
// up; the smallest instant before the first departure.
func (c *DepartureClock) Next() int64 {
	if !c.set {
		return math.MinInt64
	}
	if c.part > 0 {
		return c.next + 1
	}
	return c.next
}

// Restore begins anew at the instant now, after a predecessor whose Next was
// stored: as if a departure of one batch, the largest there is, had left just now,
// and no further ahead than one batch more. The first is safe whatever was stored
// or lost; the second keeps a clock that was set back from standing still.
func (c *DepartureClock) Restore(stored, now int64, batch uint64) {
	if c.rate.IsUnlimited() || c.rate.N == 0 {
		return
	}
	c.set = true
	batch = max(1, batch)
	ahead, _ := c.later(now, 0, batch)
	c.from, c.fromPart, c.left = max(now, min(stored, ahead)), 0, batch
	c.next, c.part = c.later(c.from, 0, batch)
}

// SetRate changes the rate, also for the time since the last departure: the next is
// n·T after it by the new T, be it sooner or later. So a clock that stood at 1/h does
// not wait out the hour when the rate goes up. In a window across the change the
// larger of the two rates holds: no two departures are closer than by that one's T.
func (c *DepartureClock) SetRate(rate Rate) error {
	if err := rate.valid(); err != nil {
		return fmt.Errorf("algorithms: departure clock: %w", err)
	}
	if c.fromPart > 0 { // a part of the old rate's N
		c.from, c.fromPart = c.from+1, 0
	}
	c.rate = rate
	if c.set && !rate.IsUnlimited() {
		c.next, c.part = c.later(c.from, 0, c.left)
	}
	return nil
}
