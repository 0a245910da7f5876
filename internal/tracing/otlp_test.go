//go:build !nootlp

package tracing

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

// What real collectors do to real HTTP: 503, no answer, no listener.
func TestRealCollectors(t *testing.T) {
	release := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"503":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"400":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) },
		"slow":   func(_ http.ResponseWriter, r *http.Request) { <-release },
		"killed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			if answer == nil {
				s.Close()
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
			var log bubble.Log
			tr, stop := run(t, nil, log.Logger(slog.LevelDebug))
			began := time.Now()
			for time.Since(began) < 100*time.Millisecond { // many batches
				admit(tr)
			}
			began = time.Now()
			stop()
			if name == "slow" {
				close(release)
			}
			if took := time.Since(began); took > flushTime+3*time.Second {
				t.Errorf("the end took %s", took)
			}
			if n := strings.Count(log.String(), "does not take spans"); n != 1 || strings.Count(log.String(), "\n") > 2 {
				t.Errorf("the log says\n%s", log.String())
			}
		})
	}
}
