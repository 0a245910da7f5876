package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/bubble"
)

// free is a loopback address that nothing listened on just now.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// waiting is a gateway that is not active yet.
type waiting struct {
	*running
	admin string
	log   *bubble.Log
}

// standby starts a gateway beside one that is active.
func standby(t *testing.T, environ ...string) *waiting {
	t.Helper()
	w := beside(t, environ...)
	w.eventually("it stands by", w.stands)
	return w
}

// beside starts a gateway that may stand by, and does not wait for it.
func beside(t *testing.T, environ ...string) *waiting {
	t.Helper()
	w := &waiting{admin: free(t), log: &bubble.Log{}}
	cfg, err := settings.Load(append([]string{
		"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_ADMIN_LISTEN=" + w.admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off",
	}, environ...))
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	a, err := New(Options{Config: cfg, Destination: s, Logger: w.log.Logger(slog.LevelInfo), Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.running = &running{App: a, t: t, sink: s, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.result = a.Run(ctx)
	}()
	t.Cleanup(func() { _ = w.stop() })
	return w
}

func (w *waiting) stands() bool { return strings.Contains(w.log.String(), "standing by") }

func (w *waiting) active() bool {
	code, _ := w.get("/readyz")
	return code == http.StatusOK
}

func (w *waiting) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within 30 s: %s\n%s", what, w.log.String())
		}
	}
}

