// Package simulation predicts what a gateway does with arrivals, faster than they come.
//
// It is a simulation of discrete events around the gateway's own code: the door decides by
// the real limits and the real backlog, the outlet chooses and times deliveries by the real
// index, fair queue, departure clock, breaker and retries. They take time as an argument,
// or the clock as a dependency, so that here a virtual one moves from event to event.
//
// Modelled are only those at both ends: producers, who do something with a refusal, and the
// consumer, who takes its time. Not modelled: the broker and the network, which take no
// time and lose nothing; what the gateway itself can take in a second; message ids that are
// repeated, deadlines, costs, and keys that arrivals do not tell (user, address, API key).
package simulation
