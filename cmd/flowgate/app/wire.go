package app

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app/broker"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/admission"
	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/shaper"
	"github.com/flowgate/flowgate/internal/units"
)

func brokerConfig(c settings.Config) broker.Config {
	cfg := broker.Config{
		Name: c.Name, DataDir: c.DataDir,
		URL: c.NATS.URL, Listen: c.NATS.Listen, ConfigFile: c.NATS.Config,
		Creds: c.NATS.Creds, User: c.NATS.User, Password: c.NATS.Password, Token: c.NATS.Token,
		TLSCA: c.NATS.TLSCA, TLSCert: c.NATS.TLSCert, TLSKey: c.NATS.TLSKey,
		SyncAlways: c.NATS.SyncInterval.Always, SyncEvery: c.NATS.SyncInterval.Every,
		MaxPayload: int(c.Ingress.MaxPayload),
		Ingress:    c.Ingress.Prefix, Pressure: c.Names().Pressure,
	}
	if target, ok := c.Consumer.NATS(); ok {
		cfg.Deliveries = target.Prefix
		if target.Reply {
			cfg.Replies = c.Consumer.Timeout
		}
	}
	return cfg
}

func topology(c settings.Config) broker.Topology {
	n := c.Names()
	target, _ := c.Consumer.NATS()
	return broker.Topology{
		Stream: n.Stream, DLQStream: n.DLQStream, StateBucket: n.StateBucket, LimitsBucket: n.LimitsBucket, Consumer: n.Consumer,
		Backlog: n.Backlog, DLQ: n.DLQ, Ingress: c.Ingress.Prefix, Deliveries: target.Prefix,
		MaxMsgs: int64(c.Backpressure.Marks().Max), MaxBytes: int64(c.Backpressure.MaxBytes),
		DedupWindow: c.Ingress.DedupWindow, Replicas: c.NATS.Replicas,
		DLQMaxBytes: int64(c.DLQ.MaxBytes), DLQMaxAge: c.DLQ.MaxAge,
	}
}

// Check tests the NATS that cfg names without starting a gateway.
func Check(ctx context.Context, opts Options) ([]broker.Finding, error) {
	b, err := broker.Start(ctx, brokerConfig(opts.Config), opts.Logger)
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close(ctx) }()
	findings := b.CheckOnline(ctx, topology(opts.Config))
	d, err := consumers.Open(ctx, opts.Config.Consumer, consumers.Deps{
		DataDir: opts.Config.DataDir, Stdout: opts.Stdout, Version: opts.Version, Logger: opts.Logger,
	})
	if err == nil {
		if p, ok := d.(interface{ Ping(context.Context) error }); ok {
			err = p.Ping(ctx)
		}
		_ = d.Close()
	}
	return append(findings, broker.Finding{Name: "consumer", Detail: settings.MaskURL(opts.Config.Consumer.URL), Err: err}), nil
}

// startTimeout bounds what is asked of the broker at the start.
const startTimeout = 30 * time.Second

// connect opens the connections, takes the lease and sees to the streams. Who is
// refused, or stands by, changes nothing of what another gateway works with.
func (g *gateway) connect(ctx context.Context) (err error) {
	t := topology(g.cfg)
	if err := g.broker.Rights(ctx, t); err != nil {
		return err
	}
	bounded, cancel := g.broker.Permitted(ctx, startTimeout)
	defer func() {
		err = broker.Denied(bounded, err)
		cancel()
	}()
	control, err := g.open("control")
	if err != nil {
		return err
	}
	if g.js, err = jetstream.New(control); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	if err := g.alone(bounded, control); err != nil {
		return err
	}
	state, err := g.js.KeyValue(bounded, t.StateBucket)
	if err != nil { // the first time there is no bucket yet
		if state, err = broker.EnsureState(bounded, g.js, t); err != nil {
			return err
		}
	}
	cancel()
	if err := g.acquire(ctx, state); err != nil {
		return err
	}
	bounded, cancel = g.broker.Permitted(ctx, startTimeout) // standing by may have taken days
	if err := g.alone(bounded, control); err != nil {
		return err
	}
	if g.assets, err = broker.Ensure(bounded, g.js, t); err != nil || g.broker.Embedded() {
		return err
	}
	return broker.RenewConsumer(bounded, g.js, t)
}

