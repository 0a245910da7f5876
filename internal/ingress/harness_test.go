package ingress

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// allowance is Limits that a test sets: excess refuses, wait blocks.
type allowance struct {
	mu     sync.Mutex
	excess *Excess
	taken  []int64
	wait   func()
	last   Identity
	quotas func(Identity) []Quota
}

func (a *allowance) Look(_ int64, id Identity, _ int64) (Excess, bool) {
	a.mu.Lock()
	excess, wait := a.excess, a.wait
	a.last = id
	a.mu.Unlock()
	if wait != nil {
		wait()
	}
	if excess == nil {
		return Excess{}, true
	}
	e := *excess
	e.Key = id.Tenant
	return e, false
}

func (a *allowance) Take(_ int64, _ Identity, cost int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = append(a.taken, cost)
}

func (a *allowance) Quotas(_ int64, id Identity) []Quota {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quotas == nil {
		return nil
	}
	return a.quotas(id)
}

// seen gives whom the limits were asked about last.
func (a *allowance) seen() Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func (a *allowance) refuse(e *Excess) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.excess = e
}

func (a *allowance) costs() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]int64(nil), a.taken...)
}

// space is Backpressure that a test sets: full is the high watermark, max no room at
// all.
type space struct {
	full, max  atomic.Bool
	wait, stay atomic.Int64
	own        atomic.Bool // the tenant's own messages are too many
	entered    atomic.Int64

	mu    sync.Mutex
	asked []Ask
}

func (s *space) Look(_ int64, ask Ask) Room {
	s.mu.Lock()
	s.asked = append(s.asked, ask)
	s.mu.Unlock()
	if s.full.Load() || s.max.Load() || s.own.Load() {
		return Room{Wait: time.Duration(s.wait.Load()), Full: s.max.Load(), Own: s.own.Load()}
	}
	return Room{OK: true}
}

func (s *space) Full(int64) (wait time.Duration, full bool) {
	return time.Duration(s.wait.Load()), s.max.Load()
}
func (s *space) Stay(int64, string) time.Duration { return time.Duration(s.stay.Load()) }
func (s *space) Enter(int64, Ask, int)            { s.entered.Add(1) }

// rig is a front door with a real JetStream behind it.
type rig struct {
	t        testing.TB
	server   *server.Server
	gateway  jetstream.JetStream // with rights on the stream
	config   jetstream.StreamConfig
	door     *NATS
	limits   *allowance
	space    *space
	registry *prometheus.Registry

	own              []nats.Option // of the gateway's connections
	cfg              Config
	receive, forward *nats.Conn
	pipe             *pipe // what forward goes through

	mu        sync.Mutex
	confirmed [][2]uint64

	cancel context.CancelFunc
	result chan error
}

// change alters a rig before it runs.
type change func(*Config, *Deps, *jetstream.StreamConfig)

const headroom = 64 << 10

// newRig starts a server, the stream and the door, and stops them with the test.
func newRig(t testing.TB, changes ...change) *rig {
	t.Helper()
	r := &rig{
		t: t, limits: &allowance{}, space: &space{}, registry: prometheus.NewRegistry(), result: make(chan error, 1),
		config: jetstream.StreamConfig{
			Name: "FLOWGATE", Subjects: []string{"flowgate.backlog.>"},
			Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
		},
	}
	cfg := Config{Prefix: "ingress", MaxPayload: 64 << 10, DedupWindow: 2 * time.Minute}
	deps := Deps{
		Limits: r.limits, Backpressure: r.space,
		Name: "flowgate", Stream: "FLOWGATE", Backlog: "flowgate.backlog",
		Clock:      func() int64 { return time.Now().UnixNano() },
		Registerer: r.registry, Logger: slog.New(slog.DiscardHandler),
		Confirmed: func(forwarded, lastSeq uint64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.confirmed = append(r.confirmed, [2]uint64{forwarded, lastSeq})
		},
	}
	for _, c := range changes {
		c(&cfg, &deps, &r.config)
	}
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		MaxPayload: int32(cfg.MaxPayload) + headroom, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.server, r.pipe = s, &pipe{to: s, release: make(chan struct{})}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	r.own = []nats.Option{nats.CustomInboxPrefix(deps.Name + ".inbox.test"), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectBufSize(-1)}
	r.receive = r.connect(r.own...)
	r.forward = r.connect(append(r.own[:len(r.own):len(r.own)], nats.InProcessServer(r.pipe))...)
	if r.gateway, err = jetstream.New(r.connect()); err != nil {
		t.Fatal(err)
	}
	r.createStream()
	deps.Receive, deps.Forward = r.receive, r.forward
	r.cfg = cfg
	if r.door, err = New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts the door.
func (r *rig) run() *rig {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.result <- r.door.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); r.result <- <-r.result })
	for !r.receive.IsClosed() && r.receive.NumSubscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := r.receive.Flush(); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// stop ends the door and gives what Run returned.
func (r *rig) stop() error {
	r.cancel()
	err := <-r.result
	r.result <- err
	return err
}

func (r *rig) createStream() {
	r.t.Helper()
	if _, err := r.gateway.CreateStream(context.Background(), r.config); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) connect(opts ...nats.Option) *nats.Conn {
	r.t.Helper()
	silent := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	nc, err := nats.Connect("", append([]nats.Option{nats.InProcessServer(r.server), silent}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

// producer is an unmodified JetStream client.
func (r *rig) producer() jetstream.JetStream {
	r.t.Helper()
	js, err := jetstream.New(r.connect())
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

func (r *rig) state() jetstream.StreamState {
	r.t.Helper()
	s, err := r.gateway.Stream(context.Background(), "FLOWGATE")
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().State
}

// stored gives the message of a sequence.
func (r *rig) stored(seq uint64) *jetstream.RawStreamMsg {
	r.t.Helper()
	s, err := r.gateway.Stream(context.Background(), "FLOWGATE")
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := s.GetMsg(context.Background(), seq)
	if err != nil {
		r.t.Fatalf("message %d: %v", seq, err)
	}
	return m
}

// metric sums the series of a counter or gauge that carry the labels given.
func (r *rig) metric(name string, labels ...string) (sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if carries(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func carries(m *dto.Metric, labels []string) bool {
	have := map[string]string{}
	for _, l := range m.GetLabel() {
		have[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if have[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// wantNAK checks that err is what a JetStream client makes of a NAK.
func wantNAK(t testing.TB, err error, code, errCode int) *jetstream.APIError {
	t.Helper()
	e, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		t.Fatalf("error is %v, want an API error %d/%d", err, code, errCode)
	}
	if e.Code != code || int(e.ErrorCode) != errCode {
		t.Fatalf("error is %d/%d (%s), want %d/%d", e.Code, e.ErrorCode, e.Description, code, errCode)
	}
	return e
}
