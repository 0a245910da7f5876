// Package ingress is the front door: it takes messages from producers, decides
// on each, and hands the admitted ones to the backlog stream.
//
// The idea: forward, don't relay. An admitted message is published again into
// the stream's subjects with the producer's own reply subject, so that the
// broker itself acknowledges the producer and the gateway keeps no state for
// it. What forwarding cannot see, the Forwarder's canary watches for.
//
// A message's way: NATS subscription or HTTP request → queue (bounded, never blocks
// the subscription) → one worker → Door (form, limits, backpressure) → Forwarder.
// HTTP requests wait among the callers for the broker's answer or a refusal.
// One worker and one forwarding connection keep stream order the order of
// publishing, and make the decision free of contention.
//
// The package knows neither the limits' algorithms nor how depth is counted;
// it asks through Limits and Backpressure. It does not deliver anything.
package ingress
