package deployments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
)

// Every query of every panel, and every rule, asked of a real Prometheus that scrapes a real
// gateway: which is filled, refuses, retries, buries, meets a consumer that is away, and
// drains. Each must have had data at some time of that.
func TestQueriesFindData(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	path := program(t, "prometheus", "prometheus")
	began := time.Now()
	gate, consumer := startGateway(t)
	_, admin := gate.Addr()
	prometheus := startPrometheus(t, path, admin)
	surge(t, gate, consumer)
	time.Sleep(2 * time.Second) // the last scrape and the rules after it
	ended := time.Now()

	ask := func(where, expr string) {
		t.Helper()
		if err := prometheus.finds(t.Context(), filled.Replace(expr), began, ended); err != nil {
			t.Errorf("%s: %s: %v", where, expr, err)
		}
	}
	for _, q := range append(queries(t), scaling(t)) {
		ask(q.where, q.expr)
	}
	for _, r := range rules(t) {
		if r.Record != "" {
			ask("the series", r.Record)
		}
		// An alert that is silent gives nothing, but what it looks at is there.
		for _, s := range selector.FindAllString(r.Expr, -1) {
			ask(r.Alert+r.Record, s)
		}
	}
	if t.Failed() {
		t.Logf("Prometheus:\n%s", prometheus.log.String())
	}
}

// filled stands for what Grafana fills in.
var filled = strings.NewReplacer("$job", "flowgate", "$__rate_interval", "10s")

var selector = regexp.MustCompile(`\b(flowgate|process)[_:][a-z0-9_:]+(\{[^}]*\})?`)

// startGateway runs one whose consumer is over HTTP.
func startGateway(t *testing.T) (*app.App, *consumer) {
	t.Helper()
	c := &consumer{}
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("k acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := settings.Load([]string{
		"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_INGRESS_API_KEYS_FILE=" + keys, "FLOWGATE_CONSUMER_URL=" + web.URL, "FLOWGATE_CONSUMER_BACKOFF=50ms",
		"FLOWGATE_BACKPRESSURE_HIGH=1000", "FLOWGATE_SHAPER_RATE=150/s", "FLOWGATE_LIMIT_TENANT_OVERRIDES=greedy=token-bucket:10/s",
	})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := app.New(app.Options{Config: cfg, Logger: slog.New(slog.DiscardHandler), Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gate.Run(ctx) }()
	select {
	case err := <-ended:
		cancel()
		t.Fatal(err)
	case <-gate.Ready():
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return gate, c
}

// consumer takes all but a message now and then, and nothing while it is away.
type consumer struct {
	n    atomic.Int64
	away atomic.Bool
}

func (c *consumer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch n := c.n.Add(1); {
	case c.away.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case n%20 == 0:
		w.WriteHeader(http.StatusBadRequest) // a dead letter
	case n%20 == 10:
		w.WriteHeader(http.StatusInternalServerError) // once more
	}
}

// surge publishes past HIGH and past a limit, has the consumer away for a while, and lets
// it drain.
func surge(t *testing.T, gate *app.App, c *consumer) {
	t.Helper()
	address, _ := gate.Addr()
	nc, err := nats.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	send := func(d time.Duration, perSecond int) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for start, sent := time.Now(), 0; time.Since(start) < d; <-tick.C {
			for ; sent < int(time.Since(start).Seconds()*float64(perSecond)); sent++ {
				tenant := [...]string{"acme", "globex", "greedy"}[sent%3]
				if _, err := js.PublishAsync("ingress."+tenant+".orders", make([]byte, 200)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	send(8*time.Second, 300) // slowly, so that a busy machine too sees it grow
	send(6*time.Second, 600) // to HIGH
	c.away.Store(true)
	send(4*time.Second, 100)
	c.away.Store(false)
	send(14*time.Second, 20) // it drains
}

// server is a Prometheus.
type server struct {
	address string
	log     output
}

// output is what a process prints, also while it is read.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func startPrometheus(t *testing.T, path, target string) *server {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	// Ours, but for the target and the pace.
	text := strings.NewReplacer("flowgate:8081", target, "interval: 15s", "interval: 1s", "[recording.yml, alerts.yml]", "["+here+"/recording.yml, "+here+"/alerts.yml]").
		Replace(read(t, "prometheus/prometheus.yml"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+s.address)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		answer, err := http.Get("http://" + s.address + "/-/ready")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(end) {
			t.Fatalf("Prometheus is not ready: %v", err)
		}
	}
}

// finds returns an error if expr had no value, or NaN alone, all the time.
func (s *server) finds(ctx context.Context, expr string, from, to time.Time) error {
	form := url.Values{"query": {expr}, "start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)}, "step": {"1"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/api/v1/query_range?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Error string
		Data  struct {
			Result []struct{ Values [][2]any }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return err
	}
	if body.Error != "" {
		return fmt.Errorf("Prometheus says: %s", body.Error)
	}
	for _, series := range body.Data.Result {
		for _, v := range series.Values {
			if n, err := strconv.ParseFloat(v[1].(string), 64); err == nil && !math.IsNaN(n) {
				return nil
			}
		}
	}
	return fmt.Errorf("no data in %d series", len(body.Data.Result))
}
