package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/tracing"
)

const (
	producersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	producersSpan  = "00f067aa0ba902b7"
	traceparent    = "00-" + producersTrace + "-" + producersSpan + "-01"
)

// spanLog is an exporter that keeps what it gets.
type spanLog struct {
	mu  sync.Mutex
	all tracetest.SpanStubs
}

func (l *spanLog) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

func (l *spanLog) Shutdown(context.Context) error { return nil }

// of gives the spans whose name begins so, the oldest first.
func (l *spanLog) of(name string) (some tracetest.SpanStubs) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if strings.HasPrefix(s.Name, name+" ") {
			some = append(some, s)
		}
	}
	return some
}

func toldOf(s tracetest.SpanStub, name string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == name {
			return a.Value.Emit()
		}
	}
	return ""
}

// newTracer is one that sends where exporter is, nil: where the environment says.
func newTracer(t *testing.T, to sdk.SpanExporter, log *slog.Logger) *tracing.Tracer {
	t.Helper()
	tr, err := tracing.New(tracing.Config{Service: "flowgate", Ingress: "ingress", Backlog: "flowgate.backlog", Consumer: "http"}, tracing.Deps{Exporter: to, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// startTraced is startIn with spans that go to l.
func startTraced(t *testing.T, dir string, s *sink, l *spanLog, log *slog.Logger, environ ...string) *running {
	t.Helper()
	r, err := tryStartWith(t, dir, s, func(o *Options) { o.Tracer, o.Logger = newTracer(t, l, log), log }, environ...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send publishes with headers and waits for the answer.
func sendWith(t *testing.T, nc *nats.Conn, subject string, headers nats.Header) string {
	t.Helper()
	answer, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: headers, Data: []byte("x")}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer.Data)
}

// A trace goes from the producer through the backlog and a restart to the consumer.
func TestATraceSurvivesARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, s, before, after := t.TempDir(), &sink{}, &spanLog{}, &spanLog{}
		quiet := slog.New(slog.DiscardHandler)
		environ := []string{"FLOWGATE_SHAPER_RATE=1/m"}
		r := startTraced(t, dir, s, before, quiet, environ...)
		nc, _ := r.client()
		sendWith(t, nc, "ingress.acme.first", nil)
		time.Sleep(time.Second)
		sendWith(t, nc, "ingress.acme.orders", nats.Header{"traceparent": {traceparent}, "tracestate": {"v=1"}, "Nats-Msg-Id": {"7"}})
		time.Sleep(10 * time.Second)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r = startTraced(t, dir, s, after, quiet, environ...)
		time.Sleep(3 * time.Minute)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		admitted, waited, delivered := before.of("admit"), after.of("wait"), after.of("deliver")
		if len(admitted) != 2 || len(waited) != 2 || len(delivered) != 2 || len(before.all) != 2 || len(after.all) != 4 {
			t.Fatalf("before %d spans, after %d", len(before.all), len(after.all))
		}
		admit, wait, deliver := admitted[1], waited[1], delivered[1]
		if admitted[0].Parent.IsValid() || admitted[0].SpanContext.TraceID() == admit.SpanContext.TraceID() {
			t.Error("without a producer's trace it is not one of its own")
		}
		if admit.SpanContext.TraceID().String() != producersTrace || admit.Parent.SpanID().String() != producersSpan {
			t.Errorf("admit is not the producer's: %+v", admit.Parent)
		}
		for _, below := range []tracetest.SpanStub{wait, deliver} {
			if below.SpanContext.TraceID() != admit.SpanContext.TraceID() || below.Parent.SpanID() != admit.SpanContext.SpanID() {
				t.Errorf("%s is not below admit", below.Name)
			}
		}
		if took := wait.EndTime.Sub(wait.StartTime); took < time.Minute+10*time.Second || took > 3*time.Minute {
			t.Errorf("it waited %s", took)
		}
		if toldOf(deliver, "messaging.message.id") != "acme/7" || toldOf(deliver, "flowgate.outcome") != "done" || toldOf(deliver, "flowgate.tenant") != "acme" {
			t.Errorf("deliver tells %v", deliver.Attributes)
		}
		got := s.log()[1].Headers
		if want := "00-" + producersTrace + "-" + deliver.SpanContext.SpanID().String() + "-01"; fmt.Sprint(got["traceparent"]) != "["+want+"]" || fmt.Sprint(got["tracestate"]) != "[v=1]" {
			t.Errorf("the consumer is told %v, want %s", got, want)
		}
	})
}

