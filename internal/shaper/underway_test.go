package shaper

import (
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// TestHandedOutAndNotIn: what the broker handed out and the gateway does not have yet is
// not taken for done, and if it does not come the consumer is reset.
func TestHandedOutAndNotIn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = func(consumers.Delivery) consumers.Outcome {
			return consumers.Outcome{Action: consumers.Later, Delay: time.Hour}
		}
		r.publish("acme", 50)
		s := r.run(config(), nil)
		state := func() (stable bool, taken uint64, gen uint32) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.audit.stableSince.IsZero(), s.taken.Load(), s.gen
		}
		time.Sleep(5 * time.Second)
		stable, taken, gen := state()
		if !stable || taken != 50 {
			t.Fatalf("%d of 50 came in, stable %t", taken, stable)
		}
		s.taken.Store(45) // as if five were on their way still
		time.Sleep(3 * time.Second)
		if stable, _, now := state(); stable || now != gen {
			t.Errorf("with messages on their way: stable %t, generation %d after %d", stable, now, gen)
		}
		time.Sleep(2 * underway)
		if stable, taken, now := state(); !stable || taken != 50 || now != gen+1 {
			t.Errorf("%d of 50 came in after a reset, stable %t, generation %d after %d", taken, stable, now, gen)
		}
	})
}
