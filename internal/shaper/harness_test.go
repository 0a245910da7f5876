package shaper

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/units"
)

// rig is a JetStream server with a backlog, and what a shaper needs around it.
type rig struct {
	t      *testing.T
	server *server.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	start  time.Time

	destination *destination
	backlog     *backlog
	leased      atomic.Bool
	forwarded   atomic.Uint64
}

const (
	streamName   = "FLOWGATE"
	consumerName = "shaper"
	subjects     = "flowgate.backlog"
)

func newRig(t *testing.T) *rig {
	t.Helper()
	s := bubble.Server(t)
	r := &rig{t: t, server: s, start: time.Now(), backlog: &backlog{}}
	r.destination = &destination{outcome: done}
	r.leased.Store(true)
	r.nc = r.connect()
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	r.js = js
	r.makeStream()
	if _, err := r.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "FLOWGATE_STATE"}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(r.server), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *rig) makeStream() {
	r.t.Helper()
	_, err := r.js.CreateStream(r.t.Context(), jetstream.StreamConfig{
		Name: streamName, Subjects: []string{subjects + ".>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, AllowDirect: true,
	})
	if err == nil {
		err = r.restore(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) restore(ctx context.Context) error {
	_, err := r.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 24 * time.Hour, MaxAckPending: -1, MaxDeliver: -1,
	})
	return err
}

// publish puts n messages of a tenant into the backlog.
func (r *rig) publish(tenant string, n int) {
	r.t.Helper()
	for i := range n {
		r.store(tenant, []byte(fmt.Sprintf("%s %d", tenant, i)))
	}
}

func (r *rig) store(tenant string, body []byte) {
	r.t.Helper()
	if _, err := r.js.Publish(r.t.Context(), subjects+"."+tenant+".orders", body); err != nil {
		r.t.Fatal(err)
	}
}

// config is 10/s with the usual tolerance.
func config() Config {
	return Config{Rate: algorithms.Rate{N: 10, Per: time.Second}, Tolerance: 5 * time.Millisecond, Memory: units.MiB}
}

// running is a shaper at work.
type running struct {
	*Shaper
	stop   func() error  // ends it as a shutdown does and returns what Run did
	ended  chan struct{} // closed when Run has returned
	result error         // what it returned
}

// run starts a shaper; change may be nil.
func (r *rig) run(cfg Config, change func(*Deps)) *running {
	r.t.Helper()
	ctx := r.t.Context()
	stream, err := r.js.Stream(ctx, streamName)
	if err != nil {
		r.t.Fatal(err)
	}
	state, err := r.js.KeyValue(ctx, "FLOWGATE_STATE")
	if err != nil {
		r.t.Fatal(err)
	}
	stateStream, err := r.js.Stream(ctx, "KV_FLOWGATE_STATE")
	if err != nil {
		r.t.Fatal(err)
	}
	deps := Deps{
		NATS: r.connect(), Stream: streamName, Consumer: consumerName, Subjects: subjects,
		Restore: r.restore, Origin: "FLOWGATE@made", Created: stream.CachedInfo().Created,
		State: state, StateStream: stateStream,
		Outlet: r.destination, Backlog: r.backlog, Lease: lease{r}, Forwarded: r.forwarded.Load,
		Concurrency: 4, DrainTime: 5 * time.Second,
		Clock:      func() int64 { return time.Now().UnixNano() },
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&deps)
	}
	s, err := New(cfg, deps)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Shaper: s, ended: make(chan struct{})}
	go func() {
		defer close(run.ended)
		run.result = s.Run(ctx)
	}()
	run.stop = func() error {
		cancel()
		<-run.ended
		return run.result
	}
	r.t.Cleanup(func() { _ = run.stop() })
	return run
}

// lease holds while the rig says so.
type lease struct{ *rig }

func (l lease) Valid() bool { return l.leased.Load() }

// left is how many messages the stream holds.
func (r *rig) left() uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), streamName)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// destination judges deliveries and notes them.
type destination struct {
	mu       sync.Mutex
	attempts []attempt
	outcome  func(consumers.Delivery) consumers.Outcome
	takes    time.Duration // how long a delivery takes
	held     time.Time     // no delivery before that
	inFlight int
	most     int
}

type attempt struct {
	consumers.Delivery
	at time.Time
}

func done(consumers.Delivery) consumers.Outcome { return consumers.Outcome{Action: consumers.Ack} }

func (d *destination) Attempt(ctx context.Context, batch []consumers.Delivery) []consumers.Outcome {
	d.mu.Lock()
	for _, m := range batch {
		d.attempts = append(d.attempts, attempt{m, time.Now()})
	}
	d.inFlight += len(batch)
	d.most = max(d.most, d.inFlight)
	takes, outcome := d.takes, d.outcome
	d.mu.Unlock()
	interrupted := false
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			interrupted = true
		}
	}
	outcomes := make([]consumers.Outcome, len(batch))
	for i, m := range batch {
		if outcomes[i] = outcome(m); interrupted {
			outcomes[i] = consumers.Outcome{Action: consumers.Later, Err: ctx.Err()}
		}
	}
	d.mu.Lock()
	d.inFlight -= len(batch)
	d.mu.Unlock()
	return outcomes
}

func (d *destination) Ready(now time.Time) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held.Sub(now), !now.Before(d.held)
}

func (d *destination) Unready() {}

// outletWith calls f after each attempt.
func outletWith(o Outlet, f func()) Outlet { return hooked{o, f} }

type hooked struct {
	Outlet
	after func()
}

func (h hooked) Attempt(ctx context.Context, batch []consumers.Delivery) []consumers.Outcome {
	outcomes := h.Outlet.Attempt(ctx, batch)
	h.after()
	return outcomes
}

func (d *destination) set(f func(*destination)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *destination) log() []attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.attempts)
}

// departures are the attempts as the rate's promise counts them.
func departures(log []attempt) []algorithms.Departure {
	out := make([]algorithms.Departure, len(log))
	for i, a := range log {
		out[i] = algorithms.Departure{At: a.ReleasedAt.UnixNano(), N: 1}
	}
	return out
}

// backlog notes what the shaper tells.
type backlog struct {
	mu                                  sync.Mutex
	seen, skipped                       []uint64
	waiting, inFlight, delayed, drained uint64
	tenants                             map[string]int
}

func (b *backlog) Seen(seq uint64, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, seq)
	if b.tenants == nil {
		b.tenants = map[string]int{}
	}
	b.tenants[tenant]++
}

func (b *backlog) Settled(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tenants[tenant]--; b.tenants[tenant] == 0 {
		delete(b.tenants, tenant)
	}
}

func (b *backlog) Skipped(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped = append(b.skipped, seq)
}

func (b *backlog) Outlet(waiting, inFlight, delayed, finished uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting, b.inFlight, b.delayed = waiting, inFlight, delayed
	b.drained += finished
}

func (b *backlog) CaughtUp(uint64) {}

func (b *backlog) Stored(uint64, uint64) {}

func (b *backlog) state() (waiting, inFlight, delayed, drained uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting, b.inFlight, b.delayed, b.drained
}
