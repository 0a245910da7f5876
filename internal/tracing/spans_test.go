package tracing

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const (
	ofTrace    = "4bf92f3577b34da6a3ce929d0e0e4736"
	ofSpan     = "00f067aa0ba902b7"
	sampled    = "00-" + ofTrace + "-" + ofSpan + "-01"
	notSampled = "00-" + ofTrace + "-" + ofSpan + "-00"
)

// spans are those that f makes.
func spans(t *testing.T, f func(*Tracer)) (made tracetest.SpanStubs) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := tracetest.NewInMemoryExporter()
		tr, stop := run(t, all, slog.New(slog.DiscardHandler))
		synctest.Wait()
		f(tr)
		time.Sleep(10 * time.Second)
		made = all.GetSpans()
		stop()
	})
	return made
}

// What a producer sends as its trace's context, and what becomes of it.
func TestWhoseTraceItIs(t *testing.T) {
	type headers = map[string][]string
	for _, c := range []struct {
		name    string
		sampler string
		in      headers
		parent  bool // the producer's span is the parent
		made    bool
		same    bool     // the headers stay as they are
		state   []string // the tracestate that goes on
	}{
		{name: "none", made: true},
		{name: "none, and other headers", in: headers{"a": {"b"}}, made: true},
		{name: "sampled", in: headers{"traceparent": {sampled}, "tracestate": {"x=1"}}, parent: true, made: true, state: []string{"x=1"}},
		{name: "spelt as HTTP libraries do", in: headers{"Traceparent": {sampled}, "Tracestate": {"x=1", "y=2"}}, parent: true, made: true, state: []string{"x=1,y=2"}},
		{name: "not sampled", in: headers{"traceparent": {notSampled}, "tracestate": {"x=1"}}, same: true},
		{name: "sampled, though our own are not", sampler: "parentbased_always_off", in: headers{"traceparent": {sampled}}, parent: true, made: true},
		{name: "none, and our own are not sampled", sampler: "parentbased_always_off"},
		{name: "all off", sampler: "always_off", in: headers{"traceparent": {sampled}}, same: true},
		{name: "malformed", in: headers{"traceparent": {"00-1-2-3"}, "tracestate": {"x=1"}}, made: true},
		{name: "twice", in: headers{"traceparent": {sampled, sampled}}, made: true},
		{name: "in two spellings", in: headers{"traceparent": {sampled}, "Traceparent": {sampled}}, made: true},
		{name: "of zeros", in: headers{"traceparent": {"00-00000000000000000000000000000000-0000000000000000-01"}}, made: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.sampler != "" {
				t.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
			}
			in := maps.Clone(c.in)
			var out headers
			made := spans(t, func(tr *Tracer) {
				var done func(*Refusal)
				out, done = tr.Admit(Message{Tenant: "acme", Headers: in}, "nats", time.Now())
				done(nil)
			})
			if c.same {
				if diff := cmp.Diff(c.in, out); diff != "" || len(made) != 0 {
					t.Errorf("%d spans, headers %s", len(made), diff)
				}
				return
			}
			_, at := parent(out)
			if !at.IsValid() || at.IsSampled() != c.made || len(out["Traceparent"]) > 0 || !cmp.Equal(out["tracestate"], c.state) {
				t.Fatalf("it goes on with %v", out)
			}
			if (at.TraceID().String() == ofTrace) != c.parent {
				t.Errorf("the trace is %s", at.TraceID())
			}
			if !c.made {
				if len(made) != 0 {
					t.Errorf("spans %+v", made)
				}
				return
			}
			if len(made) != 1 || made[0].SpanContext.SpanID() != at.SpanID() || c.parent != (made[0].Parent.SpanID().String() == ofSpan) {
				t.Errorf("spans %+v", made)
			}
		})
	}
}

