package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// flushTime bounds what the last spans may hold up the end.
const flushTime = 2 * time.Second

// Config says who is traced.
type Config struct {
	// Service and Version are the gateway's in its spans; OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES win.
	Service, Version string
	// Ingress and Backlog are the subject prefixes, without their dots.
	Ingress, Backlog string
	// Consumer is the scheme of the destination's URL.
	Consumer string
}

// Deps are what a Tracer works with.
type Deps struct {
	// Exporter takes the spans. nil: OTLP over HTTP, as the process's OTEL_ variables say.
	Exporter sdk.SpanExporter
	Logger   *slog.Logger
}

// Tracer makes spans. It is safe for use by many; before Run and after it spans are
// dropped.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
	log      *slog.Logger

	admit, wait, deliver kind
}

// New makes a Tracer; nothing starts before Run. The SDK reads the sampler, the limits
// and, without an exporter of Deps, where to send the spans from the process's OTEL_
// variables: so it is main that calls New.
func New(cfg Config, deps Deps) (*Tracer, error) {
	log := deps.Logger.With("component", "tracing")
	who, err := resource.New(context.Background(),
		resource.WithAttributes(semconv.ServiceName(cfg.Service), semconv.ServiceVersion(cfg.Version)),
		resource.WithHost(),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv(),
	)
	if err != nil && who == nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	if err != nil { // what is understood of it is used
		log.Warn("OTEL_RESOURCE_ATTRIBUTES is not understood in part", "error", err)
	}
	to := deps.Exporter
	if to == nil {
		if to, err = otlp(); err != nil {
			return nil, err
		}
	}
	t := &Tracer{
		provider: sdk.NewTracerProvider(sdk.WithResource(who)),
		exporter: newExporter(to, log), log: log,
		admit: admitKind(cfg.Ingress), wait: waitKind(cfg.Backlog), deliver: deliverKind(cfg.Consumer),
	}
	t.tracer = t.provider.Tracer("github.com/flowgate/flowgate", trace.WithInstrumentationVersion(cfg.Version))
	return t, nil
}

// Run sends spans until ctx ends, and then those that are left, for two seconds at most.
func (t *Tracer) Run(ctx context.Context) error {
	if s, ok := t.exporter.SpanExporter.(interface{ Start(context.Context) error }); ok {
		if err := s.Start(ctx); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
	}
	t.provider.RegisterSpanProcessor(sdk.NewBatchSpanProcessor(t.exporter))
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(bounded); err != nil {
		t.log.Warn("the last spans were not sent", "error", err)
	}
	t.exporter.end()
	return nil
}
