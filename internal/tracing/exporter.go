package tracing

import (
	"context"
	"log/slog"
	"strings"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// exportTime bounds one batch with all its repeats.
	exportTime = 15 * time.Second
	// steady is how long a collector must have taken everything to be called well again:
	// one that comes and goes is told of once.
	steady = 30 * time.Second
	// longest bounds what a collector can write into the log.
	longest = 300
)

// exporter tells once when spans are not taken and once when they are again; the SDK
// would log each batch. It is called by one goroutine at a time.
type exporter struct {
	sdk.SpanExporter
	log   *slog.Logger
	alive context.Context
	cut   context.CancelFunc
	ended chan struct{}

	failing bool
	last    time.Time // when a batch failed last
	lost    int
}

func newExporter(to sdk.SpanExporter, log *slog.Logger) *exporter {
	e := &exporter{SpanExporter: to, log: log, ended: make(chan struct{})}
	e.alive, e.cut = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements sdk.SpanExporter. It does not fail: all is said here.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	defer context.AfterFunc(e.alive, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch now := time.Now(); {
	case err != nil:
		e.last = now
		e.lost += len(spans)
		if !e.failing {
			e.failing = true
			e.log.Warn("the collector does not take spans; they are dropped until it does", "error", clip(err.Error()))
		}
	case e.failing && now.Sub(e.last) >= steady:
		e.log.Info("the collector takes spans again", "lost", e.lost)
		e.failing, e.lost = false, 0
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.ended)
	return e.SpanExporter.Shutdown(ctx)
}

// end cuts off what is still being sent, after the provider's Shutdown, and waits for
// the exporter's end.
func (e *exporter) end() {
	e.cut()
	<-e.ended
}

func clip(s string) string {
	if len(s) > longest {
		return strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}
