package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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
	bareCalm, _, err := besideResponder(ctx, length, false)
	if err != nil {
		return nil, err
	}
	bareFlooded, _, err := besideResponder(ctx, length, true)
	if err != nil {
		return nil, err
	}
	p99 := func(took []time.Duration) float64 { return percentile(took, 0.99).Seconds() * 1e3 }
	return append(figures,
		figure{"refusals beside", refused, "a second", 0, 0},
		figure{"p99 to an answer of who is admitted, without refusals", p99(calm), "ms", 0, 0},
		figure{"the same beside the refusals", p99(flooded), "ms", 0, 0},
		figure{"added", p99(flooded) - p99(calm), "ms", 0, 1},
		figure{"p99 of a stream without gateway, without refusals", p99(bareCalm), "ms", 0, 0},
		figure{"the same beside a bare responder that refuses as much", p99(bareFlooded), "ms", 0, 0},
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
	// Every message is over HIGH, and only the mode lets it in.
	pressured := []string{"FLOWGATE_MODE=shadow", "FLOWGATE_BACKPRESSURE_HIGH=1", "FLOWGATE_BACKPRESSURE_LOW=0", "FLOWGATE_BACKPRESSURE_MAX=10000000"}
	var raw, gated []result
	for round := range rounds {
		r, g, err := forwardingRound(ctx, round%2 == 1, pressured, load)
		if err != nil {
			return 0, err
		}
		raw, gated = append(raw, r...), append(gated, g...)
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
	return publishBeside(ctx, g.url, "ingress.acme.orders", length, flooding)
}

// besideResponder is besideRefusals without a gateway: the one publishes to a stream, and
// the other is refused by a subscription that knows nothing else. That much is the
// machine's and the broker's.
func besideResponder(ctx context.Context, length time.Duration, flooding bool) (took []time.Duration, refused float64, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, SyncInterval: 100 * time.Millisecond})
	if err != nil {
		return nil, 0, err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(5 * time.Second) {
		return nil, 0, errors.New("the server does not listen")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return nil, 0, err
	}
	defer nc.Close()
	body := []byte(`{"type":"io.flowgate.v1.nak","error":{"code":429,"err_code":60429,"description":"tenant hog over token-bucket:1/s; retry_after_ms=1000"}}`)
	if _, err := nc.Subscribe("ingress.>", func(m *nats.Msg) {
		nak := &nats.Msg{Subject: m.Reply, Header: nats.Header{"Flowgate-Retry-After-Ms": {"1000"}}, Data: body}
		_ = nc.PublishMsg(nak)
	}); err != nil {
		return nil, 0, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, 0, err
	}
	if _, err := js.CreateStream(ctx, rawStream()); err != nil {
		return nil, 0, err
	}
	return publishBeside(ctx, s.ClientURL(), "raw.acme.orders", length, flooding)
}

// publishBeside publishes 500 messages a second and tells how long each answer took, while
// another sends 100,000 a second that are refused, if flooding.
func publishBeside(ctx context.Context, url, subject string, length time.Duration, flooding bool) (took []time.Duration, refused float64, err error) {
	running, stop := context.WithTimeout(ctx, length)
	defer stop()
	var answers atomic.Uint64
	if flooding {
		nc, err := nats.Connect(url)
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
	nc, err := nats.Connect(url)
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
		if _, err := js.Publish(running, subject, make([]byte, 256)); err != nil {
			if running.Err() != nil {
				break
			}
			return nil, 0, fmt.Errorf("an admitted tenant: %w", err)
		}
		took = append(took, time.Since(began))
	}
	return took, float64(answers.Load()) / length.Seconds(), ctx.Err()
}
