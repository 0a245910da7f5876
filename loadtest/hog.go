package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/loadtest/producers"
)

// queued notes how long the quiet tenants' messages waited for their delivery.
type queued struct {
	mu    sync.Mutex
	waits []time.Duration
}

func (q *queued) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range batch {
		if d.Tenant != "hog" {
			q.waits = append(q.waits, d.ReleasedAt.Sub(d.AdmittedAt))
		}
	}
	return make([]error, len(batch))
}

func (q *queued) Close() error { return nil }

// measureHog has nine quiet tenants publish, at half of what they may, without and with
// one that publishes a hundred times its part.
func measureHog(ctx context.Context, short bool) ([]figure, error) {
	length := 40 * time.Second
	if short {
		length = 2 * time.Second
	}
	alone, refusedAlone, err := besideHog(ctx, length, 0)
	if err != nil {
		return nil, err
	}
	beside, refused, err := besideHog(ctx, length, 100)
	if err != nil {
		return nil, err
	}
	p99 := func(waits []time.Duration) float64 { return percentile(waits, 0.99).Seconds() * 1e3 }
	return []figure{
		{"nine quiet tenants alone: refused", float64(refusedAlone), "messages", 0, 1e-9},
		{"nine quiet tenants alone: p99 in the queue", p99(alone), "ms", 0, 0},
		{"beside a hog at 100 times its part: refused", float64(refused), "messages", 0, 1e-9},
		{"beside a hog at 100 times its part: p99 in the queue", p99(beside), "ms", 0, 0},
		{"beside the hog, of alone", p99(beside) / p99(alone), "", 0, 2},
	}, nil
}

func besideHog(ctx context.Context, length time.Duration, times float64) (waits []time.Duration, refused int, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	const rate, tenants = 200.0, 10
	q := &queued{}
	g, err := startGateway(ctx, dir, q, fmt.Sprintf("FLOWGATE_SHAPER_RATE=%g/s", rate),
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=1000")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	connect := func() (jetstream.JetStream, func(), error) {
		nc, err := nats.Connect(g.url)
		if err != nil {
			return nil, nil, err
		}
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(5*time.Second))
		return js, nc.Close, err
	}
	running, stop := context.WithTimeout(ctx, length)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	var problem error
	if times > 0 {
		js, end, err := connect()
		if err != nil {
			return nil, 0, err
		}
		defer end()
		all.Go(func() { _ = flood(running, js, func(int) string { return "ingress.hog.orders" }, rate/tenants*times) })
	}
	for i := range tenants - 1 {
		js, end, err := connect()
		if err != nil {
			return nil, 0, err
		}
		defer end()
		all.Go(func() {
			tick := time.NewTicker(time.Duration(2 * tenants / rate * float64(time.Second)))
			defer tick.Stop()
			for {
				select {
				case <-running.Done():
					return
				case <-tick.C:
				}
				_, err := js.Publish(running, fmt.Sprintf("ingress.quiet%d.orders", i), make([]byte, 256))
				if err == nil || running.Err() != nil {
					continue
				}
				mu.Lock()
				if reason, _ := producers.Answer(err); reason == "" {
					problem = errors.Join(problem, err)
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits, refused, errors.Join(problem, ctx.Err())
}
