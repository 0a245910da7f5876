// Package arrivals says who publishes when: patterns written in a few lines of YAML,
// drawn from a seed, and logs of what came to a gateway. What is drawn is a schedule and
// knows nothing of answers: a slow one does not slow the next message, so that no wait
// is hidden (coordinated omission).
package arrivals

import "time"

// Arrival is one message of a schedule.
type Arrival struct {
	// At is its instant, since the schedule's start.
	At time.Duration
	// Tenant publishes it; Topic is its topic, and Bytes are its payload's.
	Tenant, Topic string
	Bytes         int
}
