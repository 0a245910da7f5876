package ingress

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestModeText(t *testing.T) {
	for _, m := range []Mode{Enforce, Shadow, Open} {
		text, err := m.MarshalText()
		var back Mode
		if e := back.UnmarshalText(text); err != nil || e != nil || back != m {
			t.Errorf("%v is read as %v: %v, %v", m, back, err, e)
		}
	}
	for _, s := range []string{"", "Enforce", "on", "Mode(7)"} {
		var m Mode
		if err := m.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q is %v", s, m)
		}
	}
	if Mode(7).String() != "Mode(7)" {
		t.Error(Mode(7))
	}
}

// What each mode makes of each reason, over NATS and over HTTP.
func TestModes(t *testing.T) {
	limit := func(w *web) {
		w.limits.refuse(&Excess{Scope: "tenant", Limit: "x", Wait: time.Second})
	}
	for _, c := range []struct {
		name     string
		spoil    func(*web)
		tenant   string
		headers  []string
		reason   string
		always   bool // it holds in every mode
		err, sum int
	}{
		{name: "limit", spoil: limit, reason: "rate_limited", err: 60429},
		{name: "backlog", spoil: func(w *web) { w.space.full.Store(true) }, reason: "backlog", err: 60503},
		{name: "tenant's backlog", spoil: func(w *web) { w.space.own.Store(true) }, reason: "tenant_backlog", err: 60430},
		{name: "deadline", spoil: func(w *web) { w.space.stay.Store(int64(time.Hour)) }, headers: []string{"Flowgate-Deadline", "1s"}, reason: "deadline", err: 60408},
		{name: "MAX", spoil: func(w *web) { w.space.max.Store(true) }, reason: "backlog", always: true, err: 60503},
		{name: "MAX and a limit", spoil: func(w *web) { limit(w); w.space.max.Store(true) }, reason: "backlog", always: true, err: 60503},
		{name: "invalid", spoil: func(*web) {}, headers: []string{"Flowgate-Cost", "0"}, reason: "invalid", always: true, err: 60400},
		{name: "forbidden", spoil: func(*web) {}, tenant: "evil", reason: "forbidden", always: true, err: 60403},
		{name: "draining", spoil: func(w *web) { w.door.Drain() }, reason: "draining", always: true, err: 60504},
		{name: "nothing", spoil: func(*web) {}},
	} {
		for _, mode := range []Mode{Enforce, Shadow, Open} {
			t.Run(fmt.Sprint(c.name, ", ", mode), func(t *testing.T) {
				w := newWeb(t, func(cfg *Config, d *Deps, _ *jetstream.StreamConfig) {
					d.Mode, cfg.Tenants = mode, []string{"acme"}
				}).run()
				c.spoil(w)
				tenant := c.tenant
				if tenant == "" {
					tenant = "acme"
				}
				reason, errCode := c.reason, c.err
				if c.name == "MAX and a limit" && mode == Enforce {
					reason, errCode = "rate_limited", 60429 // the limits come first
				}
				refused := reason != "" && (c.always || mode == Enforce)
				r := w.post(tenant+"/t", "", c.headers...)
				if refused && (r.Reason != reason || r.ErrCode != errCode) || !refused && r.status != 202 {
					t.Errorf("over HTTP: %d %s", r.status, r.body)
				}
				h := nats.Header{}
				for i := 0; i < len(c.headers); i += 2 {
					h[c.headers[i]] = []string{c.headers[i+1]}
				}
				_, err := w.producer().PublishMsg(t.Context(), &nats.Msg{Subject: "ingress." + tenant + ".t", Header: h, Data: []byte("x")})
				if refused {
					code, _ := Reason(reason).code()
					wantNAK(t, err, code, errCode)
				} else if err != nil {
					t.Errorf("over NATS: %v", err)
				}
				w.rest()
				shadow := mode == Shadow && reason != "" && !refused
				for _, transport := range []string{"nats", "http"} {
					const name = "flowgate_ingress_messages_total"
					for what, want := range map[string]struct {
						n      bool
						labels []string
					}{
						"admitted":          {!refused, []string{"result", "admitted", "enforced", "true"}},
						"refused":           {refused, []string{"result", "refused", "enforced", "true"}},
						"refused in shadow": {shadow, []string{"result", "refused", "enforced", "false", "reason", reason}},
					} {
						n := w.metric(name, append([]string{"transport", transport}, want.labels...)...)
						if (n == 1) != want.n || n > 1 {
							t.Errorf("%s: %v %s, want %v", transport, n, what, want.n)
						}
					}
				}
				if got := w.door.RefusedRate(); (got > 0) != refused {
					t.Errorf("the refused rate is %v", got)
				}
				// What would have been refused takes nothing, nor is anything taken if
				// nobody asked.
				want := 0
				if mode != Open && reason == "" {
					want = 2
				}
				if got := len(w.limits.costs()); got != want {
					t.Errorf("%d took from the limits, want %d", got, want)
				}
				asked := w.limits.seen() != (Identity{})
				if mode == Open && asked {
					t.Error("the limits were asked")
				}
				if mode == Open && r.header.Get("RateLimit") != "" {
					t.Error("limits are told that do not hold")
				}
			})
		}
	}
}
