package tracing

import (
	"strings"
	"testing"
)

func TestWhatTheEnvironmentAsksFor(t *testing.T) {
	const to = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, c := range []struct {
		environ, wrong string
		on             bool
	}{
		{environ: ""},
		{environ: "OTEL_SERVICE_NAME=x OTEL_TRACES_EXPORTER=otlp"},
		{environ: "OTEL_EXPORTER_OTLP_ENDPOINT="},
		{environ: to, on: true},
		{environ: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318/v1/traces", on: true},
		{environ: to + " OTEL_SDK_DISABLED=True"},
		{environ: to + " OTEL_SDK_DISABLED=false", on: true},
		{environ: to + " OTEL_TRACES_EXPORTER=none"},
		{environ: to + " OTEL_TRACES_EXPORTER=zipkin", wrong: "OTEL_TRACES_EXPORTER"},
		{environ: to + " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", on: true},
		{environ: to + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc", wrong: "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{environ: to + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", on: true},
	} {
		on, err := Wanted(strings.Fields(c.environ))
		if on != c.on || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong+" is ") {
			t.Errorf("%s: %v, %v", c.environ, on, err)
		}
	}
}
