package simulation

import (
	"testing"
	"time"
)

// After a surge nobody who obeys sleeps on while there is room: all is delivered in hardly
// more than the time that the rate takes for it, and few look in too early for that.
func TestNothingIdlesAfterASurge(t *testing.T) {
	for _, c := range []struct {
		name, pattern string
		over          float64 // at the rate, in seconds
	}{
		// web's usual 10 a second are several times its part while 200 others rush in.
		{"rush", `{seed: 4, groups: [{tenant: fan-, tenants: 200, phases: [{for: 8s, rate: 100/s}, {for: 6s, rate: 800/s}, {for: 16s, rate: 100/s}]}, {tenant: web, rate: 10/s}]}`, 30},
		// bulk is left 80 a second while the others send, and 300 when they have stopped.
		{"bulk", `{seed: 12, groups: [{tenant: t, tenants: 10000, rate: 220/s}, {tenant: bulk, rate: 220/s}]}`, 44.1},
	} {
		sc := scenario(t, c.pattern, 30*time.Second)
		r := run(t, config(t, "FLOWGATE_SHAPER_RATE=300/s", "FLOWGATE_BACKPRESSURE_HIGH=1000", "FLOWGATE_LIMIT_TENANT=unlimited"), sc)
		if r.Lost != 0 || r.Delivered != r.Offered {
			t.Errorf("%s: %d delivered of %d", c.name, r.Delivered, r.Offered)
		}
		if r.Until > c.over+5 {
			t.Errorf("%s: over after %.1f s; the rate would have done it in %.1f s", c.name, r.Until, c.over)
		}
		if r.Tries > 2*r.Offered {
			t.Errorf("%s: %d tries for %d messages", c.name, r.Tries, r.Offered)
		}
	}
}
