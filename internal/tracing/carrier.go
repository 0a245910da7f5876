package tracing

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// carrier is a message's headers. NATS tells the case of names apart, and HTTP libraries
// write them their own way: that spelling is understood too.
type carrier map[string][]string

// spelt is a name of the trace context's in HTTP libraries' spelling.
func spelt(name string) string {
	if name == "traceparent" {
		return "Traceparent"
	}
	return "Tracestate"
}

// Get implements propagation.TextMapCarrier. A traceparent that is there twice is none;
// tracestate may be in several lines.
func (c carrier) Get(name string) string {
	here, there := c[name], c[spelt(name)]
	switch {
	case len(here)+len(there) == 0:
		return ""
	case len(here) == 1 && len(there) == 0:
		return here[0]
	case len(here) == 0 && len(there) == 1:
		return there[0]
	case name == "traceparent":
		return ""
	}
	return strings.Join(slices.Concat(here, there), ",")
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(name, value string) {
	delete(c, spelt(name))
	c[name] = []string{value}
}

// Keys implements propagation.TextMapCarrier; the trace context needs none.
func (c carrier) Keys() []string { return nil }

// parent is the span that headers name, as a parent of spans; what is malformed names none.
func parent(headers map[string][]string) (context.Context, trace.SpanContext) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier(headers))
	return ctx, trace.SpanContextFromContext(ctx)
}

// carry writes the context of ctx into headers in place of what was there: a state
// without its parent means nothing.
func carry(ctx context.Context, headers map[string][]string) {
	delete(headers, "tracestate")
	delete(headers, "Tracestate")
	propagation.TraceContext{}.Inject(ctx, carrier(headers))
}
