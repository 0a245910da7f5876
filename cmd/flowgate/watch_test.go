package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/history"
	"github.com/flowgate/flowgate/internal/shaper"
)

func TestVerdict(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	since := now.Add(-192 * time.Second)
	leader := func(change func(*app.Status)) app.Status {
		s := app.Status{Level: "normal", Breaker: "closed", SampledAt: now, Replica: app.ReplicaStatus{Leader: true}}
		change(&s)
		return s
	}
	for _, c := range []struct {
		status app.Status
		says   string
		how    severity
	}{
		{leader(func(*app.Status) {}), "normal", calm},
		{app.Status{Level: "normal", Breaker: "closed", Replica: app.ReplicaStatus{Active: "gate-1 since 10:00"}}, "standing by: active is gate-1 since 10:00", notable},
		{app.Status{Level: "normal", Breaker: "closed"}, "not active: it is starting", severe},
		{app.Status{Level: "normal", Breaker: "closed", SampledAt: now.Add(-9 * time.Second), Replica: app.ReplicaStatus{Lost: true}},
			"NATS DOES NOT ANSWER: the lease ran out, nothing is admitted or delivered; what is below was so 9s ago", severe},
		{leader(func(s *app.Status) {
			s.Level, s.PressuredSince, s.Signals, s.HintSeconds = "pressured", &since, []string{"depth", "age"}, 2.34
		}), "PRESSURED for 3m12s by depth, age; who comes now is told to wait 2.3s", severe},
		{app.Status{Level: "normal", Breaker: "closed", Replica: app.ReplicaStatus{Active: "gate-1", Lost: true}}, "NATS DOES NOT ANSWER, standing by: active was gate-1", severe},
		{leader(func(s *app.Status) { s.HintSeconds = 40.8 }), "normal, and producers stand in line: who comes now is told to wait 41s", notable},
		{leader(func(s *app.Status) { s.Paused = true }), "PAUSED", notable},
		{leader(func(s *app.Status) {
			s.Paused, s.Pause = true, &shaper.Pause{Since: since, Author: "ann", Until: now.Add(time.Hour), Reason: "index\x1b[2J"}
			s.Breaker, s.Stale, s.SampledAt = "half_open", true, now.Add(-12*time.Second)
		}), `STALE: the backlog's stream was not read for 12s · BREAKER HALF OPEN: the consumer cannot take work · PAUSED for 3m12s by ann until 2026-03-01T13:00:00Z: "index\x1b[2J"`, severe},
	} {
		if says, how := verdict(c.status, now); says != c.says || how != c.how {
			t.Errorf("%q (%d), want %q (%d)", says, how, c.says, c.how)
		}
	}
}

