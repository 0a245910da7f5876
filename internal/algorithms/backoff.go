package algorithms

import "time"

// Backoff is an exponential wait between attempts: Base, 2·Base, 4·Base, …, up to
// Max, each with its second half drawn at random, so that what failed together
// does not come back together.
type Backoff struct{ Base, Max time.Duration }

// Delay is the wait after the given attempt, counted from 1. random lies in
// [0, 1).
func (b Backoff) Delay(attempt int, random float64) time.Duration {
	d := b.Base
	for i := 1; i < attempt && d < b.Max; i++ {
		if d > b.Max/2 {
			d = b.Max
			break
		}
		d *= 2
	}
	d = min(d, b.Max)
	return d/2 + time.Duration(random*float64(d-d/2))
}
