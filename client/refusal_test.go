package client

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const nak = `{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60429,"description":"tenant acme over token-bucket:100/s; retry_after_ms=250"},` +
	`"stream":"FLOWGATE","seq":0,"reason":"rate_limited","scope":"tenant","key":"acme","limit":"token-bucket:100/s,burst=200","retry_after_ms":250}`

func TestRead(t *testing.T) {
	ack, err := read([]byte(`{"stream":"FLOWGATE","seq":17,"duplicate":true}`))
	if err != nil || ack.Stream != "FLOWGATE" || ack.Sequence != 17 || !ack.Duplicate {
		t.Errorf("%+v, %v", ack, err)
	}
	_, err = read([]byte(nak))
	want := Refused{ErrRateLimited, "tenant", "acme", "token-bucket:100/s,burst=200", 250 * time.Millisecond, 429, 60429,
		"tenant acme over token-bucket:100/s; retry_after_ms=250"}
	got, ok := errors.AsType[*Refused](fmt.Errorf("x: %w", err))
	if !ok || *got != want {
		t.Errorf("%+v", err)
	}
	if !errors.Is(err, ErrRateLimited) || errors.Is(err, ErrBacklog) {
		t.Error("its reason is not its reason")
	}
	if e, ok := errors.AsType[*jetstream.APIError](err); !ok || e.Code != 429 || e.ErrorCode != 60429 || e.Description != want.Description {
		t.Errorf("as jetstream's error: %+v", e)
	}
}

// What another try can help, and what not.
func TestFinal(t *testing.T) {
	for _, c := range []struct {
		reason string
		code   int
		hint   string
		final  bool
	}{
		{"rate_limited", 429, `,"retry_after_ms":250`, false},
		{"rate_limited", 429, ``, true}, // costs more than the limit ever has
		{"tenant_backlog", 429, `,"retry_after_ms":1`, false},
		{"backlog", 503, `,"retry_after_ms":60000`, false},
		{"deadline", 503, ``, true},
		{"draining", 503, `,"retry_after_ms":0`, false},
		{"overloaded", 503, `,"retry_after_ms":100`, false},
		{"overloaded", 503, ``, false},
		{"invalid", 400, ``, true},
		{"forbidden", 403, ``, true},
		{"too_large", 413, ``, true},
		{"of the future", 503, ``, true},
		{"of the future", 503, `,"retry_after_ms":10`, false},
		{"", 503, ``, false}, // the broker's own
		{"", 400, ``, true},
		{"backlog", 503, `,"retry_after_ms":-1`, true},
	} {
		_, err := read(fmt.Appendf(nil, `{"error":{"code":%d,"err_code":60000,"description":"d"},"stream":"S","seq":0,"reason":%q%s}`, c.code, c.reason, c.hint))
		r, ok := errors.AsType[*Refused](err)
		if !ok || r.final() != c.final {
			t.Errorf("%+v: %+v", c, err)
		}
	}
}

// Whatever answers, it is an acknowledgement with a stream, a refusal with bounds, or
// an error.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{nak, ``, `{}`, `null`, `[]`, `{"error":null}`, `{"error":{}}`, `{"stream":"S","seq":1}`, `{"error":{"code":503,"err_code":10077}}`,
		`{"error":{"err_code":99999},"retry_after_ms":9223372036854775807}`, `{"error":{"code":-1},"retry_after_ms":-5}`, `{"stream":"S","error":{"code":400}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ack, err := read(body)
		if (ack == nil) == (err == nil) {
			t.Fatalf("%v and %v", ack, err)
		}
		if ack != nil && ack.Stream == "" {
			t.Fatalf("acknowledged by nobody: %s", body)
		}
		r, ok := errors.AsType[*Refused](err)
		if !ok {
			return
		}
		if r.RetryAfter < NoRetry || r.Reason == "" {
			t.Fatalf("%+v", r)
		}
		p := &publication{}
		for range 100 {
			if wait, again := p.failed(r); wait < 0 || again == r.final() {
				t.Fatalf("%+v: wait %s, again %t", r, wait, again)
			}
		}
		_ = r.Error()
	})
}

func TestInterval(t *testing.T) {
	for limit, want := range map[string]time.Duration{
		"token-bucket:100/s,burst=200":   10 * time.Millisecond,
		"gcra:1/m":                       time.Minute,
		"sliding-window:100/250ms":       2500 * time.Microsecond,
		"fixed-window:1/24h":             24 * time.Hour,
		"leaky-bucket:2/d":               12 * time.Hour,
		"token-bucket:0.5/s":             2 * time.Second,
		"token-bucket:0/s":               0,
		"token-bucket:-1/s":              0,
		"token-bucket:NaN/s":             0,
		"token-bucket:1/x":               0,
		"token-bucket:1/-1s":             0,
		"token-bucket":                   0,
		"":                               0,
		"token-bucket:9999999999999/1ns": 1,
	} {
		if got := interval(limit); got != want {
			t.Errorf("%q: %s, want %s", limit, got, want)
		}
	}
	if d := interval("token-bucket:1e-300/d"); d <= 0 {
		t.Errorf("an endless interval: %s", d)
	}
}
