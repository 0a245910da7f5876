package simulation

import (
	"testing"
	"time"
)

// A database that may be called more often at once than is good for it is not kept past its
// knee by lateness being made up. With all of it made up it would do 90 % of the rate.
func TestALateDatabaseIsNotPushed(t *testing.T) {
	const seconds = 120
	sc := scenario(t, `{seed: 1, groups: [{tenant: t-, tenants: 5, rate: 750/s}]}`, seconds*time.Second)
	var err error
	if sc.Consumer, err = ParseConsumer("latency=20ms,knee=5,thrash=1,noise=0.3,crash_at=40,recovery=3s", 1); err != nil {
		t.Fatal(err)
	}
	r := run(t, config(t, "FLOWGATE_SHAPER_RATE=200/s", "FLOWGATE_CONSUMER_CONCURRENCY=8", "FLOWGATE_BACKPRESSURE_HIGH=1000"), sc)
	delivered := uint64(0)
	for _, s := range r.Samples[:seconds] {
		delivered += s.Delivered
	}
	if got := float64(delivered) / (200 * seconds); got < 0.95 {
		t.Errorf("%.1f %% of the rate, want 95 %%", 100*got)
	}
}
