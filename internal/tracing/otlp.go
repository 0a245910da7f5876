//go:build !nootlp

package tracing

import (
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// otlp sends spans where the process's OTEL_ variables say. What it brings along, gRPC
// above all, is 13 MB of the program.
func otlp() (sdk.SpanExporter, error) {
	return otlptrace.NewUnstarted(otlptracehttp.NewClient(otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportTime,
	}))), nil
}
