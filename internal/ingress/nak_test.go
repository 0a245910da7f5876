package ingress

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
)

// One NAK for each reason, to the byte: clients, dashboards and people's scripts read it.
func TestNAK(t *testing.T) {
	var again nakMessage // none keeps anything of the one before
	for _, c := range []struct {
		refusal Refusal
		body    string
		headers nats.Header
	}{
		{
			Refusal{Reason: RateLimited, Text: "tenant acme over token-bucket:100/s,burst=200", Wait: 250 * time.Millisecond, Scope: "tenant", Key: "acme", Limit: "token-bucket:100/s,burst=200"},
			`{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60429,"description":"tenant acme over token-bucket:100/s,burst=200; retry_after_ms=250"},"stream":"FLOWGATE","seq":0,"reason":"rate_limited","scope":"tenant","key":"acme","limit":"token-bucket:100/s,burst=200","retry_after_ms":250}`,
			nats.Header{"Flowgate-Reason": {"rate_limited"}, "Flowgate-Scope": {"tenant"}, "Flowgate-Retry-After-Ms": {"250"}, "Retry-After": {"1"}},
		},
		{
			Refusal{Reason: RateLimited, Text: "tenant acme can never pass token-bucket:1/s", Wait: NoRetry, Scope: "tenant", Key: "acme", Limit: "token-bucket:1/s"},
			`{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60429,"description":"tenant acme can never pass token-bucket:1/s"},"stream":"FLOWGATE","seq":0,"reason":"rate_limited","scope":"tenant","key":"acme","limit":"token-bucket:1/s"}`,
			nats.Header{"Flowgate-Reason": {"rate_limited"}, "Flowgate-Scope": {"tenant"}},
		},
		{
			Refusal{Reason: Backlogged, Text: "the backlog is full", Wait: 2*time.Second + 1},
			`{"type":"io.flowgate.v1.nak","error":{"code":503,"err_code":60503,"description":"the backlog is full; retry_after_ms=2001"},"stream":"FLOWGATE","seq":0,"reason":"backlog","retry_after_ms":2001}`,
			nats.Header{"Flowgate-Reason": {"backlog"}, "Flowgate-Retry-After-Ms": {"2001"}, "Retry-After": {"3"}},
		},
		{
			Refusal{Reason: TenantBacklogged, Text: "tenant acme has too many messages in the backlog", Wait: 50 * time.Millisecond},
			`{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60430,"description":"tenant acme has too many messages in the backlog; retry_after_ms=50"},"stream":"FLOWGATE","seq":0,"reason":"tenant_backlog","retry_after_ms":50}`,
			nats.Header{"Flowgate-Reason": {"tenant_backlog"}, "Flowgate-Retry-After-Ms": {"50"}, "Retry-After": {"1"}},
		},
		{
			Refusal{Reason: PastDue, Text: "late", Wait: NoRetry},
			`{"type":"io.flowgate.v1.nak","error":{"code":503,"err_code":60408,"description":"late"},"stream":"FLOWGATE","seq":0,"reason":"deadline"}`,
			nats.Header{"Flowgate-Reason": {"deadline"}},
		},
		{
			Refusal{Reason: Draining, Text: "stopping"},
			`{"type":"io.flowgate.v1.nak","error":{"code":503,"err_code":60504,"description":"stopping; retry_after_ms=0"},"stream":"FLOWGATE","seq":0,"reason":"draining","retry_after_ms":0}`,
			nats.Header{"Flowgate-Reason": {"draining"}, "Flowgate-Retry-After-Ms": {"0"}, "Retry-After": {"1"}},
		},
		{
			Refusal{Reason: Overloaded, Text: "busy", Wait: time.Second},
			`{"type":"io.flowgate.v1.nak","error":{"code":503,"err_code":60505,"description":"busy; retry_after_ms=1000"},"stream":"FLOWGATE","seq":0,"reason":"overloaded","retry_after_ms":1000}`,
			nats.Header{"Flowgate-Reason": {"overloaded"}, "Flowgate-Retry-After-Ms": {"1000"}, "Retry-After": {"1"}},
		},
		{
			*invalid("header %q", "a\"\\\x01é\xff"),
			`{"type":"io.flowgate.v1.nak","error":{"code":400,"err_code":60400,"description":"header \"a\\\"\\\\\\x01é\\xff\""},"stream":"FLOWGATE","seq":0,"reason":"invalid"}`,
			nats.Header{"Flowgate-Reason": {"invalid"}},
		},
		{
			Refusal{Reason: RateLimited, Text: limitText(Excess{Scope: "gateway", Limit: "gcra:9/s", Wait: time.Second}), Wait: time.Second, Scope: "gateway", Limit: "gcra:9/s"},
			`{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60429,"description":"gateway over gcra:9/s; retry_after_ms=1000"},"stream":"FLOWGATE","seq":0,"reason":"rate_limited","scope":"gateway","limit":"gcra:9/s","retry_after_ms":1000}`,
			nats.Header{"Flowgate-Reason": {"rate_limited"}, "Flowgate-Scope": {"gateway"}, "Flowgate-Retry-After-Ms": {"1000"}, "Retry-After": {"1"}},
		},
		{
			Refusal{Reason: Forbidden, Text: "no", Wait: NoRetry},
			`{"type":"io.flowgate.v1.nak","error":{"code":403,"err_code":60403,"description":"no"},"stream":"FLOWGATE","seq":0,"reason":"forbidden"}`,
			nats.Header{"Flowgate-Reason": {"forbidden"}},
		},
		{
			*tooLarge(70000, 65536),
			`{"type":"io.flowgate.v1.nak","error":{"code":413,"err_code":60413,"description":"headers and payload are 70000 bytes, the limit is 65536"},"stream":"FLOWGATE","seq":0,"reason":"too_large"}`,
			nats.Header{"Flowgate-Reason": {"too_large"}},
		},
	} {
		m := again.of(&c.refusal, "_INBOX.x", "FLOWGATE")
		if m.Subject != "_INBOX.x" || m.Reply != "" {
			t.Errorf("%s goes to %q with reply %q", c.refusal.Reason, m.Subject, m.Reply)
		}
		if string(m.Data) != c.body {
			t.Errorf("%s:\n got %s\nwant %s", c.refusal.Reason, m.Data, c.body)
		}
		if len(m.Header) != len(c.headers) {
			t.Errorf("%s: headers %v, want %v", c.refusal.Reason, m.Header, c.headers)
		}
		for k, v := range c.headers {
			if m.Header.Get(k) != v[0] {
				t.Errorf("%s: %s is %q, want %q", c.refusal.Reason, k, m.Header.Get(k), v[0])
			}
		}
	}
}

