package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/consumers"
)

// order notes whose message was delivered, one after the other.
type order struct {
	mu      sync.Mutex
	tenants []string
}

func (o *order) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range batch {
		o.tenants = append(o.tenants, d.Tenant)
	}
	return make([]error, len(batch))
}

func (o *order) Close() error { return nil }

func (o *order) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.tenants)
}

// measureFairness has tenants of the weights 5, 3 and 2 share the rate, and a new
// tenant come while 1, 100 and 100,000 others have messages waiting.
func measureFairness(ctx context.Context, short bool) ([]figure, error) {
	figures, err := measureWeights(ctx, short)
	if err != nil {
		return nil, err
	}
	others := []int{1, 100, 100_000}
	if short {
		others = []int{1, 100}
	}
	for _, n := range others {
		f, err := measureNewcomer(ctx, n)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func measureWeights(ctx context.Context, short bool) (_ []figure, err error) {
	deliveries := 10_000
	if short {
		deliveries = 500
	}
	weights := map[string]int{"five": 5, "three": 3, "two": 2}
	o := &order{}
	err = withBacklog(ctx, o, "FLOWGATE_SHAPER_RATE=1000/s", func(publish func(tenant string, n int) error) error {
		for range deliveries / 10 { // side by side: delivery begins before all are read
			for tenant := range weights {
				if err := publish(tenant, 10); err != nil {
					return err
				}
			}
		}
		return nil
	}, func(func(string, int) error) error { return await(ctx, func() bool { return o.len() >= deliveries }) },
		"FLOWGATE_SHAPER_WEIGHTS=five=5,three=3,two=2")
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, tenant := range o.tenants[:deliveries] {
		count[tenant]++
	}
	worst := 0.
	for tenant, w := range weights {
		want := float64(deliveries*w) / 10
		worst = max(worst, math.Abs(float64(count[tenant])-want)/want*100)
	}
	return []figure{{fmt.Sprintf("weights 5:3:2 over %d deliveries: furthest from its part", deliveries), worst, "%", 0, 1}}, nil
}

func measureNewcomer(ctx context.Context, others int) (_ []figure, err error) {
	o := &order{}
	each := max(2, 800/others)
	// Slow enough that the way into the index takes no turn of anybody's.
	rate := "FLOWGATE_SHAPER_RATE=200/s"
	if others > 1000 {
		rate = "FLOWGATE_SHAPER_RATE=5000/s"
	}
	from := 0
	err = withBacklog(ctx, o, rate, func(publish func(string, int) error) error {
		for i := range others {
			if err := publish(fmt.Sprintf("tenant%d", i), each); err != nil {
				return err
			}
		}
		return nil
	}, func(publish func(string, int) error) error {
		if err := await(ctx, func() bool { return o.len() >= others*each/4 }); err != nil {
			return err
		}
		if err := publish("newcomer", 1); err != nil {
			return err
		}
		from = o.len() // admitted by now
		return await(ctx, func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, tenant := range o.tenants {
				if tenant == "newcomer" {
					return true
				}
			}
			return false
		})
	})
	if err != nil {
		return nil, err
	}
	most, before := 0, map[string]int{}
	for _, tenant := range o.tenants[from:] {
		if tenant == "newcomer" {
			break
		}
		before[tenant]++
		most = max(most, before[tenant])
	}
	// What was in flight when it came may add one of each delivery under way.
	return []figure{{fmt.Sprintf("a newcomer beside %d tenants: most messages of another before it", others), float64(most), "messages", 0, 2}}, nil
}

// withBacklog makes a backlog while nothing is delivered, and has the gateway work on it.
func withBacklog(ctx context.Context, d consumers.Destination, rate string, fill, work func(publish func(tenant string, n int) error) error, environ ...string) (err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	environ = append(environ, "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=1000000")
	run := func(rate string, do func(func(string, int) error) error) (err error) {
		g, err := startGateway(ctx, dir, d, append(environ, rate)...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.stop()) }()
		nc, err := nats.Connect(g.url)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		return do(func(tenant string, n int) error {
			for range n {
				if _, err := js.PublishAsync("ingress."+tenant+".orders", nil, jetstream.WithStallWait(10*time.Second)); err != nil {
					return err
				}
			}
			if n > 1 {
				return nil
			}
			select {
			case <-js.PublishAsyncComplete():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	if err := run("FLOWGATE_SHAPER_RATE=1/h", func(publish func(string, int) error) error {
		if err := fill(publish); err != nil {
			return err
		}
		return publish("last", 1) // when it is there all are
	}); err != nil {
		return err
	}
	if o, ok := d.(*order); ok {
		o.mu.Lock()
		o.tenants = nil
		o.mu.Unlock()
	}
	return run(rate, work)
}
