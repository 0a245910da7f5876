package tracing

import (
	"maps"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Message is what spans tell of one. Zero values are not told.
type Message struct {
	Tenant string
	// Subject is where the producer sent it, or where it waits.
	Subject string
	ID      string
	Headers map[string][]string
	Bytes   int
	Seq     uint64
}

// kind is what all spans of one kind have in common: names after the semantic
// conventions for messaging, "<operation> <destination>", with the subject's template in
// place of the subject, of which there may be as many as tenants and topics.
type kind struct {
	name   string
	kind   trace.SpanKind
	common []attribute.KeyValue
}

func system(name string) attribute.KeyValue { return semconv.MessagingSystemKey.String(name) }

func subjects(prefix string) string { return prefix + ".{tenant}.{topic}" }

func admitKind(prefix string) kind {
	return kind{"admit " + subjects(prefix), trace.SpanKindConsumer, []attribute.KeyValue{
		system("nats"), semconv.MessagingOperationName("admit"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationTemplate(subjects(prefix)),
	}}
}

func waitKind(prefix string) kind {
	return kind{"wait " + subjects(prefix), trace.SpanKindInternal, []attribute.KeyValue{
		system("nats"), semconv.MessagingOperationName("wait"),
		semconv.MessagingDestinationTemplate(subjects(prefix)),
	}}
}

// deliverKind: a message broker gets a message sent, anything else is called.
func deliverKind(scheme string) kind {
	k := kind{"deliver " + scheme, trace.SpanKindClient, []attribute.KeyValue{semconv.MessagingOperationName("deliver")}}
	brokers := map[string]attribute.KeyValue{
		"nats": system("nats"), "kafka": semconv.MessagingSystemKafka, "redis": system("redis"), "rediss": system("redis"),
		"amqp": semconv.MessagingSystemRabbitMQ, "amqps": semconv.MessagingSystemRabbitMQ,
	}
	databases := map[string]attribute.KeyValue{
		"sqlite": semconv.DBSystemNameSQLite, "postgres": semconv.DBSystemNamePostgreSQL, "postgresql": semconv.DBSystemNamePostgreSQL,
	}
	if broker, ok := brokers[scheme]; ok {
		k.kind, k.common = trace.SpanKindProducer, append(k.common, broker, semconv.MessagingOperationTypeSend)
	} else if database, ok := databases[scheme]; ok {
		k.common = append(k.common, database)
	}
	return k
}

// begin opens a span below the one that m's headers name.
func (t *Tracer) begin(k kind, m Message, at time.Time, more ...attribute.KeyValue) (s trace.Span, orphan bool, carrying func(map[string][]string)) {
	ctx, above := parent(m.Headers)
	ctx, s = t.tracer.Start(ctx, k.name, trace.WithSpanKind(k.kind), trace.WithTimestamp(at), trace.WithAttributes(k.common...))
	if s.IsRecording() {
		s.SetAttributes(m.attributes()...)
		s.SetAttributes(more...)
	}
	return s, !above.IsValid(), func(headers map[string][]string) { carry(ctx, headers) }
}

func (m Message) attributes() []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 8)
	text := func(key attribute.Key, v string) {
		if v != "" {
			all = append(all, key.String(clip(v)))
		}
	}
	text("flowgate.tenant", m.Tenant)
	text(semconv.MessagingDestinationNameKey, m.Subject)
	text(semconv.MessagingMessageIDKey, m.ID)
	if m.Bytes > 0 {
		all = append(all, semconv.MessagingMessageBodySize(m.Bytes))
	}
	if m.Seq > 0 {
		all = append(all, attribute.Int64("flowgate.seq", int64(m.Seq)))
	}
	return all
}

// Refusal is why a message was not admitted.
type Refusal struct {
	// Reason is the NAK's; Limit the rule that refused, if one did.
	Reason, Scope, Limit string
	// Failed: it was the gateway's or the broker's failure. Other refusals are what the
	// gateway is there for, and no errors.
	Failed bool
}

// Admit opens the span of the admission of a message that was received at an instant. It
// gives the headers that the message is to be forwarded with, m's own written to if there
// are any; done closes the span.
func (t *Tracer) Admit(m Message, transport string, at time.Time) (headers map[string][]string, done func(*Refusal)) {
	s, orphan, carrying := t.begin(t.admit, m, at, attribute.String("flowgate.transport", transport))
	if headers = m.Headers; s.SpanContext().IsSampled() || orphan {
		// Without a parent, that it is not sampled is said too: else each of its later
		// spans would be a trace of its own.
		if headers == nil {
			headers = make(map[string][]string, 1)
		}
		carrying(headers)
	}
	return headers, func(r *Refusal) {
		if r != nil && s.IsRecording() {
			s.SetAttributes(attribute.String("flowgate.refused", r.Reason))
			if r.Limit != "" {
				s.SetAttributes(attribute.String("flowgate.limit.scope", r.Scope), attribute.String("flowgate.limit", clip(r.Limit)))
			}
			if r.Failed {
				fail(s, r.Reason, r.Reason)
			}
		}
		s.End()
	}
}

// Wait makes the span of a message's time in the backlog. lost is why it is never
// delivered, nil if it leaves now.
func (t *Tracer) Wait(m Message, from, to time.Time, lost error) {
	s, _, _ := t.begin(t.wait, m, from)
	if lost != nil {
		fail(s, "lost", lost.Error())
	}
	s.End(trace.WithTimestamp(to))
}

// Attempt is a delivery's.
type Attempt struct{ Number, Batch int }

// Result is what became of an attempt.
type Result struct {
	// Outcome is done, retried or dead_lettered; Verdict the destination's word.
	Outcome, Verdict string
	Took             time.Duration
	Err              error
}

// Deliver opens the span of an attempt that begins now. It gives the headers for the
// destination, whose own spans hang below: a copy of m's if they are others; done closes
// the span.
func (t *Tracer) Deliver(m Message, a Attempt) (headers map[string][]string, done func(Result)) {
	began := time.Now()
	s, _, carrying := t.begin(t.deliver, m, began, attribute.Int("flowgate.attempt", a.Number), semconv.MessagingBatchMessageCount(a.Batch))
	if headers = m.Headers; s.SpanContext().IsSampled() {
		if headers = maps.Clone(headers); headers == nil {
			headers = make(map[string][]string, 1)
		}
		carrying(headers)
	}
	return headers, func(r Result) {
		if s.IsRecording() {
			s.SetAttributes(attribute.String("flowgate.outcome", r.Outcome))
			if r.Err != nil {
				fail(s, r.Verdict, r.Err.Error())
			}
		}
		s.End(trace.WithTimestamp(began.Add(r.Took)))
	}
}

func fail(s trace.Span, kind, text string) {
	s.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.SetStatus(codes.Error, clip(text))
}
