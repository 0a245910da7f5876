// Package demo shows the gateway at work for about 20 seconds, on free loopback
// ports and a temporary directory, and then checks its promises from the database
// and the producers' own records.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
)

// Options are where the demo shows itself.
type Options struct {
	Out io.Writer
	// Terminal: the live line is drawn over the one before, cut to Width columns (0:
	// 80).
	Terminal bool
	Width    int
	Version  string
	// Load is how long producers publish; 0: 14 s.
	Load time.Duration
}

// The demo's times: what is left is drained after the load.
const (
	load       = 14 * time.Second
	drainLimit = 15 * time.Second
)

// environ is the demo's configuration, as a user would write it.
func environ(dir string) []string {
	return []string{
		"FLOWGATE_DATA_DIR=" + dir,
		"FLOWGATE_NATS_LISTEN=127.0.0.1:0",
		"FLOWGATE_ADMIN_LISTEN=127.0.0.1:0",
		"FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0",
		"FLOWGATE_LIMIT_TENANT=token-bucket:100/s,burst=200",
		"FLOWGATE_BACKPRESSURE_HIGH=400",
		"FLOWGATE_SHAPER_RATE=200/s",
	}
}

// cast are the tenants: one is fine, one idles and comes back all at once, one
// sends ten times what it may and does not listen.
func cast() []producers.Producer {
	return []producers.Producer{
		{Tenant: "steady", Topic: "orders", Plan: producers.Steady(90), Obeys: true, Prefix: "s", Size: 256},
		{Tenant: "bursty", Topic: "reports", Plan: producers.Bursts(200, 3*time.Second, 4*time.Second), Obeys: true, Prefix: "b", Size: 256},
		{Tenant: "greedy", Topic: "events", Plan: producers.Steady(1000), Prefix: "g", Size: 256},
	}
}

// errBroken is what Run returns if a promise was not kept.
var errBroken = errors.New("the demo found a promise broken")

// Run shows and checks; an error means that a promise was broken or that the demo
// could not run.
func Run(ctx context.Context, opts Options) (err error) {
	if opts.Load == 0 {
		opts.Load = load
	}
	dir, err := os.MkdirTemp("", "flowgate-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cfg, err := settings.Load(environ(dir))
	if err != nil {
		return err
	}
	a, err := app.New(app.Options{Config: cfg, Version: opts.Version,
		Logger: slog.New(slog.NewTextHandler(opts.Out, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	select {
	case err := <-ended:
		return err
	case <-a.Ready():
	}
	url, admin := a.Addr()
	introduce(opts.Out, cfg, url, admin)

	ledger := invariants.NewLedger()
	show := newScreen(opts, a, ledger)
	err = perform(ctx, url, opts.Load, ledger, show)
	stop()
	if e := <-ended; err == nil {
		err = e
	}
	show.end()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was checked")
	}
	rows, err := invariants.ReadSQLite(context.WithoutCancel(ctx), filepath.Join(dir, "messages.db"))
	if err != nil {
		return err
	}
	table(opts.Out, ledger, rows)
	checks := []invariants.Check{
		ledger.Delivered(rows), ledger.NotDelivered(rows),
		invariants.Rate(invariants.Departures(rows), cfg.Shaper.Rate, cfg.Shaper.Tolerance),
		invariants.Depth(rows, cfg.Backpressure.Marks().Max),
	}
	fmt.Fprintf(opts.Out, "\nchecked from the database and the producers' own records:\n%s", invariants.Report(checks))
	for _, c := range checks {
		if !c.OK() {
			return errBroken
		}
	}
	farewell(opts.Out)
	return nil
}

// perform has the tenants publish and waits until the backlog is empty.
func perform(ctx context.Context, url string, load time.Duration, ledger *invariants.Ledger, show *screen) error {
	loading, enough := context.WithTimeout(ctx, load)
	defer enough()
	var tenants sync.WaitGroup
	for _, p := range cast() {
		nc, err := nats.Connect(url, nats.Name("demo "+p.Tenant))
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(5*time.Second))
		if err != nil {
			return err
		}
		tenants.Go(func() { p.Run(loading, js, ledger) })
	}
	done := make(chan struct{})
	go func() { tenants.Wait(); close(done) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	idle := time.NewTicker(100 * time.Millisecond)
	defer idle.Stop()
	var drained <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			<-done
			return nil
		case <-done:
			done, drained = nil, time.After(drainLimit)
		case <-tick.C:
			show.line()
		case <-idle.C:
			if done == nil && show.depth() == 0 {
				return nil
			}
		case <-drained:
			return fmt.Errorf("the backlog was not empty %s after the load", drainLimit)
		}
	}
}