// Each attempt is a span; a dead letter and its replay belong to the same trace; the log
// names it.
func TestTheTraceOfADeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, log := &spanLog{}, &bubble.Log{}
		r := startTraced(t, t.TempDir(), &sink{}, l, log.Logger(slog.LevelInfo), "FLOWGATE_CONSUMER_MAX_ATTEMPTS=2")
		nc, _ := r.client()
		broken := func(context.Context, consumers.Delivery) error { return errors.New("no luck") }
		r.sink.answers(broken)
		sendWith(t, nc, "ingress.acme.orders", nats.Header{"traceparent": {traceparent}})
		time.Sleep(time.Minute)
		r.sink.answers(nil)
		dead, err := r.control().Stream(t.Context(), "FLOWGATE_DLQ")
		if err != nil {
			t.Fatal(err)
		}
		letter, err := dead.GetMsg(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		asked[RaisedDeadLetter](r, "POST", "/api/v1/dead-letters/1/replay", "")
		time.Sleep(time.Minute)
		admit, delivered, waited := l.of("admit"), l.of("deliver"), l.of("wait")
		if len(admit) != 1 || len(delivered) != 3 || len(waited) != 2 {
			t.Fatalf("%d, %d and %d spans", len(admit), len(delivered), len(waited))
		}
		if at := letter.Header.Get("traceparent"); at != "00-"+producersTrace+"-"+admit[0].SpanContext.SpanID().String()+"-01" {
			t.Errorf("the dead letter names %s", at)
		}
		for i, outcome := range []string{"retried", "dead_lettered", "done"} {
			if toldOf(delivered[i], "flowgate.outcome") != outcome || delivered[i].Parent.SpanID() != admit[0].SpanContext.SpanID() {
				t.Errorf("attempt %d: %v", i, delivered[i])
			}
		}
		for i, line := range []string{"delivery failed", "went to the dead letters"} {
			want := "trace_id=" + producersTrace + " span_id=" + delivered[i].SpanContext.SpanID().String()
			if !strings.Contains(lineOf(log.String(), line), want) {
				t.Errorf("no %s in\n%s", want, log)
			}
		}
	})
}

// lineOf is the first line of a text that has words.
func lineOf(text, words string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, words) {
			return line
		}
	}
	return ""
}

// A refusal has its span, over NATS and for whatever reason.
func TestTheTraceOfARefusal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &spanLog{}
		r := startTraced(t, t.TempDir(), &sink{}, l, slog.New(slog.DiscardHandler), "FLOWGATE_LIMIT_TENANT=token-bucket:1/h")
		nc, _ := r.client()
		for _, subject := range []string{"ingress.acme.orders", "ingress.acme.orders", "ingress.no!name.x"} {
			sendWith(t, nc, subject, nats.Header{"traceparent": {traceparent}})
		}
		time.Sleep(time.Minute)
		admitted := l.of("admit")
		if len(admitted) != 3 {
			t.Fatalf("%d spans", len(admitted))
		}
		for i, want := range []string{"", "rate_limited", "invalid"} {
			if s := admitted[i]; toldOf(s, "flowgate.refused") != want || s.Status.Code != 0 || s.Parent.SpanID().String() != producersSpan {
				t.Errorf("%d: %+v", i, s)
			}
		}
	})
}

// With tracing off headers pass through as they were sent, whatever they are; the log
// still names a producer's trace.
func TestUntracedHeadersPassThrough(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := &bubble.Log{}
		r, err := tryStartWith(t, t.TempDir(), &sink{}, func(o *Options) { o.Logger = log.Logger(slog.LevelInfo) }, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=1")
		if err != nil {
			t.Fatal(err)
		}
		nc, _ := r.client()
		all := []nats.Header{
			{"traceparent": {traceparent}, "tracestate": {"a=1", "b=2"}}, {"Traceparent": {traceparent}}, {"traceparent": {"00-1-2-3"}}, {"traceparent": {traceparent, traceparent}}, nil,
		}
		r.sink.answers(poison)
		for _, h := range all {
			sendWith(t, nc, "ingress.acme.orders", h)
		}
		r.empty()
		for i, d := range r.sink.log() {
			if diff := cmp.Diff(map[string][]string(all[i]), d.Headers); diff != "" {
				t.Errorf("%d: %s", i, diff)
			}
		}
		if n := strings.Count(log.String(), "trace_id="+producersTrace+" span_id="+producersSpan); n != 1 {
			t.Errorf("%d lines name the trace:\n%s", n, log)
		}
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "opentelemetry") {
			t.Errorf("the SDK is at work:\n%s", stacks)
		}
	})
}
