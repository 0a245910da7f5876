package consumers

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes the spans of what the desk does.
type Tracer interface {
	// Wait makes the span of a message's wait, from its admission to its departure. lost
	// is why it is never tried, nil if it is.
	Wait(d Delivery, lost error)
	// Deliver opens the span of an attempt in a batch of so many, and gives the headers to
	// make it with: a copy, if they are others. done closes the span.
	Deliver(d Delivery, batch int) (headers map[string][]string, done func(Outcome))
}

// Trace has spans made from now on; it is called before the first attempt.
func (d *Desk) Trace(t Tracer) { d.tracer = t }

// traced opens the spans of a batch that is about to be tried, whose headers it changes.
// The wait is told once, with the first attempt; after one that did not count it is told
// again, up to the later departure.
func (d *Desk) traced(batch []Delivery) (done []func(Outcome)) {
	done = make([]func(Outcome), len(batch))
	for i := range batch {
		m := &batch[i]
		if m.Attempt == 1 && !m.Refusals.refused {
			d.tracer.Wait(*m, nil)
		}
		m.Stored = m.Headers
		m.Headers, done[i] = d.tracer.Deliver(*m, len(batch))
	}
	return done
}

// asStored is d with the headers that it has in the backlog.
func (d Delivery) asStored() Delivery {
	if d.Stored != nil {
		d.Headers, d.Stored = d.Stored, nil
	}
	return d
}

// Result names what became of the message, as metrics do.
func (o Outcome) Result() string {
	switch {
	case o.Action == Later:
		return "retried"
	case o.Kind == Done:
		return "done"
	}
	return "dead_lettered"
}

// about is log with the trace that d belongs to, if there is one, whoever began it.
func about(log *slog.Logger, d Delivery) *slog.Logger {
	ctx := propagation.TraceContext{}.Extract(context.Background(), headerCarrier(d.Headers))
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		return log.With("trace_id", s.TraceID().String(), "span_id", s.SpanID().String())
	}
	return log
}

// headerCarrier reads headers for about.
type headerCarrier map[string][]string

// Get implements propagation.TextMapCarrier.
func (h headerCarrier) Get(name string) string {
	if values := h[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier; nothing is written.
func (h headerCarrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier; the trace context asks for none.
func (h headerCarrier) Keys() []string { return nil }
