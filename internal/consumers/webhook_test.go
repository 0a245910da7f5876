package consumers

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/flowgate/flowgate/internal/bubble"
)

// webhook is the destination of a URL.
func webhook(t *testing.T, url string, change ...func(*Config)) *Webhook {
	t.Helper()
	cfg := testConfig()
	cfg.URL = url
	for _, c := range change {
		c(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), cfg, Deps{Logger: quiet(), Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*Webhook)
}

// receiver is an HTTP server that notes what it gets, before it answers.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []*http.Request
	bodies []string
}

func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got, r.bodies = append(r.got, req), append(r.bodies, string(body))
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// requests are those that have come.
func (r *receiver) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

func TestWebhookRequest(t *testing.T) {
	r := receive(t, nil)
	secret := aSecret(32, 'k')
	w := webhook(t, strings.Replace(r.URL, "http://", "http://user:p%40s%3As@", 1)+"/in/a%2Fb?x=1&x=2&y=%20", func(c *Config) { c.HTTPSecret = secret })
	m := aDelivery(7)
	m.ID = "acme/order.7 ü%"
	m.Attempt = 3
	m.Headers = map[string][]string{"Content-Type": {"application/json"}, "traceparent": {"00-1-2-3"}, "X-Many": {"a", "b"}, "X-Bytes": {"caf\xe9 ü"}}
	deliver(t, w, m, Done)

	req, body := r.requests()[0], r.bodies[0]
	if req.Method != "POST" || req.RequestURI != "/in/a%2Fb?x=1&x=2&y=%20" || body != "payload 7" || req.ContentLength != 9 {
		t.Errorf("%s %s, %d bytes: %q", req.Method, req.RequestURI, req.ContentLength, body)
	}
	if user, password, ok := req.BasicAuth(); !ok || user != "user" || password != "p@s:s" {
		t.Errorf("signed in as %q, %q, %v", user, password, ok)
	}
	h := req.Header
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify([]byte(body), h); err != nil {
		t.Errorf("the scheme's own library: %v", err)
	}
	for _, varies := range []string{"Webhook-Timestamp", "Webhook-Signature", "Authorization"} {
		h.Del(varies)
	}
	want := http.Header{
		"Content-Length": {"9"}, "User-Agent": {"flowgate/v1.2.3"},
		"Content-Type": {"application/json"}, "Traceparent": {"00-1-2-3"}, "X-Many": {"a", "b"}, "X-Bytes": {"caf\xe9 ü"},
		"Flowgate-Id": {"acme/order.7%20%C3%BC%25"}, "Idempotency-Key": {"acme/order.7%20%C3%BC%25"}, "Webhook-Id": {"acme/order%2E7%20%C3%BC%25"},
		"Flowgate-Tenant": {"acme"}, "Flowgate-Topic": {"orders.new"}, "Flowgate-Seq": {"7"}, "Flowgate-Attempt": {"3"},
		"Flowgate-Admitted-At": {"2026-11-12T13:14:15.161718Z"},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestWebhookWithoutPayloadOrHeaders(t *testing.T) {
	r := receive(t, nil)
	m := aDelivery(1)
	m.Payload = nil
	deliver(t, webhook(t, r.URL), m, Done)
	req := r.requests()[0]
	if req.ContentLength != 0 || r.bodies[0] != "" || req.RequestURI != "/" {
		t.Errorf("%s with %d bytes: %q", req.RequestURI, req.ContentLength, r.bodies[0])
	}
	for _, name := range []string{"Authorization", "Webhook-Id", "Webhook-Signature", "Accept-Encoding", "Content-Type"} {
		if v, ok := req.Header[name]; ok {
			t.Errorf("%s: %q", name, v)
		}
	}
}

// What a producer may not say in the gateway's name, in each spelling that some
// receiver takes for it, and what HTTP cannot carry.
func TestProducersHeadersOverHTTP(t *testing.T) {
	r := receive(t, nil)
	w := webhook(t, strings.Replace(r.URL, "http://", "http://gate:pass@", 1), func(c *Config) { c.HTTPSecret = aSecret(24, 'k') })
	m := aDelivery(1)
	m.Headers = map[string][]string{}
	for _, name := range []string{
		"Connection", "Content-Length", "Transfer-Encoding", "Host", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect", "Proxy-Authorization", "Proxy-Connection",
		"Authorization", "Cookie", "X-Forwarded-For", "Forwarded", "Via", "User-Agent", "Range", "If-None-Match", "Accept-Encoding", "X-HTTP-Method-Override",
		"Flowgate-Id", "Flowgate-Tenant", "Flowgate-Topic", "Flowgate-Seq", "Flowgate-Attempt", "Flowgate-Admitted-At",
		"webhook-id", "webhook-timestamp", "webhook-signature", "webhook-other", "Nats-Msg-Id", "Nats-Expected-Stream", "Idempotency-Key", "X-Idempotency-Key",
		"Svix-Id", "Svix-Timestamp", "Svix-Signature", "True-Client-IP", "CF-Connecting-IP", "CF-Access-Authenticated-User-Email", "X-Client-IP", "X-Real-IP", "X-Cluster-Client-IP",
		"X-Original-URL", "X-Original-Host", "X-Rewrite-URL", "X-Forwarded", "X-Envoy-External-Address", "Remote-User", "X-Remote-User", "X-Auth-Request-Email",
		"Client-Cert", "X-SSL-Client-Verify", "X-Goog-Authenticated-User-Email", "X-Amzn-Oidc-Identity", "X-MS-Client-Principal", "X-AppEngine-User-IP",
		"Date", "Origin", "Referer", "From", "Sec-Fetch-Site", "Proxy", "Max-Forwards", "Accept-Language", "If", "If-Match", "HTTP2-Settings", "Access-Control-Request-Method",
	} {
		for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_")} {
			m.Headers[spelling] = []string{"forged"}
		}
	}
	for _, name := range []string{"", "a b", "a:b", "X-\x00", "X\r\nForged", "Ünicode", ":path"} {
		m.Headers[name] = []string{"forged"}
	}
	m.Headers["X-Split"] = []string{"a\r\nX-Forged: forged", "b\x00", "\x7f", "kept\tas it is"}
	m.Headers["Flowgate-User"] = []string{"u1"}
	m.Headers["X-User-Id"], m.Headers["Content-Digest"], m.Headers["X-Request-Id"] = []string{"kept"}, []string{"kept"}, []string{"kept"}
	m.Headers["Content-Encoding"] = []string{"gzip"}
	deliver(t, w, m, Done)
	h := r.requests()[0].Header
	for name, values := range h {
		for _, v := range values {
			if strings.Contains(v, "forged") || strings.Contains(strings.ToLower(name), "forged") {
				t.Errorf("%s: %q", name, v)
			}
		}
	}
	if r.requests()[0].Host != strings.TrimPrefix(r.URL, "http://") {
		t.Errorf("host %s", r.requests()[0].Host)
	}
	for name, want := range map[string]string{
		"X-Split": "kept\tas it is", "Flowgate-User": "u1", "Content-Encoding": "gzip", "X-User-Id": "kept", "Content-Digest": "kept", "X-Request-Id": "kept", "Flowgate-Id": "acme/1", "Flowgate-Seq": "1",
	} {
		if got := h[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// What HTTP cannot carry is left out, which the log says, seldom.
func TestAHeaderThatHTTPCannotCarryIsTold(t *testing.T) {
	r := receive(t, nil)
	var log bubble.Log
	cfg := testConfig()
	cfg.URL = r.URL
	w, err := OpenWebhook(cfg, "", log.Logger(slog.LevelWarn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	for i := range 100 {
		m := aDelivery(i)
		m.Headers = map[string][]string{"X-Bell": {"a\ab", "fine"}}
		deliver(t, w, m, Done)
	}
	if got := r.requests()[99].Header["X-Bell"]; !slices.Equal(got, []string{"fine"}) {
		t.Errorf("X-Bell: %q", got)
	}
	if n := strings.Count(log.String(), "X-Bell"); n < 1 || n > 20 {
		t.Errorf("the log tells of 100 headers %d times:\n%s", n, log.String())
	}
}

// One that receivers would refuse is not sent.
func TestALongIDIsNoIdempotencyKey(t *testing.T) {
	r := receive(t, nil)
	m := aDelivery(1)
	m.ID = "acme/" + strings.Repeat("x", 251)
	deliver(t, webhook(t, r.URL), m, Done)
	h := r.requests()[0].Header
	if h.Get("Flowgate-Id") != m.ID || h.Get("Idempotency-Key") != "" {
		t.Errorf("%v", h)
	}
}

func TestWebhookVerdicts(t *testing.T) {
	var answer http.HandlerFunc
	r := receive(t, func(w http.ResponseWriter, req *http.Request) { answer(w, req) })
	w := webhook(t, r.URL)
	cases := []struct {
		status int
		header string // of Retry-After
		want   VerdictKind
		wait   time.Duration
	}{
		{200, "", Done, 0}, {201, "", Done, 0}, {202, "60", Done, 0}, {204, "", Done, 0}, {299, "", Done, 0},
		{300, "", Overload, 0}, {301, "", Overload, 0}, {302, "", Overload, 0}, {303, "", Overload, 0}, {304, "", Overload, 0}, {307, "7", Overload, 7 * time.Second}, {308, "", Overload, 0},
		{400, "", Reject, 0}, {401, "", Reject, 0}, {403, "", Reject, 0}, {404, "9", Reject, 0}, {405, "", Reject, 0}, {409, "", Reject, 0}, {410, "", Reject, 0}, {413, "", Reject, 0}, {422, "", Reject, 0}, {431, "", Reject, 0},
		{408, "", Retry, 0}, {425, "2", Retry, 2 * time.Second},
		{429, "", Overload, 0}, {429, "3", Overload, 3 * time.Second}, {503, "7200", Overload, time.Hour}, {503, "soon", Overload, 0},
		{500, "", Retry, 0}, {501, "", Retry, 0}, {502, "4", Retry, 4 * time.Second}, {504, "", Retry, 0}, {599, "", Retry, 0},
		{600, "", Overload, 0}, {999, "", Overload, 0},
	}
	for _, c := range cases {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			w.WriteHeader(c.status)
		}
		got := Judge(w.Deliver(t.Context(), deliveries(1))[0])
		if got.Kind != c.want || got.Wait != c.wait {
			t.Errorf("%d: %s after %s, want %s after %s: %v", c.status, got.Kind, got.Wait, c.want, c.wait, got.Err)
		}
	}
	if n := len(r.requests()); n != len(cases) {
		t.Errorf("%d requests for %d deliveries", n, len(cases))
	}
}

func TestWebhookURLs(t *testing.T) {
	for _, url := range []string{"http://h", "https://u:p%40ss@h:8443/a/b?c=d", "http://[::1]:80/", "http://localhost:8080/hook", "http://h:65535/"} {
		if err := ValidateURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"http:", "http://", "https:///path", "http://:80/", "http:hunter2@h", "http://u%3Av:hunter2@h/", "http://h:port/", "http://h:/", "http://h:0/", "http://u:hunter2@h:65536/", "https://h:99999/", "http://h:99999999999999999999/", "http://u:hunter2@h/%zz", "http://u:hunter2@h/#f", "http://u:hunter2@h/#", "http://u:hunter2@h h/", "http://u:hunter2@h\n/",
	} {
		err := ValidateURL(url)
		if err == nil {
			t.Errorf("%q was accepted", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
}

// Neither a password, nor a query, nor what a server echoes of them.
func TestWebhookErrorsShowNoSecret(t *testing.T) {
	var status int
	r := receive(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Location", "https://elsewhere.example/hunter2")
		w.WriteHeader(status)
		user, password, _ := req.BasicAuth()
		_, _ = io.WriteString(w, "no entry for "+user+"\r\n\twith "+password+", "+req.Header.Get("Authorization")+", "+req.RequestURI+"\x00"+strings.Repeat("é", 1000))
	})
	w := webhook(t, strings.Replace(r.URL, "http://", "http://gate:hunter2@", 1)+"/?token=hunter3")
	secrets := []string{"hunter", base64.StdEncoding.EncodeToString([]byte("gate:hunter2")), "token="}
	for _, status = range []int{400, 500, 302} {
		err := w.Deliver(t.Context(), deliveries(1))[0]
		wantError(t, err, "http: the answer is")
		for _, s := range secrets {
			if strings.Contains(err.Error(), s) {
				t.Errorf("%d: the error shows %q: %v", status, s, err)
			}
		}
		if strings.ContainsAny(err.Error(), "\r\n\x00") || len(err.Error()) > 300 {
			t.Errorf("%d: %d bytes: %q", status, len(err.Error()), err)
		}
		if status == 302 {
			wantError(t, err, "to elsewhere.example", "FLOWGATE_CONSUMER_URL")
		} else {
			wantError(t, err, "no entry for gate with ****")
		}
	}
	r.Close()
	w.transport.CloseIdleConnections()
	err := w.Deliver(t.Context(), deliveries(1))[0]
	wantError(t, err, "refused")
	for _, s := range secrets {
		if strings.Contains(err.Error(), s) {
			t.Errorf("the error shows %q: %v", s, err)
		}
	}
}

// In order, what stands behind a message that failed is not sent.
func TestWebhookBatchInOrder(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Flowgate-Seq") == "2" {
			w.WriteHeader(500)
		}
	})
	wantKinds(t, webhook(t, r.URL).Deliver(t.Context(), deliveries(4)), Done, Retry, Done, Done)
	w := webhook(t, r.URL, func(c *Config) { c.Order = OrderTenant })
	wantKinds(t, w.Deliver(t.Context(), deliveries(4)), Done, Retry, Hold, Hold)
	if n := len(r.requests()); n != 6 {
		t.Errorf("%d requests, want 4 and 2", n)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0}, {"0", "", 0}, {" 12 ", "", 12 * time.Second}, {"3600", "", time.Hour}, {"3601", "", time.Hour}, {"4294967296", "", time.Hour}, {"99999999999999999999999", "", time.Hour},
		{"-5", "", 0}, {"1.5", "", 0}, {"1e3", "", 0}, {"+5", "", 0}, {"never", "", 0}, {"٣", "", 0},
		{date(time.Minute), "", time.Minute}, {date(-time.Minute), "", 0}, {date(48 * time.Hour), "", time.Hour},
		// The server's clock is ten minutes ahead.
		{date(11 * time.Minute), date(10 * time.Minute), time.Minute}, {date(11 * time.Minute), "yesterday", 11 * time.Minute},
		{now.Add(time.Minute).Format(time.ANSIC), "", time.Minute}, {now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT"), "", time.Minute},
	} {
		h := http.Header{}
		if c.value != "" {
			h.Set("Retry-After", c.value)
		}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("Retry-After: %q, Date: %q: %s, want %s", c.value, c.date, got, c.want)
		}
	}
}

// The check of a configuration connects, and sends nothing.
func TestWebhookPing(t *testing.T) {
	r := receive(t, nil)
	w := webhook(t, r.URL)
	if err := w.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("it made %d requests", n)
	}
	r.Close()
	wantError(t, w.Ping(t.Context()), "http: connect", "refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Ping(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzVisible: what is made visible can be read back, and HTTP carries it unchanged.
func FuzzVisible(f *testing.F) {
	f.Add("acme/1")
	f.Add("a b%20\x00é.")
	f.Fuzz(func(t *testing.T, s string) {
		v := visible(s)
		back, err := url.PathUnescape(v)
		if err != nil || back != s {
			t.Errorf("%q became %q and back %q, %v", s, v, back, err)
		}
		if strings.TrimSpace(v) != v || !fieldValue(v) {
			t.Errorf("%q is no value", v)
		}
		if id := webhookID(v); strings.Contains(id, ".") {
			t.Errorf("%q has a dot", id)
		} else if back, err := url.PathUnescape(id); err != nil || back != s {
			t.Errorf("%q became %q and back %q, %v", s, id, back, err)
		}
	})
}
