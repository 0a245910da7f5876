// Package app is the gateway's process without the process: it wires the
// packages together, starts and stops them in order, and serves the admin
// address. It reads no environment and handles no signals, so that the demo, the
// load tests and the tests run the very same thing.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/tracing"
)

// Options are what a gateway is made of.
type Options struct {
	Config settings.Config
	Logger *slog.Logger
	// Destination takes the place of the one that Config.Consumer.URL names; it
	// is not closed.
	Destination consumers.Destination
	// Stdout is where FLOWGATE_CONSUMER_URL=stdout: delivers to; nil: that is refused.
	Stdout io.Writer
	// Tracer makes and sends spans while the gateway runs; nil: nothing is traced.
	Tracer *tracing.Tracer
	// Version is shown in status and metrics.
	Version string
}

// App is one gateway.
type App struct {
	opts     Options
	registry *prometheus.Registry
	ready    chan struct{}

	mu sync.Mutex
	g  *gateway
}

// New checks the options; nothing starts before Run.
func New(opts Options) (*App, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := opts.Config.Validate(); err != nil {
		return nil, err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &App{opts: opts, registry: reg, ready: make(chan struct{})}, nil
}

// Ready is closed once producers are served.
func (a *App) Ready() <-chan struct{} { return a.ready }

// Addr gives the addresses that are listened on; empty ones are off. It is valid
// once Ready is closed.
func (a *App) Addr() (nats, admin string) {
	g := a.running()
	if g == nil {
		return "", ""
	}
	if g.admin != nil {
		admin = g.admin.listener.Addr().String()
	}
	return g.broker.ClientURL(), admin
}

// HTTPAddr is the address of the HTTP ingress, empty if it is off. It is valid once
// Ready is closed.
func (a *App) HTTPAddr() string {
	if g := a.running(); g != nil && g.web != nil {
		return g.web.Addr()
	}
	return ""
}

// errNotReady is what Connect returns before Ready.
var errNotReady = errors.New("the gateway is not ready yet")

// Connect opens a connection as a producer in this process, with a producer's
// rights; with FLOWGATE_NATS_LISTEN=off there is no other. The caller closes it.
func (a *App) Connect(opts ...nats.Option) (*nats.Conn, error) {
	g := a.running()
	if g == nil {
		return nil, errNotReady
	}
	return g.broker.Client(opts...)
}

// Status reads the gateway's state; ok is false before Ready.
func (a *App) Status() (s Status, ok bool) {
	if g := a.running(); g != nil {
		return g.status(), true
	}
	return Status{}, false
}

func (a *App) running() *gateway {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.g
}

// Run serves until ctx ends; then it refuses, finishes what is in flight, and
// returns nil. It returns what went wrong if the gateway cannot start or go on.
func (a *App) Run(ctx context.Context) error {
	defer a.trace()()
	g, err := a.start(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		a.opts.Logger.Info("stopped before it was ready", "reason", err)
		return nil
	case err != nil:
		return err
	}
	a.mu.Lock()
	a.g = g
	a.mu.Unlock()
	close(a.ready)
	g.log.Info("ready", "nats", g.broker.ClientURL(), "http", g.httpAddr(), "admin", g.adminAddr(),
		"consumer", settings.MaskURL(g.cfg.Consumer.URL), "rate", g.cfg.Shaper.Rate.String())

	select {
	case <-ctx.Done():
	case <-g.failed.Done():
	}
	cause := context.Cause(g.failed)
	g.shutdown(cause == nil)
	if cause != nil {
		return cause
	}
	g.log.Info("stopped")
	return nil
}

// cleanup is one step of the way back.
type cleanup struct {
	name string
	stop func(ctx context.Context) error
}

// unwind undoes what was started, last first, within the time that ctx leaves.
func (g *gateway) unwind(ctx context.Context) {
	for i := len(g.cleanups) - 1; i >= 0; i-- {
		c := g.cleanups[i]
		if err := c.stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
			g.log.Warn("not stopped cleanly", "part", c.name, "error", err)
		}
	}
	g.cleanups = nil
}

func (g *gateway) onStop(name string, stop func(ctx context.Context) error) {
	g.cleanups = append(g.cleanups, cleanup{name, stop})
}

// shutdown: unready, refuse with draining, finish what is in flight, give the
// lease back, close. orderly is false if something failed: then there is no
// waiting for the world to notice.
func (g *gateway) shutdown(orderly bool) {
	g.draining.Store(true)
	if orderly {
		g.log.Info("shutting down", "delay", g.cfg.ShutdownDelay.String(), "timeout", g.cfg.ShutdownTimeout.String())
		time.Sleep(g.cfg.ShutdownDelay)
	}
	g.halt()
}

// halt ends whatever was started, the outlet first.
func (g *gateway) halt() {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.ShutdownTimeout)
	defer cancel()
	if g.stopOutlet != nil { // the loops run
		g.door.Drain()
		g.stopOutlet() // deliveries in flight end, within the drain time
		g.outlet.Wait()
		g.stopDoor()
		g.front.Wait()
	}
	g.unwind(ctx)
}

// component runs f until its context ends; what it returns ends the gateway.
func (g *gateway) component(group *sync.WaitGroup, name string, ctx context.Context, f func(context.Context) error) {
	group.Go(func() {
		if err := f(ctx); err != nil {
			g.fail(fmt.Errorf("%s: %w", name, err))
		}
	})
}
