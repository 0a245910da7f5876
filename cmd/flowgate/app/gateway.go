package app

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/cmd/flowgate/app/broker"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/history"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
	"github.com/flowgate/flowgate/internal/shaper"
	"github.com/flowgate/flowgate/internal/tracing"
)

// gateway is what runs between start and shutdown.
type gateway struct {
	cfg      settings.Config
	log      *slog.Logger
	registry *prometheus.Registry
	version  string
	tracer   *tracing.Tracer // nil: nothing is traced
	id       string
	clock    clock

	broker  *broker.Broker
	conns   []*nats.Conn
	js      jetstream.JetStream
	assets  broker.Assets
	lease   *broker.Lease
	standBy *standBy
	backlog *backpressure.Backlog
	door    *ingress.NATS
	web     *ingress.HTTP // nil: off
	shaper  *shaper.Shaper
	desk    *consumers.Desk
	// destination is the desk's.
	destination consumers.Destination
	// graveyard is where operators see the dead letters.
	graveyard *consumers.Graveyard

	limits *limits.Set
	labels *tenantLabels
	admin  *adminServer

	liveLimits *limits.Live

	history  *history.Ring
	traffic  *history.Traffic
	refusals *history.Refusals
	events   *events
	recorder *recorder

	draining    atomic.Bool
	deadLetters atomic.Uint64
	storage     atomic.Int64           // bytes that the broker's storage has left; negative: it does not tell
	captured    atomic.Pointer[string] // a stream that captures the ingress
	full        atomic.Pointer[error]  // the embedded store's disk has no room

	failed     context.Context
	fail       context.CancelCauseFunc
	front      sync.WaitGroup
	outlet     sync.WaitGroup
	back       sync.WaitGroup
	stopDoor   context.CancelFunc
	stopOutlet context.CancelFunc
	cleanups   []cleanup
}

// start brings everything up in order, or nothing.
func (a *App) start(ctx context.Context) (_ *gateway, err error) {
	cfg := a.opts.Config
	g := &gateway{
		cfg: cfg, log: a.opts.Logger, registry: a.registry,
		version: a.opts.Version, tracer: a.opts.Tracer, id: replicaID(), clock: newClock(),
		history: history.NewRing(keptSamples), traffic: history.NewTraffic(), refusals: history.NewRefusals(),
		events: newEvents(mostViewers(adminRoom())), recorder: newRecorder(),
	}
	failed, fail := context.WithCancelCause(context.Background())
	g.failed, g.fail = failed, func(cause error) { fail(cause) }
	defer func() {
		if err != nil {
			g.halt()
		}
	}()
	g.storage.Store(-1)

	if g.broker, err = broker.Start(ctx, brokerConfig(cfg), g.log); err != nil {
		return nil, err
	}
	g.onStop("broker", g.broker.Close)
	g.standBy = newStandBy(g)
	if cfg.Admin.Listen != settings.Off {
		if err = g.openAdmin(); err != nil {
			return nil, err
		}
	}
	if err = g.connect(ctx); err != nil {
		return nil, err
	}
	g.labels = newTenantLabels(cfg.Metrics.TenantsMax)
	if err = g.openConsumer(ctx, a.opts.Destination, a.opts.Stdout); err != nil {
		return nil, err
	}
	if err = g.makePath(ctx); err != nil {
		return nil, err
	}
	if cfg.Ingress.HTTPListen != settings.Off {
		if err = g.openHTTP(); err != nil {
			return nil, err
		}
	}
	g.registry.MustRegister(newCollector(g))
	return g, g.launch(ctx)
}

// replicaID names this process among those of its name.
func replicaID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + nuid.Next()[16:]
}

func goVersion() string { return runtime.Version() }

// rate is the shaper's present pace a second.
func (g *gateway) rate() float64 { return g.shaper.Rate().Effective }

func (g *gateway) adminAddr() string {
	if g.admin == nil {
		return settings.Off
	}
	return g.admin.listener.Addr().String()
}

func (g *gateway) httpAddr() string {
	if g.web == nil {
		return settings.Off
	}
	return g.web.Addr()
}

func (g *gateway) heartbeat() time.Time { return g.shaper.Audit().Tried }

func (g *gateway) breakerState() string { return g.desk.BreakerState().String() }
