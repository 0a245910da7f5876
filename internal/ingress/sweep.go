package ingress

import (
	"context"
	"time"
)

// sweep answers for messages that waited too long: in the queue because the
// worker is stuck, or for the broker to confirm them. It sleeps while there are
// none.
func (n *NATS) sweep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.stir:
		}
		if !n.sweepWhileBusy(ctx) {
			return
		}
	}
}

// sweepWhileBusy returns false if ctx ended.
func (n *NATS) sweepWhileBusy(ctx context.Context) bool {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		n.forward.giveUp(n.deps.Clock() - int64(patience))
		n.callers.giveUp(n.deps.Clock() - int64(patience))
		for {
			in, ok := n.queue.popBefore(n.deps.Clock() - int64(patience-2*sweepEvery))
			if !ok {
				break
			}
			n.refuse(in, "", &Refusal{Reason: Overloaded, Text: "the gateway cannot keep up", Wait: overloadWait})
		}
		for {
			m, ok := n.holding.takeBefore(n.deps.Clock() - int64(patience-2*sweepEvery))
			if !ok {
				break
			}
			n.unhold(m, &Refusal{Reason: Overloaded, Text: "the gateway cannot keep up", Wait: overloadWait})
		}
		if n.resting() {
			n.stirred.Store(false)
			// What came in between found the sweep running.
			if n.resting() || !n.stirred.CompareAndSwap(false, true) {
				return true
			}
		}
	}
}

// resting reports whether nothing is in our hands.
func (n *NATS) resting() bool {
	return n.queue.resting() && n.holding.len() == 0 && n.forward.settled() && n.callers.none()
}
