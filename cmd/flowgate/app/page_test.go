package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app/page/browsertest"
	"github.com/flowgate/flowgate/internal/consumers"
)

// pageGateway is one with a small backlog, in real time: a browser is not in a bubble.
func pageGateway(t *testing.T, environ ...string) (r *running, address string) {
	t.Helper()
	r = start(t, append([]string{"FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_BACKPRESSURE_HIGH=300", "FLOWGATE_SHAPER_RATE=100/s"}, environ...)...)
	_, admin := r.Addr()
	return r, admin
}

// flood publishes for tenants at a rate in all, whatever is answered, until it is stopped.
func flood(t *testing.T, js jetstream.JetStream, rate int, tenants ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for range max(1, rate/50) {
				_, _ = js.PublishAsync("ingress."+tenants[n%len(tenants)]+".orders", fmt.Appendf(nil, "%d", n)) // a refusal is what is looked for
				n++
			}
		}
	}()
	return func() { cancel(); <-done }
}

// An operator's minute: a surge, its drain, and every change that the page can make.
func TestThePageUnderASurge(t *testing.T) {
	b := browsertest.Start(t)
	// Pressure ends at LOW though the flood goes on: the marks lie 3 s of draining apart,
	// so that a page with a sample a second shows it.
	r, admin := pageGateway(t, "FLOWGATE_BACKPRESSURE_LOW=150", "FLOWGATE_SHAPER_RATE=50/s")
	r.sink.answers(func(_ context.Context, d consumers.Delivery) error {
		if d.Topic == "bad" {
			return consumers.Permanent(errors.New("no such column"))
		}
		return nil
	})
	_, js := r.client()
	tab := b.Open(t, "http://"+admin+"/", browsertest.View{Width: 1440, Height: 2400})
	tab.Says("#word", "Normal")
	tab.Says("#outlook", "Empty")

	stop := flood(t, js, 1000, "acme", "globex")
	tab.Says("#word", "Pressured since")
	tab.Says("#word", "by depth")
	tab.Says("#depth-of", "of 300 messages at HIGH")
	tab.Says("#chart-depth .legend", "HIGH\n300")
	tab.Says("#chart-refusals .legend", "backlog")
	tab.Says("#chart-refused-tenants .legend", "acme")
	tab.Says("#chart-refused-tenants .legend", "others")
	tab.Says("#transition-table", "▲ pressured")
	tab.Says(`#tenants tr[data-key="acme"]`, "backlog")
	tab.Click(`#tenants tr[data-key="acme"] button`)
	tab.Says("#look", "Why was acme refused?")
	tab.Says("#look tbody", "backlog")
	tab.Press("\x1b")
	stop()
	tab.Says("#outlook-title", "Time to drain")
	tab.Says("#word", "Normal")
	tab.Says("#transition-table", "▽ normal")
	tab.Says("#outlook", "Empty")

	tab.Click("#pause")
	tab.Type("#field-reason", "index rebuild")
	tab.Type("#field-author", "ann")
	tab.Click("#change .main")
	tab.Says("#word", "Paused until resumed by ann")
	tab.Says("#detail", "Reason: index rebuild")
	if s := r.settled(); !s.Paused || s.Pause.Author != "ann" || s.Pause.Reason != "index rebuild" {
		t.Errorf("%+v", s.Pause)
	}
	tab.Click("#pause")
	tab.Says("#change", "Resume deliveries")
	tab.Click("#change .main")
	tab.Says("#word", "Normal")
	if r.settled().Paused {
		t.Error("still paused")
	}

	tab.Click("#limit-set")
	tab.Type("#field-key", "acme")
	tab.Type("#field-limit", "token-bucket:1/x")
	tab.Click("#change .main")
	tab.Says("#change .error", "Limit:") // what is wrong, in the gateway's words
	tab.Type("#field-limit", "token-bucket:1/h")
	tab.Type("#field-reason", "ticket 4711")
	tab.Click("#change .main")
	tab.Says(`#limits tr[data-key="live/tenant/acme"]`, "ticket 4711")
	_, err := js.Publish(t.Context(), "ingress.acme.orders", nil)
	if _, err2 := js.Publish(t.Context(), "ingress.acme.orders", nil); err == nil && err2 == nil {
		t.Error("the limit does not hold")
	}
	tab.Click(`#limits tr[data-key="live/tenant/acme"] .danger`)
	tab.Click("#change .main")
	tab.Until(`!document.querySelector('#limits tr[data-key="live/tenant/acme"]')`)

	if _, err := js.Publish(t.Context(), "ingress.acme.bad", []byte("the payload")); err != nil {
		t.Fatal(err)
	}
	tab.Says("#dead-table", "no such column")
	tab.Click("#dead-table tbody button")
	tab.Says("#look pre", "the payload")
	tab.Press("\x1b")
	r.sink.answers(nil)
	tab.Click("#dead-table tbody button:nth-child(2)")
	tab.Click("#change .main")
	tab.Says("#dead-letters .empty", "No dead letters.")
	r.empty()
	if got := r.sink.log(); got[len(got)-1].Topic != "bad" {
		t.Errorf("last delivered is %+v", got[len(got)-1])
	}
	tab.Clean(admin, "status of 400")
}

