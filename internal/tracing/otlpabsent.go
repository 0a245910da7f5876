//go:build nootlp

package tracing

import (
	"errors"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

func otlp() (sdk.SpanExporter, error) {
	return nil, errors.New("this program was built without OTLP (-tags nootlp); build it without that tag: go build ./cmd/flowgate")
}
