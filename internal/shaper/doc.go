// Package shaper meters the backlog out to the consumer: at most at its rate,
// never a burst, fair among tenants, nothing lost.
//
// The idea: one durable consumer on the work-queue stream hands out the whole
// backlog; the shaper keeps an index of it in memory, a queue a tenant, and
// decides itself what goes next and when. The watermarks bound the index.
//
//	stream → Feed → index → (tenants in turn) → departure clock → workers → outlet
//	                  ↑                                              │
//	                  └── due again ← delayed ← retry ←──────────────┤
//	stream ← ack ←──────────────────────────────── done, dead letter ┘
//
// Recovery is a reset: on start, after every reconnect, pull failure or doubt,
// the consumer is reset on the server and hands out again all that is not
// acknowledged. The index is keyed by sequence and idempotent: a message already
// there gets its new ack handle, one in flight is not delivered again, one that
// is done is acknowledged once more.
//
// The package knows no destination; it asks an Outlet, whose verdicts come back
// as outcomes: acknowledge, or try again later.
package shaper
