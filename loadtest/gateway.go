package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
)

// gateway is a running one within this process.
type gateway struct {
	*app.App
	url  string
	stop func() error
}

// startGateway runs a gateway on free ports; environ is added to that.
func startGateway(ctx context.Context, dir string, destination consumers.Destination, environ ...string) (*gateway, error) {
	cfg, err := settings.Load(append([]string{
		"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
	}, environ...))
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	a, err := app.New(app.Options{Config: cfg, Destination: destination, Logger: log})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	select {
	case err := <-ended:
		cancel()
		return nil, err
	case <-a.Ready():
	}
	url, _ := a.Addr()
	return &gateway{a, url, func() error { cancel(); return <-ended }}, nil
}
