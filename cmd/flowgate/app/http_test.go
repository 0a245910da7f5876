package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

// post sends a message over HTTP; headers are name, value, name, value.
func (r *running) post(to, body string, headers ...string) (status int, h http.Header, text string) {
	r.t.Helper()
	req, err := http.NewRequest("POST", "http://"+r.HTTPAddr()+"/v1/messages/"+to, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

// A message over HTTP arrives as it was sent, and without its key. In real time: the
// fake clock does not know of sockets.
func TestHTTPPath(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("s3cret acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_API_KEYS_FILE="+keys, "FLOWGATE_LIMIT_TENANT=token-bucket:2/h")
	send := func(key string) (int, http.Header, string) {
		return r.post("acme/orders/eu", `{"n":1}`, "Content-Type", "application/json", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Idempotency-Key", `"o-1"`, "Authorization", "Bearer "+key)
	}
	status, h, text := send("s3cret")
	if status != 202 || text != `{"stream":"FLOWGATE","seq":1}` {
		t.Fatalf("%d %s", status, text)
	}
	if policy, limit := h.Get("RateLimit-Policy"), h.Get("RateLimit"); policy != `"tenant";q=2;w=3600` || !strings.HasPrefix(limit, `"tenant";r=1;t=`) {
		t.Errorf("the limits are told as %s and %s", policy, limit)
	}
	if status, _, text := send("s3cret"); status != 202 || !strings.Contains(text, `"duplicate": true`) {
		t.Errorf("again: %d %s", status, text)
	}
	if status, h, text := send("s3cret"); status != 429 || !strings.Contains(text, `"scope":"tenant","key":"acme","limit":"token-bucket:2/h"`) || h.Get("Retry-After") == "" {
		t.Errorf("over the limit: %d %s", status, text)
	}
	if status, _, _ := send("other"); status != 401 {
		t.Errorf("with another key: %d", status)
	}
	for end := time.Now().Add(10 * time.Second); len(r.sink.log()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was delivered")
		}
	}
	d := r.sink.log()[0]
	if d.ID != "acme/o-1" || d.Topic != "orders.eu" || string(d.Payload) != `{"n":1}` || len(d.Headers) != 3 ||
		fmt.Sprint(d.Headers["Content-Type"]) != "[application/json]" || d.Headers["traceparent"][0][:5] != "00-4b" {
		t.Errorf("delivered %+v", d)
	}
	if code, body := get(r, "/readyz?verbose"); code != 200 || !strings.Contains(body, "[+] http ok") {
		t.Errorf("readiness: %d\n%s", code, body)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + r.HTTPAddr()); err == nil {
		t.Error("the port is still open")
	}
}

// Without enforcement nobody is refused, up to the hard MAX; the status tells the mode
// and counts only what was refused in earnest.
func TestModes(t *testing.T) {
	for mode, shadow := range map[string]float64{"shadow": 7, "off": 0} {
		bubble.Test(t, func(t *testing.T) {
			r := start(t, "FLOWGATE_MODE="+mode, "FLOWGATE_LIMIT_TENANT=token-bucket:1/h", "FLOWGATE_BACKPRESSURE_HIGH=5", "FLOWGATE_BACKPRESSURE_MAX=8")
			r.sink.answers(hangs)
			_, js := r.client()
			r.admitted(js, "acme", 8)
			s := r.settled()
			if s.Mode != mode || s.Level != "pressured" || s.Depth.Total != 8 || s.Rate.Refused != 0 {
				t.Errorf("%s: %+v", mode, s)
			}
			_, err := js.Publish(t.Context(), "ingress.acme.orders", nil)
			if code, wait := refusal(err); code != 60503 || wait <= 0 {
				t.Errorf("%s: beyond MAX: %v", mode, err)
			}
			if s := r.settled(); s.Rate.Refused == 0 {
				t.Errorf("%s: what was refused in earnest is not counted", mode)
			}
			spared := 0.0
			for _, f := range gather(t, r) {
				if f.GetName() != "flowgate_ingress_messages_total" {
					continue
				}
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "enforced" && l.GetValue() == "false" {
							spared += m.GetCounter().GetValue()
						}
					}
				}
			}
			if spared != shadow {
				t.Errorf("%s: %v counted as refused in shadow, want %v", mode, spared, shadow)
			}
			if code, body := get(r, "/api/v1/status"); code != 200 || !json.Valid([]byte(body)) || !strings.Contains(body, `"mode": "`+mode+`"`) {
				t.Errorf("%s: status %d %s", mode, code, body)
			}
		})
	}
}

// The address of a client is a scope over HTTP; behind a trusted proxy it is the one
// that the proxy names.
func TestAddressesAreLimitedOverHTTP(t *testing.T) {
	r := start(t, "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_TRUSTED_PROXIES=127.0.0.0/8", "FLOWGATE_LIMIT_IP=fixed-window:2/8784h;sliding-window:100/h")
	for _, from := range []string{"192.0.2.7", "192.0.2.8"} {
		for i := range 3 {
			status, h, text := r.post("acme/orders", "x", "X-Forwarded-For", "203.0.113.1, "+from)
			if i < 2 && status != 202 {
				t.Fatalf("%s, message %d: %d %s", from, i, status, text)
			}
			if i == 2 && (status != 429 || !strings.Contains(text, `"scope":"ip","key":"`+from+`","limit":"fixed-window:2/8784h0m0s"`)) {
				t.Errorf("%s, the third: %d %s", from, status, text)
			}
			if policy := h.Get("RateLimit-Policy"); policy != `"tenant";q=2000;w=2, "ip";q=2;w=31622400, "ip-2";q=100;w=3600` {
				t.Errorf("policy %s", policy)
			}
		}
	}
}
