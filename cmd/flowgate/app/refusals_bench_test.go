package app

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/history"
	"github.com/flowgate/flowgate/internal/ingress"
)

// BenchmarkWitness is what it costs the front door that a refusal is noted.
func BenchmarkWitness(b *testing.B) {
	for _, tenants := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			g := &gateway{traffic: history.NewTraffic(), refusals: history.NewRefusals()}
			g.backlog = backpressure.New(backpressure.Rules{Marks: backpressure.Marks{Low: 8000, High: 10000, Max: 20000}}, backpressure.Deps{
				Clock: func() int64 { return 1 }, Rate: func() float64 { return 200 }, Stalled: func() (int64, bool) { return 0, false },
				Logger: slog.New(slog.DiscardHandler),
			})
			names := make([]string, tenants)
			for i := range names {
				names[i] = fmt.Sprintf("tenant-%05d", i)
			}
			refusal := &ingress.Refusal{Reason: ingress.RateLimited, Scope: "tenant", Limit: "token-bucket:100/s", Text: "tenant over token-bucket:100/s", Wait: time.Second}
			w := doorWitness{g}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				w.Refused(int64(i)*10_000, ingress.Evidence{Tenant: names[i%tenants], ID: "order-4711", Transport: "nats", Refusal: refusal, Enforced: true})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refusals/s")
		})
	}
}