// A page of another origin, in the same browser on the same machine, changes nothing,
// reads nothing and shows nothing of the gateway, which asks for no token here.
func TestAPageOfAnotherOriginCannot(t *testing.T) {
	b := browsertest.Start(t)
	r, admin := pageGateway(t)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><form method="post" enctype="text/plain" target="sink" action="http://%s/api/v1/pause"><input name='{"reason":"' value='"}'></form>
			<iframe name="sink"></iframe><iframe id="framed" src="http://%s/"></iframe>`, admin, admin)
	}))
	defer evil.Close()
	tab := b.Open(t, evil.URL, browsertest.View{})
	tried := browsertest.Eval[string](tab, fmt.Sprintf(`(async () => {
		const at = "http://%s/api/v1/";
		const tried = [];
		const attempt = async (what, path, init) => { try { const res = await fetch(at + path, init); tried.push(what + ": " + res.type); } catch { tried.push(what + ": refused"); } };
		await attempt("simple", "pause", {method: "POST", mode: "no-cors", body: "{}"});
		await attempt("with JSON", "pause", {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"});
		await attempt("with a token", "pause", {method: "POST", headers: {Authorization: "Bearer x"}, body: "{}"});
		await attempt("limit", "limits/tenant/acme", {method: "PUT", body: '{"limit":"token-bucket:1/s"}'});
		await attempt("by GET", "pause", {mode: "no-cors"});
		await attempt("read", "status", {});
		document.forms[0].submit();
		await new Promise((done) => document.querySelector("[name=sink]").addEventListener("load", done));
		return tried.join("\n");
	})()`, admin))
	// An opaque answer is one that the page cannot see: the gateway's refusal.
	want := "simple: opaque\nwith JSON: refused\nwith a token: refused\nlimit: refused\nby GET: opaque\nread: refused"
	if tried != want {
		t.Errorf("tried\n%s\nwant\n%s", tried, want)
	}
	if !strings.Contains(strings.Join(tab.Complaints(), "\n"), "frame") {
		t.Errorf("the page was framed: %q", tab.Complaints())
	}
	if s := r.settled(); s.Paused {
		t.Errorf("paused: %+v", s.Pause)
	}
	for _, l := range asked[LimitList](r, "GET", "/api/v1/limits", "").Limits {
		if l.Source == FromLive {
			t.Errorf("a limit was set: %+v", l)
		}
	}
}

// Behind a proxy, below a prefix, with a token, on a phone in the dark.
func TestThePageBehindAProxy(t *testing.T) {
	b := browsertest.Start(t)
	r, admin := pageGateway(t, "FLOWGATE_ADMIN_TOKEN=s3cret")
	back := httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: "http", Host: admin})
		p.SetXForwarded()
		p.Out.Host = p.In.Host
	}}
	proxy := httptest.NewServer(http.StripPrefix("/ops/gate", &back))
	defer proxy.Close()
	defer proxy.CloseClientConnections() // the stream does not end by itself
	tab := b.Open(t, proxy.URL+"/ops/gate/", browsertest.View{Width: 390, Height: 844, Phone: true, Dark: true})
	tab.Says("#word", "Normal")
	tab.Says("#chart-depth .legend", "HIGH\n300")
	tab.Click("#pause")
	tab.Click("#change .main")
	tab.Says("#change .error", "This gateway asks for its admin token.")
	if r.settled().Paused {
		t.Error("paused without the token")
	}
	tab.Type("#field-token", "s3cret")
	tab.Click("#change .main")
	tab.Says("#word", "Paused until resumed")
	if width := browsertest.Eval[int](tab, "document.documentElement.scrollWidth"); width > 390 {
		t.Errorf("the page is %d px wide", width)
	}
	for _, q := range tab.Requests() {
		if !strings.Contains(q, " "+proxy.URL+"/ops/gate/") {
			t.Errorf("the page left its prefix: %s", q)
		}
	}
	tab.Clean(proxy.Listener.Addr().String(), "status of 401")
}
