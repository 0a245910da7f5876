package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
)

// receiver notes when each delivery reaches it.
type receiver struct {
	mu   sync.Mutex
	came []time.Time
}

func (r *receiver) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.came = append(r.came, now)
	return make([]error, len(batch))
}

func (r *receiver) Close() error { return nil }

func (r *receiver) take() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := r.came
	r.came = nil
	return came
}

// paceFlowgate is the whole gateway, seen from its consumer.
func paceFlowgate(ctx context.Context, perSecond int, length time.Duration) ([]time.Time, error) {
	dir, done, err := scratch()
	if err != nil {
		return nil, err
	}
	defer done()
	r := &receiver{}
	if err := gateway(ctx, dir, r, "1/h", func(a *app.App) error {
		return publish(ctx, a, perSecond*int(length/time.Second+2)*2)
	}); err != nil {
		return nil, err
	}
	err = gateway(ctx, dir, r, fmt.Sprintf("%d/s", perSecond), func(*app.App) error {
		time.Sleep(time.Second) // the intake is over
		r.take()
		time.Sleep(length)
		return nil
	})
	return r.take(), err
}

// gateway runs one while do does its work.
func gateway(ctx context.Context, dir string, d consumers.Destination, rate string, do func(*app.App) error) error {
	cfg, err := settings.Load([]string{
		"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=10000000", "FLOWGATE_SHAPER_RATE=" + rate,
	})
	if err != nil {
		return err
	}
	a, err := app.New(app.Options{Config: cfg, Destination: d, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	select {
	case err := <-ended:
		stop()
		return err
	case <-a.Ready():
	}
	err = do(a)
	stop()
	return errors.Join(err, <-ended)
}

func publish(ctx context.Context, a *app.App, n int) error {
	nc, err := a.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := js.PublishAsync(fmt.Sprintf("ingress.tenant%d.orders", i%3), make([]byte, 256), jetstream.WithStallWait(10*time.Second)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scratch is a directory that is there until done.
func scratch() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp("", "flowgate-pacers-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}
