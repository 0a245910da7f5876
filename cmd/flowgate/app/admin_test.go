package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/flowgate/flowgate/internal/bubble"
)

func gather(t *testing.T, r *running) []*dto.MetricFamily {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// get asks the admin address, without its listener.
func get(r *running, path string) (int, string) {
	w := httptest.NewRecorder()
	r.running().adminHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func TestStatus(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=1000", "FLOWGATE_SHAPER_RATE=10/s")
		_, js := r.client()
		r.admitted(js, "acme", 200)
		time.Sleep(5 * time.Second)
		code, body := get(r, "/api/v1/status")
		if code != 200 {
			t.Fatalf("code %d", code)
		}
		var s map[string]any
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for k := range s {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		want := []string{"breaker", "cap", "dead_letters", "depth", "drain_seconds", "hint_seconds", "level", "mode", "name", "oldest_age_seconds",
			"paused", "pressured_since", "rate", "replica", "sampled_at", "signals", "slots", "stale", "target_latency_seconds", "time_to_high_seconds",
			"version", "watermarks"}
		if !slices.Equal(keys, want) {
			t.Errorf("keys %v\nwant %v", keys, want)
		}
		number := func(path ...string) float64 {
			var v any = s
			for _, p := range path {
				v = v.(map[string]any)[p]
			}
			n, ok := v.(float64)
			if !ok {
				t.Errorf("%v is %v", path, v)
			}
			return n
		}
		between := func(least, most float64, path ...string) {
			t.Helper()
			if n := number(path...); n < least || n > most {
				t.Errorf("%v is %g, want %g to %g", path, n, least, most)
			}
		}
		between(148, 152, "depth", "total")
		between(148, 152, "depth", "waiting")
		between(800, 800, "watermarks", "low")
		between(1000, 1000, "watermarks", "high")
		between(2000, 2000, "watermarks", "max")
		between(4.9, 5.2, "oldest_age_seconds")
		between(10, 10, "rate", "configured")
		between(10, 10, "rate", "effective")
		if reason := s["rate"].(map[string]any)["reason"]; reason != "configured" {
			t.Errorf("the reason of the rate is %v", reason)
		}
		between(9.5, 10.5, "rate", "delivered")
		between(14, 16, "drain_seconds")
		if s["level"] != "normal" || s["breaker"] != "closed" || s["version"] != "v1.2.3" || s["mode"] != "enforce" {
			t.Errorf("status %s", body)
		}
	})
}

func TestHealth(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHUTDOWN_DELAY=10s", "FLOWGATE_BACKPRESSURE_HIGH=10")
		r.sink.answers(away)
		_, js := r.client()
		r.admitted(js, "acme", 10)
		for _, path := range []string{"/livez", "/readyz"} {
			if code, body := get(r, path); code != 200 || body != "ok\n" {
				t.Errorf("%s of a pressured gateway: %d %s", path, code, body)
			}
		}
		if code, body := get(r, "/readyz?verbose"); code != 200 || strings.Count(body, "[+]") != 6 {
			t.Errorf("readyz: %d\n%s", code, body)
		}
		full := errors.New("no room")
		r.running().full.Store(&full)
		if code, body := get(r, "/readyz"); code != 503 || !contains(body, "[-] disk: no room") {
			t.Errorf("readyz with a full disk: %d\n%s", code, body)
		}
		time.Sleep(2 * watchEvery)
		if code, body := get(r, "/readyz"); code != 200 {
			t.Errorf("readyz with room again: %d\n%s", code, body)
		}
		r.cancel()
		time.Sleep(time.Second)
		if code, body := get(r, "/readyz"); code != 503 || !contains(body, "[-] serving: shutting down") {
			t.Errorf("readyz while shutting down: %d\n%s", code, body)
		}
		if code, _ := get(r, "/livez"); code != 200 {
			t.Errorf("livez while shutting down: %d", code)
		}
	})
}

