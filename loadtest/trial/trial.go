package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/database"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
	"github.com/flowgate/flowgate/loadtest/scenario"
)

// Options are what a trial needs.
type Options struct {
	// Program starts the gateway when it is called with Command and the database's address.
	Program string
	// Environ is that of the gateway, beside the scenario's variables.
	Environ []string
	// Output is where the gateway's log goes.
	Output io.Writer
	// Drain is how long the backlog may take at the end, what waits longer is counted; and for how
	// long those go on who were refused and told to come back.
	Drain time.Duration
	// Record has the gateway record what comes to it, as flowgate record does.
	Record bool
}

// Result is what was seen.
type Result struct {
	Scenario *scenario.Scenario
	Config   settings.Config
	Began    time.Time
	// Took is the time until the backlog was empty.
	Took time.Duration
	// With is the run through flowgate, Without the same arrivals sent straight to the
	// database. Times of the record are since Began.
	With, Without *Side
	Checks        []invariants.Check
	// Drain is that of the options. Recording is what the gateway recorded, since Began; nil if
	// it did not.
	Drain     time.Duration
	Recording *arrivals.Recording
}

// Side is a run with or without flowgate.
type Side struct {
	Record *invariants.Record
	// Failed calls are counted without flowgate; with it they are among the deliveries.
	Failed int
	Health []Sample
}

// Sample is how things were at an instant.
type Sample struct {
	At       time.Duration // since the beginning
	Database fragile.Health
	Peak     int // the most in flight since the sample before
	// The rest is of the run with flowgate. Gateway says that it answered.
	Gateway bool
	Depth   uint64
	Level   string
	// Rate is the effective one; 0: unlimited.
	Rate float64
	// RSS, in bytes, Goroutines and Files are what its process holds, Keys what lies in its
	// buckets, looked at each second; 0: not looked at.
	RSS                     float64
	Goroutines, Files, Keys int
	Process                 int
}

// trial is one that runs.
type trial struct {
	s        *scenario.Scenario
	began    time.Time
	database *database.Database
	ledger   *ledger
	broker   *broker // nil: the gateway's own
	process  *process
	record   *invariants.Record

	mu          sync.Mutex
	side        *Side
	connections []*nats.Conn
	clients     map[int]producers.Client
	failed      error
}

// Run makes a trial of a scenario. A gateway that ends though nobody asked it to ends the
// trial, with an error.
func Run(ctx context.Context, s *scenario.Scenario, o Options) (*Result, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r, err := try(ctx, s, o, fail)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // what came of it says less
	}
	return r, err
}

func try(ctx context.Context, s *scenario.Scenario, o Options, fail func(error)) (*Result, error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := &trial{s: s, record: &invariants.Record{}, clients: map[int]producers.Client{}}
	t.side = &Side{Record: t.record}
	r := &Result{Scenario: s, With: t.side, Drain: o.Drain}
	if t.database, err = database.New(s.Database); err != nil {
		return nil, err
	}
	if t.ledger, err = newLedger(t.database, t.record, s); err != nil {
		return nil, err
	}
	defer t.ledger.close()
	if r.Config, err = t.prepare(dir, o); err != nil {
		return nil, err
	}
	t.process.lost = fail
	defer t.end()
	if t.broker != nil {
		if err := t.broker.start(); err != nil {
			return nil, err
		}
	}
	if err := t.process.start(ctx); err != nil {
		return nil, err
	}
	if err := t.connect(r.Config.Ingress.Prefix); err != nil {
		return nil, err
	}
	var recorded *recording
	if o.Record {
		if recorded, err = t.startRecording(ctx); err != nil {
			return nil, err
		}
		defer recorded.stop()
	}
	r.Began = time.Now().Add(100 * time.Millisecond)
	t.began = r.Began
	if err := t.load(ctx, r.Config.Ingress.Prefix, o.Drain); err != nil {
		return nil, err
	}
	if err := t.drain(ctx, o.Drain); err != nil {
		return nil, err
	}
	r.Took = time.Since(r.Began)
	if recorded != nil {
		if r.Recording, err = recorded.end(r.Began); err != nil {
			return nil, err
		}
	}
	if err := t.process.stop(); err != nil {
		return nil, err
	}
	if err := t.ledger.settle(ctx); err != nil {
		return nil, err
	}
	r.Checks = t.checks(r.Config)
	t.record.Since(r.Began.UnixNano())
	if r.Without, err = direct(ctx, s, r.Took); err != nil {
		return nil, err
	}
	return r, nil
}