func (w *waiting) get(path string) (int, string) {
	w.t.Helper()
	r, err := http.Get("http://" + w.admin + path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return 0, "" // not listening yet
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// One that stands by says so, serves nobody and changes nothing; it takes over when
// the active one leaves, and many take turns.
func TestStandby(t *testing.T) {
	broker := &elsewhere{t: t, dir: t.TempDir(), port: -1}
	broker.start()
	defer func() { broker.stop() }()
	url := fmt.Sprintf("FLOWGATE_NATS_URL=nats://127.0.0.1:%d", broker.port)
	first := startIn(t, t.TempDir(), &sink{}, url, "FLOWGATE_NATS_LISTEN=", "FLOWGATE_SHAPER_RATE=50/s")
	nc, err := nats.Connect(broker.s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	before, err := js.Stream(t.Context(), "FLOWGATE")
	if err != nil {
		t.Fatal(err)
	}
	// Another configuration, which must not reach the stream as long as it stands by.
	second := standby(t, url, "FLOWGATE_SHAPER_RATE=50/s", "FLOWGATE_BACKPRESSURE_HIGH=77")
	third := standby(t, url, "FLOWGATE_SHAPER_RATE=50/s")

	if code, body := second.get("/livez"); code != 200 {
		t.Errorf("livez: %d %s", code, body)
	}
	if code, body := second.get("/readyz"); code != 503 || !strings.Contains(body, "standing by: active is ") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := second.get("/metrics"); code != 200 || !strings.Contains(body, "\nflowgate_replica_leader 0\n") || !strings.Contains(body, "flowgate_build_info{") {
		t.Errorf("metrics: %d %s", code, body)
	}
	if code, body := second.get("/api/v1/limits"); code != 503 || !strings.Contains(body, "standing by") {
		t.Errorf("limits: %d %s", code, body)
	}
	for _, path := range []string{"/", "/assets/main.js"} { // the page reads in the status what this one is
		if code, body := second.get(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, nowhere := range []string{"/assets/nothing.js", "/nowhere", "/api/v1/limit", "/api/v1/pause"} { // the last: POST
		if code, body := second.get(nowhere); code != 404 && (nowhere != "/api/v1/pause" || code != 405) {
			t.Errorf("%s: %d %s", nowhere, code, body)
		}
	}
	code, body := second.get("/api/v1/status")
	var st Status
	if err := json.Unmarshal([]byte(body), &st); err != nil || code != 200 {
		t.Fatalf("status: %d %s: %v", code, body, err)
	}
	active, _ := first.Status()
	if st.Replica.Leader || !strings.HasPrefix(st.Replica.Active, active.Replica.ID) || st.Name != "flowgate" {
		t.Errorf("status %+v; active is %s", st, active.Replica.ID)
	}
	first.admitted(js, "acme", 20)
	if info, err := before.Info(t.Context()); err != nil || info.Config.MaxMsgs != before.CachedInfo().Config.MaxMsgs {
		t.Errorf("the stream was changed by one that stands by: %+v, %v", info, err)
	}

	// One that is stopped while it stands by ends at once, and in order.
	began := time.Now()
	if err := third.stop(); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("stopped while standing by: %v after %s", err, time.Since(began))
	}

	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second.eventually("it takes over", func() bool { code, _ := second.get("/readyz"); return code == 200 })
	if !strings.Contains(second.log.String(), "took over") {
		t.Errorf("the log does not say so:\n%s", second.log.String())
	}
	if _, body := second.get("/metrics"); !strings.Contains(body, "\nflowgate_replica_leader 1\n") {
		t.Error("the metrics do not say that it is active")
	}
	second.eventually("the rest is delivered", func() bool {
		all := delivered(first.sink.log())
		for id := range delivered(second.sink.log()) {
			all[id]++
		}
		return len(all) == 20
	})
	second.admitted(js, "acme", 5)
}

// Of two that start at the same instant on a NATS where nothing is yet, the stream is
// as the active one's settings say, and after it crashed as the other's.
func TestTwoStartAtOnce(t *testing.T) {
	broker := &elsewhere{t: t, dir: t.TempDir(), port: -1}
	broker.start()
	defer func() { broker.stop() }()
	url := fmt.Sprintf("FLOWGATE_NATS_URL=nats://127.0.0.1:%d", broker.port)
	most := map[*waiting]int64{}
	for _, n := range []int64{100, 300} {
		most[beside(t, url, "FLOWGATE_BACKPRESSURE_HIGH=50", fmt.Sprintf("FLOWGATE_BACKPRESSURE_MAX=%d", n), "FLOWGATE_SHAPER_RATE=100/s")] = n
	}
	nc, err := nats.Connect(broker.s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var first, second *waiting
	for w := range most {
		w.eventually("one is active and one stands by", func() bool { return w.active() || w.stands() })
		if w.active() {
			first = w
		} else {
			second = w
		}
	}
	if first == nil || second == nil {
		t.Fatalf("%d gateways, and not one of each", len(most))
	}
	works := func(w *waiting) {
		t.Helper()
		<-w.Ready()
		stream, err := js.Stream(t.Context(), "FLOWGATE")
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().Config.MaxMsgs; got != most[w] {
			t.Errorf("the stream takes %d messages; the active gateway's MAX is %d", got, most[w])
		}
		w.admitted(js, "acme", 30)
		w.eventually("all is delivered and the depth says so", func() bool {
			s, _ := w.Status()
			return s.Depth.Total == 0
		})
		if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 0 {
			t.Errorf("at depth 0 the stream holds %+v, %v", info, err)
		}
		w.admitted(js, "acme", 10)
	}
	works(first)
	for _, c := range first.App.running().conns { // as a crash looks to NATS: the lease is not given back
		c.Close()
	}
	second.eventually("it takes over", second.active)
	works(second)
}

// A NATS that is away does not end one that stands by.
func TestStandbyWithoutNATS(t *testing.T) {
	broker := &elsewhere{t: t, dir: t.TempDir(), port: -1}
	broker.start()
	defer func() { broker.stop() }()
	url := fmt.Sprintf("FLOWGATE_NATS_URL=nats://127.0.0.1:%d", broker.port)
	first := startIn(t, t.TempDir(), &sink{}, url, "FLOWGATE_NATS_LISTEN=")
	second := standby(t, url)
	broker.stop()
	second.eventually("it says that NATS is gone", func() bool {
		_, body := second.get("/api/v1/status")
		_, ready := second.get("/readyz")
		return strings.Contains(body, `"lost": true`) && strings.Contains(ready, "NATS does not answer: active was ")
	})
	time.Sleep(4 * time.Second)
	broker.start()
	select {
	case <-second.ended:
		t.Fatalf("it ended: %v", second.result)
	case <-time.After(time.Second):
	}
	// One of the two is active in the end, whichever.
	second.eventually("one is active", func() bool {
		select {
		case <-first.ended:
			code, _ := second.get("/readyz")
			return code == 200
		default:
		}
		code, _ := second.get("/readyz")
		s, _ := first.Status()
		return s.Replica.Leader || code == 200
	})
}
