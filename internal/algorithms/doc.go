// Package algorithms holds the arithmetic of flow control: the token bucket that
// gates admission, the leaky bucket that paces departures, hysteresis for
// watermarks, rate meters, backoff, and a rate that follows the consumer.
//
// Everything is pure: time is an argument, in nanoseconds from any fixed origin,
// and nothing starts a goroutine, a timer or reads a clock. State moves on when it
// is used. Integers and exact fractions only, so nothing drifts.
//
// Conventions: a bucket is full at first use; Remaining is the whole tokens left
// after the decision; RetryAfter is the least number of nanoseconds after which
// the same request passes; asking for 0 tokens looks and passes, for fewer is an
// error; a refused request takes nothing; a clock that steps back mints nothing.
//
// The package does not combine limits, name tenants or send anything.
package algorithms
