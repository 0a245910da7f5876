package algorithms

import (
	"fmt"
	"time"
)

// LeakyQueue is the leaky bucket as a queue: arrivals leave at a constant rate, and
// wait for it; past so many that wait, one more is refused. It says when an arrival
// leaves and does not hold it. The DepartureClock is the same bucket seen from the
// outlet, where nothing is known of arrivals.
//
// It is not safe for concurrent use.
type LeakyQueue struct {
	meter algorithm
	state [maxWords]uint64
}

// NewLeakyQueue makes an empty queue that drains at a rate above 0, with room for
// so many that wait; the one that leaves at once does not wait.
func NewLeakyQueue(rate Rate, room uint64) (*LeakyQueue, error) {
	if rate.IsUnlimited() || rate.N == 0 || room >= maxBurst {
		return nil, fmt.Errorf("algorithms: a leaky queue needs a rate above 0 and room for fewer than 2^62, not %s and %d", rate, room)
	}
	meter, err := compile(Rule{Algorithm: LeakyBucket, Rate: rate, Burst: room + 1})
	if err != nil {
		return nil, err
	}
	return &LeakyQueue{meter: meter}, nil
}

// Offer lets n arrive at the instant now: if they are allowed, the first of them
// leaves after the delay, and Remaining is how many more may wait. n is at least 1.
func (q *LeakyQueue) Offer(now, n int64) (delay time.Duration, d Decision, err error) {
	if n < 1 {
		return 0, Decision{}, ErrNegative
	}
	before := q.meter.decide(q.state[:], now, 0, false)
	d = q.meter.decide(q.state[:], now, n, true)
	if d.Allowed {
		delay = before.Reset
	}
	return delay, d, nil
}
