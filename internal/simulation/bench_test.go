package simulation

import (
	"context"
	"testing"
	"time"
)

// An hour of 200 arrivals a second at a gateway that delivers as many.
func BenchmarkHour(b *testing.B) {
	sc := scenario(b, `{seed: 1, groups: [{tenant: t, tenants: 50, rate: 200/s}]}`, time.Hour)
	for b.Loop() {
		r, err := Run(context.Background(), config(b, "FLOWGATE_SHAPER_RATE=200/s", "FLOWGATE_BACKPRESSURE_HIGH=1000"), sc)
		if err != nil || r.Offered < 700_000 {
			b.Fatal(err, r)
		}
	}
}
