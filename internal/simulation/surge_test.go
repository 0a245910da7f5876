package simulation

import (
	"testing"
	"time"
)

// After a surge nobody who obeys sleeps on while there is room: all is delivered in hardly
// more than the time that the rate takes for it. But nobody is told to look in while others
// who stay below their part still take their rate: a hint is a promise.
func TestNothingIdlesAfterASurge(t *testing.T) {
	for _, c := range []struct {
		name, pattern string
		until         float64 // in seconds
		tries         float64 // a message
	}{
		// The rate does it in 30 s. web's usual 10 a second are several times its part while 200
		// others rush in.
		{"rush", `{seed: 4, groups: [{tenant: fan-, tenants: 200, phases: [{for: 8s, rate: 100/s}, {for: 6s, rate: 800/s}, {for: 16s, rate: 100/s}]}, {tenant: web, rate: 10/s}]}`, 35, 1.6},
		// The rate does it in 44 s, but bulk was promised the 80 a second that the others leave,
		// who stop of a sudden.
		{"bulk", `{seed: 12, groups: [{tenant: t, tenants: 10000, rate: 220/s}, {tenant: bulk, rate: 220/s}]}`, 60, 1.5},
	} {
		sc := scenario(t, c.pattern, 30*time.Second)
		r := run(t, config(t, "FLOWGATE_SHAPER_RATE=300/s", "FLOWGATE_BACKPRESSURE_HIGH=1000", "FLOWGATE_LIMIT_TENANT=unlimited"), sc)
		if r.Lost != 0 || r.Delivered != r.Offered {
			t.Errorf("%s: %d delivered of %d", c.name, r.Delivered, r.Offered)
		}
		if r.Until > c.until {
			t.Errorf("%s: over after %.1f s, want at most %.0f s", c.name, r.Until, c.until)
		}
		if got := float64(r.Tries) / float64(r.Offered); got > c.tries {
			t.Errorf("%s: %.2f tries a message, want at most %.1f", c.name, got, c.tries)
		}
	}
}
