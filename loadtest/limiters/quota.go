package main

import (
	"fmt"
	"time"
)

// quota is what a contestant is set to: a burst, and one more in each interval.
// Those without a burst get the same number evenly, those with fixed windows the
// burst in each window.
type quota struct {
	burst    int
	interval time.Duration
}

var (
	// plenty is for one key: a slice takes millions.
	plenty = quota{1 << 30, time.Second}
	// lasting is for many keys: once used, none is full again, and so forgotten,
	// while others are measured, and the most frequent does not use it up.
	lasting = quota{1 << 24, time.Minute}
	// scarce is used up by one.
	scarce = quota{1, time.Hour}
)

// window is longer than any measurement.
const window = time.Hour

// rule is the quota as a rule of ours.
func (q quota) rule() string {
	return fmt.Sprintf("token-bucket:1/%s,burst=%d", q.interval, q.burst)
}

// joined is so many rules at once, the same but for one token of burst.
func (q quota) joined(rules int) string {
	joined := q.rule()
	for range rules - 1 {
		q.burst++
		joined += ";" + q.rule()
	}
	return joined
}

// even is the interval of a limiter without a burst: of a large one, the least
// that there is, so that it never refuses.
func (q quota) even() time.Duration {
	if q.burst >= lasting.burst {
		return 1
	}
	return q.interval / time.Duration(q.burst)
}