// prepare finds addresses and makes the gateway's environment.
func (t *trial) prepare(dir string, o Options) (settings.Config, error) {
	addresses, err := freeAddresses(3)
	if err != nil {
		return settings.Config{}, err
	}
	t.process = &process{program: o.Program, url: t.ledger.url, output: o.Output, nats: addresses[0], web: addresses[1], admin: addresses[2]}
	environ := []string{
		"FLOWGATE_DATA_DIR=" + filepath.Join(dir, "data"), "FLOWGATE_ADMIN_LISTEN=" + t.process.admin,
		"FLOWGATE_INGRESS_HTTP_LISTEN=" + t.process.web, "FLOWGATE_NATS_LISTEN=" + t.process.nats,
	}
	if t.s.Broker == "own" {
		port := 0
		if _, err := fmt.Sscanf(t.process.nats, "127.0.0.1:%d", &port); err != nil {
			return settings.Config{}, err
		}
		t.broker = &broker{port: port, dir: filepath.Join(dir, "nats")}
		environ[3] = "FLOWGATE_NATS_URL=nats://" + t.process.nats
	}
	for _, name := range slices.Sorted(maps.Keys(t.s.Gateway)) {
		environ = append(environ, name+"="+t.s.Gateway[name])
	}
	t.process.environ = environ
	for _, e := range o.Environ { // not the FLOWGATE_ variables of who runs the test
		if !strings.HasPrefix(e, "FLOWGATE_") {
			t.process.environ = append(t.process.environ, e)
		}
	}
	return settings.Load(environ)
}

// connect makes the clients.
func (t *trial) connect(ingress string) error {
	for i := range append([]scenario.Producer{{}}, t.s.Producers...) {
		var p scenario.Producer
		if i > 0 {
			p = t.s.Producers[i-1]
		}
		workers := p.Workers
		if workers == 0 {
			workers = 8
		}
		if p.Via == scenario.HTTP {
			t.clients[i-1] = producers.NewHTTP("http://"+t.process.web, workers)
			continue
		}
		nc, err := nats.Connect("nats://"+t.process.nats, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what breaks is the scenario's
		if err != nil {
			return err
		}
		t.connections = append(t.connections, nc)
		switch p.Via {
		case scenario.NoReply:
			t.clients[i-1] = producers.NewNoReply(nc, ingress)
		case scenario.Sync:
			t.clients[i-1], err = producers.NewSync(nc, ingress, workers)
		default:
			t.clients[i-1], err = producers.NewAsync(nc, ingress)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// load publishes for as long as the scenario says, with its faults.
func (t *trial) load(ctx context.Context, ingress string, patience time.Duration) error {
	loading, enough := context.WithDeadline(ctx, t.began.Add(time.Duration(t.s.For)+patience))
	defer enough()
	defer context.AfterFunc(ctx, t.disconnect)() // nobody waits for answers any more
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var all, watch sync.WaitGroup
	watch.Go(func() { t.watch(watching) })
	defer watch.Wait()
	defer stop()
	all.Go(func() {
		producers.Pump{
			Schedule: t.s.Arrivals.Schedule(time.Duration(t.s.For)), Record: t.record, Ingress: ingress,
			Client: func(tenant string) (producers.Client, producers.Reaction) {
				p, i := t.s.Producer(tenant)
				client := t.clients[i]
				if t.s.NoIDs {
					client = producers.Anonymous(client)
				}
				return client, producers.Reaction{Forget: p.Refused.Forget, After: p.Refused.After}
			},
		}.Run(loading, t.began)
	})
	err := t.breakThings(loading)
	if err == nil && t.sleep(ctx, time.Until(t.began.Add(time.Duration(t.s.For)))) {
		err = t.mend(ctx)
	}
	if err != nil {
		enough()
	}
	all.Wait()
	return errors.Join(err, ctx.Err())
}

// drain waits until all that was acknowledged is delivered or dead-lettered, or for so
// long; then it notes what waits.
func (t *trial) drain(ctx context.Context, most time.Duration) error {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { t.watch(watching) })
	defer watch.Wait()
	defer stop()
	for end := time.Now().Add(most); ; {
		s, err := t.process.status(ctx)
		if err != nil {
			return fmt.Errorf("the gateway does not answer: %w", err)
		}
		t.record.Waiting = s.Depth.Total
		if s.Depth.Total == 0 || time.Now().After(end) {
			break
		}
		if !t.sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	var err error
	t.record.DeadLetters, err = t.process.deadLetters(ctx)
	return err
}

func (t *trial) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// end stops what runs.
func (t *trial) end() {
	t.disconnect()
	if t.process.running() {
		t.process.kill()
	}
	if t.broker != nil {
		t.broker.stop()
	}
}

// disconnect ends the clients' connections.
func (t *trial) disconnect() {
	for _, nc := range t.connections {
		nc.Close()
	}
}

// keys are those in the gateway's buckets, if its broker can be asked.
func (t *trial) keys(ctx context.Context) int {
	if t.broker == nil || len(t.connections) == 0 {
		return 0
	}
	js, err := jetstream.New(t.connections[0])
	if err != nil {
		return 0
	}
	n := 0
	for _, name := range []string{"FLOWGATE_STATE", "FLOWGATE_LIMITS"} {
		bucket, err := js.KeyValue(ctx, name)
		if err != nil {
			return 0
		}
		keys, err := bucket.Keys(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
			return 0
		}
		n += len(keys)
	}
	return n
}