// acquire takes the lease, as soon as nobody else has it, and holds it from then on.
func (g *gateway) acquire(ctx context.Context, state jetstream.KeyValue) (err error) {
	if g.lease, err = broker.Acquire(ctx, state, g.id, g.broker.Embedded(), g.standBy.waits); err != nil {
		return err
	}
	g.standBy.over()
	held, giveBack := context.WithCancel(context.Background())
	var holding sync.WaitGroup
	g.component(&holding, "lease", held, g.lease.Run)
	g.onStop("lease", func(context.Context) error {
		giveBack() // the next one takes it at once
		holding.Wait()
		return nil
	})
	return nil
}

// alone refuses a prefix that another gateway answers.
func (g *gateway) alone(ctx context.Context, nc *nats.Conn) error {
	if g.broker.Embedded() {
		return nil // nobody else is in there
	}
	others, err := broker.Answering(ctx, nc, g.cfg.Name, g.cfg.Ingress.Prefix)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return fmt.Errorf("the gateway %s answers %s already: producers would get two answers; set FLOWGATE_INGRESS_PREFIX to another prefix", others[0].Name, others[0].Ingress)
	}
	return nil
}

func (g *gateway) open(name string) (*nats.Conn, error) {
	nc, err := g.broker.Connect(name)
	if err == nil {
		g.conns = append(g.conns, nc)
	}
	return nc, err
}

// origin names messages without an id of their own.
func (g *gateway) origin() string { return g.cfg.Names().Stream + "@" + g.assets.Incarnation }

func (g *gateway) openConsumer(ctx context.Context, given consumers.Destination, stdout io.Writer) error {
	destination := given
	if destination == nil {
		nc := g.js.Conn()
		if _, ok := g.cfg.Consumer.NATS(); ok {
			// Apart from the lease, which must not wait behind deliveries.
			own, err := g.open("deliveries")
			if err != nil {
				return err
			}
			nc = own
		}
		var err error
		destination, err = consumers.Open(ctx, g.cfg.Consumer, consumers.Deps{
			DataDir: g.cfg.DataDir, NATS: nc, Stdout: stdout, Version: g.version, Registerer: g.registry, Logger: g.log,
		})
		if err != nil {
			return err
		}
		g.onStop("consumer", func(context.Context) error { return destination.Close() })
	}
	g.destination = destination
	dead := consumers.NewDeadLetters(g.js, g.cfg.Names().DLQ, g.origin())
	g.desk = consumers.NewDesk(g.cfg.Consumer, destination, dead, g.labels.of, g.registry, g.log)
	if g.tracer != nil {
		g.desk.Trace(deskTracer{g.tracer, g.cfg.Names().Backlog})
	}
	return nil
}

