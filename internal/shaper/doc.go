// Package shaper meters the backlog out to the consumer: at most at its rate,
// never a burst, fair among tenants, nothing lost.
//
// The idea: one durable consumer on the work-queue stream hands out the whole
// backlog; the shaper keeps an index of it in memory, a queue a tenant, and
// decides itself what goes next and when. The watermarks bound the index.
//
//	stream → feed → index → fair queue over tenants → departure clock → workers → outlet
//	           loader ↗  ↑                                                │
//	                     └── due again ← delayed ← retry ←────────────────┤
//	stream ← ack ←────────────────────────────────── done, dead letter ───┘
//
// Whose turn it is says start-time fair queueing by cost and weight
// (algorithms.FairQueue), in O(log tenants with messages); when it is, the leaky
// bucket (algorithms.DepartureClock). A batch is one departure of so many.
//
// A waiting message takes 57 bytes beside its body; bodies past
// FLOWGATE_SHAPER_MEMORY are let go and read again by sequence ahead of their turn. A
// tenant whose next message is being read keeps its turn and holds nobody up; so does
// one that waits for a retry, with FLOWGATE_CONSUMER_ORDER=tenant all of it.
//
// Recovery is a reset: on start, after every reconnect, pull failure or doubt,
// the consumer is reset on the server and hands out again all that is not
// acknowledged. The index is keyed by sequence and idempotent: a message already
// there gets its new ack handle, one in flight is not delivered again, one that
// is done is acknowledged once more.
//
// Attempts are counted here, from the first that failed, and kept in the state
// bucket. A message that ends the process is found so: a process that was killed
// leaves no word that it ended in order; the next one writes down each attempt at
// what may have been in flight before it makes it, and at every second attempt.
//
// The package knows no destination; it asks an Outlet, whose verdicts come back
// as outcomes: acknowledge, or try again later.
package shaper
