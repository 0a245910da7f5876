package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/consumers"
)

// discard takes everything.
type discard struct{}

func (discard) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	return make([]error, len(batch))
}
func (discard) Close() error { return nil }

// load is one kind of producer.
type publishLoad struct {
	producers, messages int // messages of each producer
	sync                bool
}

// result is one run of a load.
type result struct {
	perSecond float64
	p99       time.Duration // of a sync publish
}

// measureForwarding compares publishing to a stream with publishing through the
// gateway, on the same server, one after the other, with the default pace behind
// it. The median of five pairs of each counts, and each pair's order alternates.
func measureForwarding(ctx context.Context, short bool) ([]figure, error) {
	rounds := 5
	async := publishLoad{producers: 2, messages: 150_000}
	syncs := publishLoad{producers: 8, messages: 12_000, sync: true}
	if short {
		rounds, async.messages, syncs.messages = 1, 5_000, 500
	}
	var raw, gated [2][]result
	for round := range rounds {
		r, g, err := forwardingRound(ctx, round%2 == 1, nil, async, syncs)
		if err != nil {
			return nil, err
		}
		for i := range r {
			raw[i], gated[i] = append(raw[i], r[i]), append(gated[i], g[i])
		}
	}
	rate := func(r result) float64 { return r.perSecond }
	p99 := func(r result) float64 { return r.p99.Seconds() * 1e3 }
	return []figure{
		{"2 async producers, raw", median(raw[0], rate), "msg/s", 0, 0},
		{"2 async producers, through flowgate", median(gated[0], rate), "msg/s", 0, 0},
		{"ratio", median(gated[0], rate) / median(raw[0], rate), "", 0.80, 0},
		{"8 sync producers, raw", median(raw[1], rate), "msg/s", 0, 0},
		{"8 sync producers, through flowgate", median(gated[1], rate), "msg/s", 0, 0},
		{"ratio", median(gated[1], rate) / median(raw[1], rate), "", 0.75, 0},
		{"p99 of sync, raw", median(raw[1], p99), "ms", 0, 0},
		{"p99 of sync, through flowgate", median(gated[1], p99), "ms", 0, 0},
		{"ratio", median(gated[1], p99) / median(raw[1], p99), "", 0, 1.4},
	}, nil
}

func median(rs []result, of func(result) float64) float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// forwardingRound runs each load both ways on a fresh server. The server lets
// clients publish to a stream directly, which the gateway's default would not.
func forwardingRound(ctx context.Context, gateFirst bool, environ []string, loads ...publishLoad) (raw, gated []result, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte("listen: 127.0.0.1:-1\n"), 0o600); err != nil {
		return nil, nil, err
	}
	g, err := startGateway(ctx, filepath.Join(dir, "data"), discard{}, append([]string{
		"FLOWGATE_NATS_CONFIG=" + conf, "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=10000000", "FLOWGATE_BACKPRESSURE_MAX_BYTES=64GiB",
	}, environ...)...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	nc, err := nats.Connect(g.url)
	if err != nil {
		return nil, nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	if _, err := js.CreateStream(ctx, rawStream()); err != nil {
		return nil, nil, err
	}
	for _, l := range loads {
		one := func(prefix string, into *[]result) error {
			r, err := l.run(ctx, g.url, prefix)
			*into = append(*into, r)
			return err
		}
		if gateFirst {
			err = errors.Join(one("ingress", &gated), one("raw", &raw))
		} else {
			err = errors.Join(one("raw", &raw), one("ingress", &gated))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return raw, gated, nil
}

// rawStream is as the backlog is, so that only the way there differs.
func rawStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "RAW", Subjects: []string{"raw.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, MaxMsgs: 100_000_000, AllowDirect: true, Duplicates: 2 * time.Minute,
	}
}

// run publishes with one connection a producer; a message is 256 bytes.
func (l publishLoad) run(ctx context.Context, url, prefix string) (result, error) {
	body := make([]byte, 256)
	var clients []jetstream.JetStream
	for range l.producers {
		nc, err := nats.Connect(url)
		if err != nil {
			return result{}, err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return result{}, err
		}
		clients = append(clients, js)
	}
	latencies := make([][]time.Duration, l.producers)
	errs := make([]error, l.producers)
	var wg sync.WaitGroup
	start := time.Now()
	for i, js := range clients {
		subject := fmt.Sprintf("%s.tenant%d.orders", prefix, i)
		wg.Go(func() {
			if l.sync {
				latencies[i], errs[i] = l.publishSync(ctx, js, subject, body)
			} else {
				errs[i] = l.publishAsync(ctx, js, subject, body)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	r := result{perSecond: float64(l.producers*l.messages) / took.Seconds()}
	r.p99 = percentile99(latencies)
	return r, errors.Join(errs...)
}

// percentile99 is 0 if nothing was measured.
func percentile99(latencies [][]time.Duration) time.Duration {
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

func (l publishLoad) publishSync(ctx context.Context, js jetstream.JetStream, subject string, body []byte) ([]time.Duration, error) {
	took := make([]time.Duration, 0, l.messages)
	for range l.messages {
		start := time.Now()
		if _, err := js.Publish(ctx, subject, body); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

func (l publishLoad) publishAsync(ctx context.Context, js jetstream.JetStream, subject string, body []byte) error {
	var last jetstream.PubAckFuture
	for range l.messages {
		var err error
		if last, err = js.PublishAsync(subject, body, jetstream.WithStallWait(5*time.Second)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-last.Err():
		return err
	default:
		return nil
	}
}
