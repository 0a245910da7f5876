//go:build !nootlp

package app

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlpCollector is a collector that takes OTLP over HTTP.
type otlpCollector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    map[string]*tracepb.Span // by the first word of the name
	resource map[string]string
	headers  http.Header
	path     string
}

func newCollectorServer(t *testing.T) *otlpCollector {
	c := &otlpCollector{spans: map[string]*tracepb.Span{}, resource: map[string]string{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	var data tracepb.TracesData // has the form of an export request
	if err == nil {
		err = proto.Unmarshal(b, &data)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP", 400)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers, c.path = r.Header, r.URL.Path
	for _, rs := range data.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				name, _, _ := strings.Cut(s.Name, " ")
				c.spans[name] = s
			}
		}
	}
}

// From an HTTP producer to an HTTP consumer, with a collector that speaks OTLP, set up by
// the standard variables. In real time: sockets.
func TestTracesOverOTLP(t *testing.T) {
	c := newCollectorServer(t)
	var mu sync.Mutex
	var arrived []http.Header
	consumer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, r.Header)
	}))
	t.Cleanup(consumer.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL+"/base")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=s3cret")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_SERVICE_NAME", "gate-eu")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off") // the producer decides
	r, err := tryStartWith(t, t.TempDir(), &sink{}, func(o *Options) {
		o.Destination = nil
		o.Tracer = newTracer(t, nil, o.Logger)
	}, "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0", "FLOWGATE_CONSUMER_URL="+consumer.URL)
	if err != nil {
		t.Fatal(err)
	}
	const unsampled = "00-" + producersTrace + "-" + producersSpan + "-00"
	for _, h := range [][]string{{"Traceparent", unsampled}, {"Traceparent", traceparent, "Tracestate", "v=1"}} {
		if status, _, text := r.post("acme/orders", "x", h...); status != 202 {
			t.Fatalf("%d %s", status, text)
		}
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		mu.Lock()
		n := len(arrived)
		mu.Unlock()
		if n == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d messages arrived", n)
		}
	}
	if err := r.stop(); err != nil { // which sends what is left
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) != 3 || c.path != "/base/v1/traces" || c.headers.Get("X-Key") != "s3cret" || c.headers.Get("Content-Encoding") != "gzip" {
		t.Errorf("%d spans, sent to %s with %v", len(c.spans), c.path, c.headers)
	}
	if c.resource["service.name"] != "gate-eu" || c.resource["deployment.environment.name"] != "test" {
		t.Errorf("the resource is %v", c.resource)
	}
	for name, s := range c.spans {
		if hex.EncodeToString(s.TraceId) != producersTrace {
			t.Errorf("%s is of the trace %x", name, s.TraceId)
		}
	}
	admit, deliver := c.spans["admit"], c.spans["deliver"]
	if hex.EncodeToString(admit.GetParentSpanId()) != producersSpan || string(deliver.GetParentSpanId()) != string(admit.GetSpanId()) || deliver.GetSpanId() == nil {
		t.Errorf("admit %v\ndeliver %v", admit, deliver)
	}
	sampled := fmt.Sprintf("00-%s-%x-01", producersTrace, deliver.GetSpanId())
	for _, h := range arrived {
		if at := h.Get("Traceparent"); at != unsampled && at != sampled {
			t.Errorf("the consumer is told %s", at)
		}
	}
	if arrived[0].Get("Traceparent") == arrived[1].Get("Traceparent") {
		t.Error("both came with the same traceparent")
	}
}