// With an adaptive rate, status and metrics say what it is and why.
func TestStatusOfAnAdaptiveRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHAPER_ADAPTIVE=on", "FLOWGATE_SHAPER_RATE=50/s", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=5000")
		wants := func(effective float64, reason string) {
			t.Helper()
			s := r.running().status().Rate
			if *s.Configured != 50 || *s.Effective != effective || s.Reason != reason {
				t.Errorf("configured %g, effective %g, reason %s; want 50, %g, %s", *s.Configured, *s.Effective, s.Reason, effective, reason)
			}
			_, body := get(r, "/metrics")
			for _, line := range []string{
				`flowgate_shaper_rate{kind="configured"} 50`, fmt.Sprintf(`flowgate_shaper_rate{kind="effective"} %g`, effective),
				fmt.Sprintf(`flowgate_shaper_rate_reason{reason="%s"} 1`, reason),
			} {
				if !contains(body, line+"\n") {
					t.Errorf("no line %s", line)
				}
			}
		}
		wants(10, "slow_start")
		_, js := r.client()
		r.admitted(js, "acme", 500)
		time.Sleep(5 * time.Second)
		wants(50, "configured")
		if drain := *r.running().status().DrainSeconds; drain < 4 || drain > 9 {
			t.Errorf("drains in %g s", drain)
		}
		time.Sleep(time.Minute)
		r.admitted(js, "acme", 1)
		time.Sleep(time.Second)
		wants(10, "unused")
	})
}

var metricName = regexp.MustCompile(`flowgate_[a-z_]+`)

// The metrics are those of the documentation, no more and no fewer, and pass
// Prometheus' own lint.
func TestMetrics(t *testing.T) {
	documented, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, n := range metricName.FindAllString(string(documented), -1) {
		names[n] = true
	}
	for _, ofDatabases := range []string{"flowgate_consumer_conflicts_total", "flowgate_consumer_rows_expired_total"} {
		delete(names, ofDatabases)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("k acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=20", "FLOWGATE_LIMIT_TENANT=token-bucket:30/s", "FLOWGATE_INGRESS_API_KEYS_FILE="+keys)
		_, js := r.client()
		_, _ = js.Publish(t.Context(), "ingress.b*d.orders", nil)
		_, _ = js.Publish(t.Context(), "ingress.a\xff\"b.orders", nil)
		r.sink.answers(hangs)
		for range 40 {
			_, _ = js.Publish(t.Context(), "ingress.acme.orders", nil)
		}
		time.Sleep(10 * time.Minute)
		r.admitted(js, "acme", 1)
		if code, body, _ := ask(r, "POST", "/api/v1/dead-letters/1/replay", ""); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		time.Sleep(time.Second)
		problems, err := promlint.NewWithMetricFamilies(gather(t, r)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		for _, f := range gather(t, r) {
			if name := f.GetName(); strings.HasPrefix(name, "flowgate_") {
				if !names[name] {
					t.Errorf("%s is not in docs/metrics.md", name)
				}
				delete(names, name)
			}
		}
		for name := range names {
			t.Errorf("%s is in docs/metrics.md and is not exported", name)
		}
		_, body := get(r, "/metrics")
		for _, want := range []string{
			`flowgate_ingress_messages_total{enforced="true",reason="backlog",result="refused",scope="",tenant="acme",transport="nats"} 20`,
			`flowgate_ingress_messages_total{enforced="true",reason="",result="admitted",scope="",tenant="acme",transport="nats"} 21`,
			`flowgate_backlog_watermark_messages{band="high"} 20`,
			`flowgate_dead_letters_total{tenant="acme"} 20`,
			`flowgate_consumer_deliveries_total{outcome="dead_lettered",tenant="acme"} 20`,
			`flowgate_backpressure_transitions_total{signal="depth",to="pressured"} 1`,
			`flowgate_nats_connected 1`,
			`flowgate_replica_leader 1`,
		} {
			if !contains(body, want+"\n") {
				t.Errorf("no line %s", want)
			}
		}
	})
}

// Tenants beyond the bound share a label, and made-up ones get none.
func TestTenantLabels(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_METRICS_TENANTS_MAX=2", "FLOWGATE_INGRESS_TENANTS=a*")
		_, js := r.client()
		for _, tenant := range []string{"a1", "a2", "a3", "a4"} {
			r.admitted(js, tenant, 1)
		}
		for _, tenant := range []string{"evil1", "evil2"} {
			if code, _ := refusal(second(js.Publish(t.Context(), "ingress."+tenant+".x", nil))); code != 60403 {
				t.Errorf("%s: code %d", tenant, code)
			}
		}
		time.Sleep(time.Second)
		_, body := get(r, "/metrics")
		for _, line := range strings.Split(body, "\n") {
			if contains(line, "evil") || contains(line, "a3") {
				t.Errorf("an unbounded label: %s", line)
			}
		}
		if !contains(body, `tenant="other",transport="nats"} 2`) {
			t.Error("the third and fourth tenant are not counted as other")
		}
	})
}
