package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// sink is a consumer that notes what it gets.
type sink struct {
	mu     sync.Mutex
	got    []consumers.Delivery
	at     []time.Time
	answer func(ctx context.Context, d consumers.Delivery) error // nil: done
}

func (s *sink) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	verdicts := make([]error, len(batch))
	for i, d := range batch {
		s.mu.Lock()
		s.got, s.at = append(s.got, d), append(s.at, time.Now())
		answer := s.answer
		s.mu.Unlock()
		if answer != nil {
			verdicts[i] = answer(ctx, d)
		}
	}
	return verdicts
}

func (s *sink) Close() error { return nil }

func (s *sink) answers(f func(ctx context.Context, d consumers.Delivery) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *sink) log() []consumers.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// hangs never answers; the attempt's timeout ends it.
func hangs(ctx context.Context, _ consumers.Delivery) error {
	<-ctx.Done()
	return ctx.Err()
}

// running is a gateway at work.
type running struct {
	*App
	t      *testing.T
	sink   *sink
	dir    string
	cancel context.CancelFunc
	ended  chan struct{}
	result error
}

// start runs a gateway on the embedded server, reachable within the process only.
// environ is added to that.
func start(t *testing.T, environ ...string) *running {
	t.Helper()
	return startIn(t, t.TempDir(), &sink{}, environ...)
}

func startIn(t *testing.T, dir string, s *sink, environ ...string) *running {
	t.Helper()
	r, err := tryStart(t, dir, s, environ...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryStart(t *testing.T, dir string, s *sink, environ ...string) (*running, error) {
	t.Helper()
	return tryStartWith(t, dir, s, func(*Options) {}, environ...)
}

// tryStartWith has the options changed before the start.
func tryStartWith(t *testing.T, dir string, s *sink, change func(*Options), environ ...string) (*running, error) {
	t.Helper()
	cfg, err := settings.Load(append([]string{
		"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
	}, environ...))
	if err != nil {
		return nil, err
	}
	opts := Options{Config: cfg, Destination: s, Logger: slog.New(slog.DiscardHandler), Version: "v1.2.3"}
	change(&opts)
	a, err := New(opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{App: a, t: t, sink: s, dir: dir, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.result = a.Run(ctx)
	}()
	t.Cleanup(func() { _ = r.stop() })
	select {
	case <-r.ended:
		return nil, r.result
	case <-a.Ready():
		return r, nil
	}
}

// stop ends the gateway as SIGTERM does, and returns what Run did.
func (r *running) stop() error {
	bubble.Settle()
	r.cancel()
	<-r.ended
	return r.result
}

// client is a producer's connection.
func (r *running) client() (*nats.Conn, jetstream.JetStream) {
	r.t.Helper()
	nc, err := r.Connect(nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return nc, js
}

// control is the gateway's own connection, which may do everything.
func (r *running) control() jetstream.JetStream { return r.running().js }

// status waits until the counts have settled.
func (r *running) settled() Status {
	r.t.Helper()
	time.Sleep(100 * time.Millisecond)
	s, ok := r.Status()
	if !ok {
		r.t.Fatal("no status")
	}
	return s
}

// admitted publishes n messages that must be acknowledged.
func (r *running) admitted(js jetstream.JetStream, tenant string, n int) {
	r.t.Helper()
	for i := range n {
		if _, err := js.Publish(r.t.Context(), "ingress."+tenant+".orders", fmt.Appendf(nil, "%s %d", tenant, i)); err != nil {
			r.t.Fatalf("message %d of %d: %v", i, n, err)
		}
	}
}

// refusal is the NAK's err_code and the wait in its description; 0 for an
// acknowledged message.
func refusal(err error) (code jetstream.ErrorCode, wait time.Duration) {
	e, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return 0, -1
	}
	wait = -1
	var ms int64
	if i := strings.LastIndex(e.Description, "retry_after_ms="); i >= 0 {
		if _, err := fmt.Sscanf(e.Description[i:], "retry_after_ms=%d", &ms); err == nil {
			wait = time.Duration(ms) * time.Millisecond
		}
	}
	return e.ErrorCode, wait
}
