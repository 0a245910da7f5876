// Package consumers delivers: it hands messages to a destination and judges what
// became of them.
//
// A Destination takes a batch and returns a verdict a message: done, try again,
// overloaded, never. The Desk stands before it: one call is one attempt, with its
// timeout, backoff, breaker and dead letters, and says of each message whether to
// acknowledge it or to try it again later. Nothing here waits or meters; when the
// next attempt is made is the caller's affair.
//
// Destinations: SQLite, PostgreSQL, HTTP, NATS, standard output, and whatever
// Watermill publishes to.
package consumers
