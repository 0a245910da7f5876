package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// measureRefusing tells what pressure costs: forwarding while every message would be
// refused but for the mode, and the time to an answer of those who are admitted while
// another is refused all it sends.
func measureRefusing(ctx context.Context, short bool) ([]figure, error) {
	ratio, err := forwardingPressured(ctx, short)
	if err != nil {
		return nil, err
	}
	figures := []figure{{"async publishing under pressure, of raw", ratio, "", 0.80, 0}}
	length := 15 * time.Second
	if short {
		length = time.Second
	}
	calm, _, err := besideRefusals(ctx, length, false)
	if err != nil {
		return nil, err
	}
	flooded, refused, err := besideRefusals(ctx, length, true)
	if err != nil {
		return nil, err
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	a, b := percentile(calm, 0.99), percentile(flooded, 0.99)
	return append(figures,
		figure{"refusals beside", refused, "a second", 0, 0},
		figure{"p99 to an answer of who is admitted, without refusals", ms(a), "ms", 0, 0},
		figure{"the same beside the refusals", ms(b), "ms", 0, 0},
		figure{"added", ms(b - a), "ms", 0, 1},
	), nil
}

// forwardingPressured is how fast messages go through a gateway that is over HIGH, in
// the mode that refuses nothing, against a stream without one.
func forwardingPressured(ctx context.Context, short bool) (ratio float64, err error) {
	load := publishLoad{producers: 2, messages: 150_000}
	rounds := 5
	if short {
		load.messages, rounds = 5_000, 1
	}
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte("listen: 127.0.0.1:-1\n"), 0o600); err != nil {
		return 0, err
	}
	g, err := startGateway(ctx, filepath.Join(dir, "data"), discard{}, "FLOWGATE_NATS_CONFIG="+conf, "FLOWGATE_MODE=shadow",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=1", "FLOWGATE_BACKPRESSURE_LOW=0", "FLOWGATE_BACKPRESSURE_MAX=10000000", "FLOWGATE_BACKPRESSURE_MAX_BYTES=64GiB")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	nc, err := nats.Connect(g.url)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	if _, err := js.CreateStream(ctx, rawStream()); err != nil {
		return 0, err
	}
	var raw, gated []result
	for round := range rounds {
		order := []string{"raw", "ingress"}
		if round%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		for _, prefix := range order {
			r, err := load.run(ctx, g.url, prefix)
			if err != nil {
				return 0, err
			}
			if prefix == "raw" {
				raw = append(raw, r)
			} else {
				gated = append(gated, r)
			}
		}
	}
	rate := func(r result) float64 { return r.perSecond }
	return median(gated, rate) / median(raw, rate), nil
}

// besideRefusals is how long a tenant waits for its answers that sends 500 a second, and
// how many messages of another are refused meanwhile.
func besideRefusals(ctx context.Context, length time.Duration, flooding bool) (took []time.Duration, refused float64, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	g, err := startGateway(ctx, dir, discard{}, "FLOWGATE_SHAPER_RATE=2000/s",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_LIMIT_TENANT_OVERRIDES=hog=token-bucket:1/s")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	running, stop := context.WithTimeout(ctx, length)
	defer stop()
	var answers atomic.Uint64
	if flooding {
		nc, err := nats.Connect(g.url)
		if err != nil {
			return nil, 0, err
		}
		defer nc.Close()
		inbox := nc.NewInbox()
		if _, err := nc.Subscribe(inbox, func(*nats.Msg) { answers.Add(1) }); err != nil {
			return nil, 0, err
		}
		go func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for start, sent := time.Now(), 0; ; {
				select {
				case <-running.Done():
					return
				case <-tick.C:
				}
				for want := int(time.Since(start).Seconds() * 100_000); sent < want; sent++ {
					_ = nc.PublishRequest("ingress.hog.orders", inbox, nil)
				}
			}
		}()
	}
	nc, err := nats.Connect(g.url)
	if err != nil {
		return nil, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, 0, err
	}
	for next := time.Now(); ; next = next.Add(2 * time.Millisecond) {
		if !sleepUntil(running, next) {
			break
		}
		began := time.Now()
		if _, err := js.Publish(running, "ingress.acme.orders", make([]byte, 256)); err != nil {
			if running.Err() != nil {
				break
			}
			return nil, 0, fmt.Errorf("an admitted tenant: %w", err)
		}
		took = append(took, time.Since(began))
	}
	return took, float64(answers.Load()) / length.Seconds(), ctx.Err()
}
