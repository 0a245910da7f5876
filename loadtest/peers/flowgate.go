package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
)

// flowgatePeer is the whole gateway.
type flowgatePeer struct {
	stop func() error
	nc   *nats.Conn
	js   jetstream.JetStream
}

// destination is the database as flowgate sees it.
type destination struct {
	write func(ctx context.Context, payload []byte) error
}

func (d destination) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	verdicts := make([]error, len(batch))
	for i, one := range batch {
		verdicts[i] = d.write(ctx, one.Payload)
	}
	return verdicts
}

func (destination) Close() error { return nil }

func (p *flowgatePeer) Start(ctx context.Context, s setup) error {
	rate := "unlimited"
	if s.Rate > 0 {
		rate = fmt.Sprintf("%d/s", s.Rate)
	}
	environ := []string{
		"FLOWGATE_DATA_DIR=" + s.Dir, "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_SHAPER_RATE=" + rate,
		fmt.Sprintf("FLOWGATE_BACKPRESSURE_HIGH=%d", s.Backlog),
		fmt.Sprintf("FLOWGATE_CONSUMER_CONCURRENCY=%d", s.Workers),
		fmt.Sprintf("FLOWGATE_CONSUMER_BACKOFF=%s", retryAfter),
	}
	if s.Rate == 0 {
		environ = append(environ, "FLOWGATE_LIMIT_TENANT=unlimited")
	}
	cfg, err := settings.Load(environ)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	a, err := app.New(app.Options{Config: cfg, Destination: destination{s.Write}, Logger: log})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	select {
	case err := <-ended:
		cancel()
		return err
	case <-a.Ready():
	}
	p.stop = func() error { cancel(); return <-ended }
	url, _ := a.Addr()
	if p.nc, err = nats.Connect(url); err != nil {
		return err
	}
	p.js, err = jetstream.New(p.nc)
	return err
}

func (p *flowgatePeer) Publish(ctx context.Context, tenant string, payload []byte) error {
	_, err := p.js.Publish(ctx, "ingress."+tenant+".orders", payload)
	return err
}

func (p *flowgatePeer) Close() error {
	if p.nc != nil {
		p.nc.Close()
	}
	if p.stop == nil {
		return nil
	}
	return p.stop()
}