// The spans of one message, as a collector shows them.
func TestTheSpansOfAMessage(t *testing.T) {
	var told map[string][]string
	var began time.Time
	made := spans(t, func(tr *Tracer) {
		began = time.Now()
		h, done := tr.Admit(Message{Tenant: "acme", Subject: "ingress.acme.orders", ID: "acme/1", Bytes: 3}, "nats", began)
		time.Sleep(time.Second)
		done(nil)
		m := Message{Tenant: "acme", Subject: "flowgate.backlog.acme.orders", ID: "acme/1", Headers: h, Bytes: 3, Seq: 7}
		time.Sleep(time.Hour)
		tr.Wait(m, began.Add(time.Second), time.Now(), nil)
		stored := maps.Clone(h)
		given, delivered := tr.Deliver(m, Attempt{Number: 1, Batch: 2})
		time.Sleep(2 * time.Second)
		delivered(Result{Outcome: "retried", Verdict: "retry", Took: time.Second, Err: errors.New("it broke")})
		if diff := cmp.Diff(stored, h); diff != "" {
			t.Errorf("the stored headers changed: %s", diff)
		}
		told = given
	})
	byName := map[string]tracetest.SpanStub{}
	for _, s := range made {
		byName[s.Name] = s
	}
	admitted, waited, delivered := byName["admit ingress.{tenant}.{topic}"], byName["wait flowgate.backlog.{tenant}.{topic}"], byName["deliver http"]
	if len(made) != 3 || len(byName) != 3 || !delivered.SpanContext.IsValid() {
		t.Fatalf("spans %+v", made)
	}
	above := admitted.SpanContext.SpanID()
	if waited.Parent.SpanID() != above || delivered.Parent.SpanID() != above || waited.SpanContext.TraceID() != admitted.SpanContext.TraceID() {
		t.Error("wait and deliver are not below admit")
	}
	if _, at := parent(told); at.SpanID() != delivered.SpanContext.SpanID() {
		t.Errorf("the consumer is told %v", told)
	}
	for _, c := range []struct {
		s    tracetest.SpanStub
		took time.Duration
		kind trace.SpanKind
		code codes.Code
		want map[string]any
	}{
		{admitted, time.Second, trace.SpanKindConsumer, codes.Unset, map[string]any{
			"messaging.system": "nats", "messaging.operation.name": "admit", "messaging.operation.type": "process",
			"messaging.destination.template": "ingress.{tenant}.{topic}", "messaging.destination.name": "ingress.acme.orders",
			"messaging.message.id": "acme/1", "messaging.message.body.size": int64(3), "flowgate.tenant": "acme", "flowgate.transport": "nats",
		}},
		{waited, time.Hour, trace.SpanKindInternal, codes.Unset, map[string]any{
			"messaging.system": "nats", "messaging.operation.name": "wait",
			"messaging.destination.template": "flowgate.backlog.{tenant}.{topic}", "messaging.destination.name": "flowgate.backlog.acme.orders",
			"messaging.message.id": "acme/1", "messaging.message.body.size": int64(3), "flowgate.tenant": "acme", "flowgate.seq": int64(7),
		}},
		{delivered, time.Second, trace.SpanKindClient, codes.Error, map[string]any{
			"messaging.operation.name": "deliver", "messaging.destination.name": "flowgate.backlog.acme.orders", "messaging.batch.message_count": int64(2),
			"messaging.message.id": "acme/1", "messaging.message.body.size": int64(3), "flowgate.tenant": "acme", "flowgate.seq": int64(7),
			"flowgate.attempt": int64(1), "flowgate.outcome": "retried", "error.type": "retry",
		}},
	} {
		have := map[string]any{}
		for _, a := range c.s.Attributes {
			have[string(a.Key)] = a.Value.AsInterface()
		}
		if diff := cmp.Diff(c.want, have); diff != "" {
			t.Errorf("%s: %s", c.s.Name, diff)
		}
		if took := c.s.EndTime.Sub(c.s.StartTime); took != c.took || c.s.SpanKind != c.kind || c.s.Status.Code != c.code {
			t.Errorf("%s took %s, kind %s, status %v", c.s.Name, took, c.s.SpanKind, c.s.Status)
		}
	}
	if delivered.Status.Description != "it broke" {
		t.Errorf("status %v", delivered.Status)
	}
}

// A refusal is what the gateway is there for; its own failure is one.
func TestARefusalIsNoError(t *testing.T) {
	for reason, failed := range map[string]bool{"rate_limited": false, "overloaded": true} {
		made := spans(t, func(tr *Tracer) {
			_, done := tr.Admit(Message{Tenant: "acme"}, "http", time.Now())
			done(&Refusal{Reason: reason, Scope: "tenant", Limit: "gcra:1/s", Failed: failed})
		})
		if len(made) != 1 || (made[0].Status.Code == codes.Error) != failed {
			t.Fatalf("%s: %+v", reason, made)
		}
		told := map[string]string{}
		for _, a := range made[0].Attributes {
			told[string(a.Key)] = a.Value.Emit()
		}
		if told["flowgate.refused"] != reason || told["flowgate.limit"] != "gcra:1/s" || told["flowgate.limit.scope"] != "tenant" {
			t.Errorf("%s: %v", reason, told)
		}
	}
}