// nak is the NAK as clients read it; a field that is not known is an error.
type nak struct {
	Type  string `json:"type"`
	Error struct {
		Code        int    `json:"code"`
		ErrCode     uint16 `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Stream       string `json:"stream"`
	Seq          uint64 `json:"seq"`
	Reason       Reason `json:"reason"`
	Scope        string `json:"scope"`
	Key          string `json:"key"`
	Limit        string `json:"limit"`
	RetryAfterMs *int64 `json:"retry_after_ms"`
}

// Whatever a refusal says, its NAK is JSON that keeps the text, the hint is never
// shorter than the wait, and the headers agree with it.
func FuzzNAK(f *testing.F) {
	f.Add("rate_limited", "tenant a over x", int64(1), "tenant", "acme", "x", "FLOWGATE")
	f.Add("", "\x00\x1f\x7f\"\\\u2028</script>", int64(-1), "s", "\xff\xfe", "\U0010ffff", "")
	f.Add("backlog", "x", int64(math.MaxInt64), "", "k", "l", "S")
	f.Add("draining", "x", int64(0), "", "", "", "S")
	f.Fuzz(func(t *testing.T, reason, text string, wait int64, scope, key, limit, stream string) {
		if wait < 0 {
			wait = int64(NoRetry)
		}
		r := Refusal{Reason: Reason(reason), Text: text, Wait: time.Duration(wait), Scope: scope, Key: key, Limit: limit}
		m := new(nakMessage).of(&r, "r", stream)
		if !utf8.Valid(m.Data) || strings.ContainsFunc(string(m.Data), func(c rune) bool { return c < ' ' || c == 0x7f }) {
			t.Errorf("control bytes or no UTF-8 in %q", m.Data)
		}
		var got nak
		d := json.NewDecoder(strings.NewReader(string(m.Data)))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || d.More() {
			t.Fatalf("%v: %s", err, m.Data)
		}
		clean := func(s string) string { return string([]rune(s)) }
		if got.Stream != clean(stream) || got.Reason != Reason(clean(reason)) || got.Scope != clean(scope) {
			t.Errorf("%+v", got)
		}
		if scope != "" && (got.Key != clean(key) || got.Limit != clean(limit)) {
			t.Errorf("%+v", got)
		}
		h := m.Header
		if wait < 0 {
			if got.RetryAfterMs != nil || got.Error.Description != clean(text) || h.Get("Retry-After")+h.Get("Flowgate-Retry-After-Ms") != "" {
				t.Errorf("a hint where waiting cannot help: %+v %v", got, h)
			}
			return
		}
		ms := *got.RetryAfterMs
		if short := wait/1e6 - ms; short > 0 || wait%1e6 != 0 && short == 0 && wait < math.MaxInt64-1e6 || -short > 1 {
			t.Errorf("a wait of %d ns is told as %d ms", wait, ms)
		}
		if got.Error.Description != clean(text)+"; retry_after_ms="+strconv.FormatInt(ms, 10) {
			t.Errorf("description %q", got.Error.Description)
		}
		seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if err != nil || seconds < 1 || seconds < ms/1000 || seconds > max(1, ms/1000+1) || ms%1000 != 0 && seconds*1000 < ms {
			t.Errorf("%d ms are told as %q s", ms, h.Get("Retry-After"))
		}
		if h.Get("Flowgate-Retry-After-Ms") != strconv.FormatInt(ms, 10) || h.Get("Status") != "" {
			t.Errorf("headers %v", h)
		}
	})
}