func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0s", 0: "0s", 1234567: "1.23ms", 12345678: "12ms", 1234 * time.Millisecond: "1.2s", 59*time.Second + 600*time.Millisecond: "1m0s",
		83 * time.Second: "1m23s", 25 * time.Hour: "25h0m", 50 * time.Hour: "2d2h", 1 << 62: "over 100d",
	} {
		if got := rough(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// published publishes to a gateway; who is refused is counted.
func published(t *testing.T, g gate, subject string, n int, opts ...jetstream.PublishOpt) (refused int) {
	t.Helper()
	nc, err := nats.Connect(g.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := js.Publish(t.Context(), subject, nil, opts...); err != nil {
			refused++
		}
	}
	return refused
}

func TestStatusAndWhyFromTheCommandLine(t *testing.T) {
	g := serve(t, "FLOWGATE_SHAPER_RATE=1/h", "FLOWGATE_BACKPRESSURE_HIGH=10", "FLOWGATE_LIMIT_TENANT_OVERRIDES=globex=token-bucket:1/h")
	environ := []string{"FLOWGATE_ADMIN_LISTEN=" + g.admin}
	ask := func(args ...string) string {
		t.Helper()
		code, out, errs := asked(t, environ, "", args...)
		if code != 0 || errs != "" {
			t.Fatalf("%q: exit %d, %s", args, code, errs)
		}
		return out
	}
	matches := func(what, text, pattern string) {
		t.Helper()
		if !regexp.MustCompile(`(?m)` + pattern).MatchString(text) {
			t.Errorf("%s: no %q in\n%s", what, pattern, text)
		}
	}
	matches("quiet", ask("status"), `\Anormal\ngateway +flowgate \S+, mode enforce, replica \S+\ndepth +0: 0 waiting, 0 in flight of 4, 0 for a retry\nwatermarks +low 8, high 10, max 20\noldest +0s\noutlook +empty\n`)
	if out := ask("why", "acme"); out != "nothing of acme was refused, for as long as the gateway remembers\n" {
		t.Errorf("%q", out)
	}
	if out := ask("why", "--all"); out != "nothing was refused since the gateway started\n" {
		t.Errorf("%q", out)
	}
	if n := published(t, g, "ingress.globex.orders", 3, jetstream.WithMsgID("g")); n != 2 {
		t.Fatalf("%d refused", n)
	}
	if n := published(t, g, "ingress.acme.orders", 12); n != 3 {
		t.Fatalf("%d refused", n)
	}
	status := ask("status")
	matches("pressured", status, `\APRESSURED for \S+ by depth; who comes now is told to wait `)
	matches("pressured", status, `^depth +10: 10 waiting`)
	matches("pressured", status, `^rate +0\.000278/s of 0\.000278/s \(configured\)$`)
	matches("why", ask("why", "globex"), `\AAT +REASON +RULE +DEPTH +RETRY AFTER +ID +OVER\n\d{4}-\d\d-\d\dT\S+Z +rate_limited +tenant token-bucket:1/h +1 +(59m59s|1h0m) +g +nats\n.*rate_limited.*\n\nrate_limited: a limit is used up`)
	matches("why", ask("why", "acme", "--limit=1"), `\AAT .*\n\S+ +backlog +backpressure high 10 +10 +\S+ +- +nats\n\nbacklog: the backlog is over`)
	matches("why", ask("why", "--all"), `\ATENANT +AT .*\nacme .*\nacme .*\nacme .*\nglobex .*\nglobex `)
	var s app.Status
	if err := json.Unmarshal([]byte(ask("status", "--json")), &s); err != nil || s.Depth.Total != 10 || s.Level != "pressured" || s.PressuredSince == nil {
		t.Errorf("%+v, %v", s, err)
	}
	var list app.RefusalList
	if err := json.Unmarshal([]byte(ask("why", "globex", "--json")), &list); err != nil || len(list.Refusals) != 2 || list.Refusals[0].ID != "g" {
		t.Errorf("%+v, %v", list, err)
	}
	matches("env", ask("status", "--addr", "http://"+g.admin), `\APRESSURED`)
}

// A standby answers too, and says that it is one.
func TestStatusOfAStandby(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"flowgate","version":"v1","mode":"enforce","level":"normal","signals":[],"breaker":"closed","replica":{"id":"gate-2","leader":false,"active":"gate-1"}}`)
	}))
	defer server.Close()
	code, out, errs := asked(t, nil, "", "status", "--addr", server.URL)
	if want := "standing by: active is gate-1\ngateway  flowgate v1, mode enforce, replica gate-2\n"; code != 0 || out != want || errs != "" {
		t.Errorf("exit %d\n%s\nwant\n%s%s", code, out, want, errs)
	}
}

func TestWatchWrongUsage(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }))
	defer other.Close()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"status now", 2, `"now" is not understood after status`},
		{"status --addr=x", 2, "is not an address"},
		{"status", 1, "no gateway answers at http://127.0.0.1:1"},
		{"status --addr=" + other.URL, 1, "does not answer as a gateway's admin address does"},
		{"top now", 2, `"now" is not understood after top`},
		{"top --every=2s", 2, "flag provided but not defined: -every"},
		{"why", 2, "one tenant is needed, or --all"},
		{"why acme globex", 2, "one tenant is needed, or --all"},
		{"why acme --all", 2, "one tenant is needed, or --all"},
		{"why a.b", 2, `"a.b" is no tenant`},
		{"why acme --limit=0", 2, "--limit=0 is not 1 to 100"},
		{"why acme", 1, "no gateway answers at http://127.0.0.1:1"},
		{"why acme --addr=" + other.URL, 1, "does not answer as a gateway's admin address does"},
	} {
		code, _, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=127.0.0.1:1"}, "", strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: exit %d, %s; want %d, %s", c.args, code, errs, c.code, c.says)
		}
	}
}

// fickle is a proxy before a gateway that can be away.
type fickle struct {
	*httptest.Server
	away atomic.Bool
}

func newFickle(t *testing.T, g gate) *fickle {
	f := &fickle{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: g.admin})
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// Piped, top prints a line a second, says once that the gateway is away, and goes on when
// it is back.
func TestTopPiped(t *testing.T) {
	g := serve(t, "FLOWGATE_SHAPER_RATE=1/h")
	published(t, g, "ingress.acme.orders", 7)
	f := newFickle(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs lockedBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli{stdin: &bytes.Buffer{}, stdout: &out, stderr: &errs}.run(ctx, []string{"top", "--addr", f.URL})
	}()
	await := func(what string, done func(text string) bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !done(out.String()); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s:\n%s%s", what, out.String(), errs.String())
			}
		}
	}
	line := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d depth 7/10,000 \(drains in \S+\), oldest \S+; admitted \S+/s, refused 0/s, delivered 0/s; normal$`)
	await("two lines", func(text string) bool { return len(line.FindAllString(text, -1)) >= 2 })
	f.away.Store(true)
	await("away", func(text string) bool { return strings.Contains(text, " away: ask the gateway at "+f.URL) })
	time.Sleep(2500 * time.Millisecond)
	if n := strings.Count(out.String(), "away"); n != 1 {
		t.Errorf("it says %d times that the gateway is away", n)
	}
	before := len(line.FindAllString(out.String(), -1))
	f.away.Store(false)
	await("back", func(text string) bool { return len(line.FindAllString(text, -1)) > before })
	cancel()
	if code := <-ended; code != 0 || errs.String() != "" {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}

// However small the terminal is, nothing passes its size; what was seen stays while the
// gateway is away.
func TestTopScreenFits(t *testing.T) {
	now := time.Now()
	seen := sight{at: now, status: app.Status{
		Name: "flowgate", Version: "v1", Level: "pressured", Breaker: "closed", Replica: app.ReplicaStatus{ID: "gate-1", Leader: true},
		Depth: app.DepthStatus{Total: 12345, Waiting: 12345}, Watermarks: app.Watermarks{Low: 8000, High: 10000, Max: 20000}, SampledAt: now,
	}}
	for i := range shownSeconds {
		seen.samples = append(seen.samples, history.Sample{Depth: uint64(i * 200), Refused: 7, RefusedBy: map[string]float64{"backlog": 5, "rate_limited": 2}})
	}
	for i := range 200 {
		seen.tenants.Tenants = append(seen.tenants.Tenants, app.ShownTenant{Tenant: fmt.Sprintf("tenant-%d-%s", i, strings.Repeat("x", 50)), Depth: i})
	}
	seen.tenants.Total = 200
	styles := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, size := range [][2]int{{1, 1}, {10, 2}, {40, 10}, {80, 24}, {200, 60}} {
		m := newTopScreen(nil, "http://gate:8081")
		m.width, m.height = size[0], size[1]
		m.take(looked{sight: seen, at: now, sort: "depth"})
		for _, away := range []bool{false, true} {
			if away {
				m.take(looked{err: fmt.Errorf("no gateway answers at %s", m.base), at: now, sort: "depth"})
			}
			lines := strings.Split(styles.ReplaceAllString(m.text(), ""), "\n")
			if len(lines) > size[1] {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, line := range lines {
				if n := len([]rune(line)); n > size[0] {
					t.Errorf("%v: %d columns: %s", size, n, line)
				}
			}
			text := strings.Join(lines, "\n")
			if size[1] >= 24 && (!strings.Contains(text, "12,345 of 10,000") || !strings.Contains(text, "backlog 5/s, rate_limited 2/s") || !strings.Contains(text, "tenant-1-x") || !strings.Contains(text, "q quit · 200 tenants by depth")) {
				t.Errorf("%v:\n%s", size, text)
			}
			if strings.Contains(text, "AWAY since") != away && size[0] > 20 {
				t.Errorf("%v, away %v:\n%s", size, away, text)
			}
		}
	}
}
