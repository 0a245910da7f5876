package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/tracing"
)

type taker struct{}

func (taker) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	return make([]error, len(batch))
}
func (taker) Close() error { return nil }

// What a message costs at the desk, by whether it is traced; and what its admission costs
// more when it is.
func BenchmarkTracing(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	cfg, err := settings.Load(nil)
	if err != nil {
		b.Fatal(err)
	}
	kinds := []struct{ name, parent string }{
		{"off", traceparent}, {"not sampled", traceparent[:len(traceparent)-1] + "0"}, {"sampled", traceparent},
	}
	for _, k := range kinds {
		tr := benchTracer(b, quiet)
		headers := map[string][]string{"traceparent": {k.parent}}
		b.Run("attempt/"+k.name, func(b *testing.B) {
			desk := consumers.NewDesk(cfg.Consumer, taker{}, nil, nil, prometheus.NewRegistry(), quiet)
			if k.name != "off" {
				desk.Trace(deskTracer{tr, "flowgate.backlog"})
			}
			now := time.Now()
			batch := []consumers.Delivery{{ID: "acme/1", Tenant: "acme", Topic: "orders", Seq: 1, Attempt: 1, Headers: headers, Payload: make([]byte, 256), AdmittedAt: now, ReleasedAt: now}}
			b.ReportAllocs()
			for b.Loop() {
				desk.Attempt(context.Background(), batch)
			}
		})
		if k.name == "off" {
			continue
		}
		b.Run("admit/"+k.name, func(b *testing.B) {
			at := time.Now().UnixNano()
			b.ReportAllocs()
			for b.Loop() {
				header := nats.Header{"traceparent": headers["traceparent"]}
				_, done := doorTracer{tr}.Admit(ingress.Arrival{Tenant: "acme", Subject: "ingress.acme.orders", ID: "acme/1", Transport: "nats", Header: header, Bytes: 256, At: at})
				done(nil)
			}
		})
	}
}

// benchTracer runs until the benchmark ends.
func benchTracer(b *testing.B, log *slog.Logger) *tracing.Tracer {
	tr, err := tracing.New(tracing.Config{Service: "flowgate", Ingress: "ingress", Backlog: "flowgate.backlog", Consumer: "http"}, tracing.Deps{Exporter: &swallow{}, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-ended })
	time.Sleep(10 * time.Millisecond) // it has begun
	return tr
}

// swallow is an exporter that costs nothing.
type swallow struct{}

func (swallow) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (swallow) Shutdown(context.Context) error                        { return nil }
