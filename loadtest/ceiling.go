package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
)

// measureCeiling empties a backlog as fast as it goes: through the shaper with an
// unlimited rate to standard output, which is /dev/null, and with a bare JetStream pull
// consumer that acknowledges. The medians of rounds that take turns.
func measureCeiling(ctx context.Context, short bool) ([]figure, error) {
	messages, rounds := 200_000, 5
	if short {
		messages, rounds = 10_000, 1
	}
	var bare, ours []float64
	for range rounds {
		b, err := bareCeiling(ctx, messages)
		if err != nil {
			return nil, err
		}
		o, err := shaperCeiling(ctx, messages)
		if err != nil {
			return nil, err
		}
		bare, ours = append(bare, b), append(ours, o)
	}
	slices.Sort(bare)
	slices.Sort(ours)
	b, o := bare[rounds/2], ours[rounds/2]
	return []figure{
		{"bare pull consumer with acks", b, "msg/s", 0, 0},
		{"shaper to /dev/null, rate unlimited", o, "msg/s", 0, 0},
		{"ratio", o / b, "", 0.6, 0},
	}, nil
}

func bareCeiling(ctx context.Context, messages int) (_ float64, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true, SyncInterval: 100 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work.>"}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		return 0, err
	}
	if err := publish(ctx, js, load{prefix: "work", messages: messages}); err != nil {
		return 0, err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000})
	if err != nil {
		return 0, err
	}
	var n atomic.Int64
	failed := make(chan error, 1)
	began := time.Now()
	work, err := consumer.Consume(func(m jetstream.Msg) {
		if err := m.Ack(); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		n.Add(1)
	}, jetstream.PullMaxMessages(1000))
	if err != nil {
		return 0, err
	}
	defer work.Stop()
	for n.Load() < int64(messages) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case err := <-failed:
			return 0, err
		case <-time.After(time.Millisecond):
		}
	}
	return float64(messages) / time.Since(began).Seconds(), nil
}

func shaperCeiling(ctx context.Context, messages int) (_ float64, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	run := func(rate string, do func(a *app.App) error) (err error) {
		cfg, err := settings.Load([]string{
			"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
			"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=2000000", "FLOWGATE_CONSUMER_URL=stdout:", "FLOWGATE_SHAPER_RATE=" + rate,
		})
		if err != nil {
			return err
		}
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
		a, err := app.New(app.Options{Config: cfg, Stdout: null, Logger: log})
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- a.Run(running) }()
		defer func() { stop(); err = errors.Join(err, <-ended) }()
		select {
		case <-a.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
		return do(a)
	}
	if err := run("1/h", func(a *app.App) error {
		nc, err := a.Connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		return publish(ctx, js, load{messages: messages})
	}); err != nil {
		return 0, err
	}
	var perSecond float64
	began := time.Now()
	err = run("unlimited", func(a *app.App) error {
		for {
			if s, ok := a.Status(); ok && s.Depth.Total == 0 {
				perSecond = float64(messages) / time.Since(began).Seconds()
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	})
	return perSecond, err
}