// makePath makes the parts of a message's path, from the outlet to the door.
func (g *gateway) makePath(ctx context.Context) (err error) {
	names := g.cfg.Names()
	g.backlog = backpressure.New(g.cfg.Backpressure.Rules(), backpressure.Deps{
		Clock: g.clock.now, Rate: g.rate, Stalled: g.stalled,
		Lenient: g.cfg.Mode != ingress.Enforce,
		Logger:  g.log,
	})
	g.backlog.SetWeights(g.cfg.Shaper.Weights)
	g.backlog.Start(g.assets.LastSeq, g.assets.Messages)
	g.makeGraveyard()

	outlet, err := g.open("outlet")
	if err != nil {
		return err
	}
	g.shaper, err = shaper.New(g.cfg.Shaper, shaper.Deps{
		NATS: outlet, Stream: names.Stream, Consumer: names.Consumer, Subjects: names.Backlog,
		Restore: func(ctx context.Context) error { return broker.EnsureConsumer(ctx, g.js, topology(g.cfg)) },
		Origin:  g.origin(), Created: g.assets.Created,
		State: g.assets.State, StateStream: g.assets.StateStream,
		Outlet: g.desk, Backlog: g.backlog, Lease: g.lease,
		Forwarded:   func() uint64 { return g.door.Forwarded() },
		Concurrency: g.cfg.Consumer.Concurrency, Batch: g.cfg.Consumer.Batch, BatchWait: g.cfg.Consumer.BatchWait,
		Ordered:   g.cfg.Consumer.Order == consumers.OrderTenant,
		DrainTime: g.cfg.ShutdownTimeout * 3 / 4,
		Clock:     g.clock.now, Registerer: g.registry, Logger: g.log,
	})
	if err != nil {
		return err
	}

	receive, err := g.open("ingress")
	if err != nil {
		return err
	}
	forward, err := g.open("forward")
	if err != nil {
		return err
	}
	answers, err := g.open("answers")
	if err != nil {
		return err
	}
	if err := g.openLimits(ctx); err != nil {
		return err
	}
	door := g.cfg.Ingress
	if most := g.broker.Payload(receive); most < int(door.MaxPayload) {
		if most < 1 {
			return fmt.Errorf("the NATS server takes %d bytes a message, too few for the gateway's own headers; raise its max_payload", receive.MaxPayload())
		}
		g.log.Warn("the NATS server takes smaller messages than FLOWGATE_INGRESS_MAX_PAYLOAD; its limit holds", "bytes", most)
		door.MaxPayload = units.Size(most)
	}
	var tracer ingress.Tracer
	if g.tracer != nil {
		tracer = doorTracer{g.tracer}
	}
	g.door, err = ingress.New(door, ingress.Deps{
		Receive: receive, Forward: forward, Answers: answers,
		Limits: admission.Limits{Set: g.limits}, Backpressure: admission.Backlog{Backlog: g.backlog}, Confirmed: g.backlog.Confirmed,
		Witness: doorWitness{g}, Recorder: g.recorder,
		Name: names.Subjects, Stream: names.Stream, Backlog: names.Backlog,
		StoredCanary: g.cfg.NATS.Replicas > 1,
		Tracer:       tracer,
		Mode:         g.cfg.Mode,
		Clock:        g.clock.now,
		TenantLabel:  g.labels.of, KnownTenant: g.labels.peek,
		Registerer: g.registry, Logger: g.log,
	})
	return err
}

// openHTTP listens for HTTP producers; they are served once the door is open.
func (g *gateway) openHTTP() error {
	var err error
	if g.web, err = ingress.NewHTTP(g.cfg.Ingress, g.door); err != nil {
		return err
	}
	g.onStop("http", func(context.Context) error { return g.web.Close() })
	return nil
}

// launch starts the loops: the outlet first, so that it is there when the door
// opens.
func (g *gateway) launch(ctx context.Context) error {
	outlet, stopOutlet := context.WithCancel(context.Background())
	door, stopDoor := context.WithCancel(context.Background())
	back, stopBack := context.WithCancel(context.Background())
	g.stopOutlet, g.stopDoor = stopOutlet, stopDoor
	g.component(&g.outlet, "outlet", outlet, g.shaper.Run)
	g.component(&g.front, "front door", door, g.door.Run)
	g.component(&g.back, "watch", back, g.watch)
	g.component(&g.back, "broadcast", back, g.newBroadcast().Run)
	g.component(&g.back, "signals", back, g.watchSignals)
	g.component(&g.back, "sampler", back, g.newSampler().Run)
	g.component(&g.back, "limits", back, g.limits.Run)
	g.component(&g.back, "live limits", back, g.liveLimits.Run)
	if r, ok := g.destination.(interface{ Run(context.Context) error }); ok { // it has work of its own
		g.component(&g.back, "consumer", back, r.Run)
	}
	g.onStop("background", func(context.Context) error {
		stopBack()
		g.back.Wait()
		return nil
	})
	if g.admin != nil {
		g.admin.serve(g.adminHandler())
		g.onStop("recordings", func(context.Context) error {
			close(g.recorder.over)
			return nil
		})
	}
	service, err := g.newService()
	if err != nil {
		return err
	}
	g.onStop("service", func(context.Context) error { return service.Stop() })
	for _, ready := range []<-chan struct{}{g.shaper.Looked(), g.door.Opened()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-g.failed.Done():
			return context.Cause(g.failed)
		}
	}
	if g.web != nil {
		g.component(&g.front, "HTTP front door", door, g.web.Run)
	}
	return nil
}
