package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// measureMemory has a million messages of 1 KiB wait, far more than may be held ready:
// what the process takes, and whether the rate holds while payloads are read again.
// The consumer is a database file, in batches of 20.
func measureMemory(ctx context.Context, short bool) ([]figure, error) {
	messages, rate, span := 1_000_000, 1000, 30*time.Second
	if short {
		messages, span = 20_000, 2*time.Second
	}
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := buildGateway(ctx, dir)
	if err != nil {
		return nil, err
	}
	listen, admin, err := twoPorts()
	if err != nil {
		return nil, err
	}
	environ := []string{
		"FLOWGATE_DATA_DIR=" + filepath.Join(dir, "data"), "FLOWGATE_NATS_LISTEN=" + listen, "FLOWGATE_ADMIN_LISTEN=" + admin,
		"FLOWGATE_INGRESS_HTTP_LISTEN=off", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_LOG_LEVEL=warn",
		"FLOWGATE_BACKPRESSURE_HIGH=1500000", "FLOWGATE_BACKPRESSURE_MAX_BYTES=4GiB", "FLOWGATE_SHAPER_MEMORY=64MiB",
		"FLOWGATE_CONSUMER_BATCH=20",
	}
	p, err := startInstance(ctx, path, append(environ, "FLOWGATE_SHAPER_RATE=1/h"))
	if err != nil {
		return nil, err
	}
	if err = awaitDepth(ctx, admin, 0); err == nil {
		err = fill(ctx, "nats://"+listen, load{messages: messages, tenants: 100, size: 1 << 10})
	}
	p.end()
	if err != nil {
		return nil, err
	}
	p, err = startInstance(ctx, path, append(environ, fmt.Sprintf("FLOWGATE_SHAPER_RATE=%d/s", rate)))
	if err != nil {
		return nil, err
	}
	defer p.end()
	began := time.Now()
	if err := awaitDepth(ctx, admin, messages*99/100-rate*60); err != nil {
		return nil, err
	}
	taken := time.Since(began)
	before, err := released(ctx, admin)
	if err != nil {
		return nil, err
	}
	from := time.Now()
	if err := rest(ctx, span); err != nil {
		return nil, err
	}
	after, err := released(ctx, admin)
	if err != nil {
		return nil, err
	}
	held := (after - before) / time.Since(from).Seconds() / float64(rate) * 100
	// The rest is read at 10,000 a second.
	if err := rest(ctx, time.Duration(messages/10_000)*time.Second); err != nil {
		return nil, err
	}
	if before, err = released(ctx, admin); err != nil {
		return nil, err
	}
	from = time.Now()
	if err := rest(ctx, span/2); err != nil {
		return nil, err
	}
	if after, err = released(ctx, admin); err != nil {
		return nil, err
	}
	then := (after - before) / time.Since(from).Seconds() / float64(rate) * 100
	now, peak, err := memory(p.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d × 1 KiB waiting: ", messages)
	return []figure{
		{what + "counted after", taken.Seconds(), "s", 0, 0},
		{what + "rate held while they are read", held, "%", 99.5, 0},
		{what + "and after that", then, "%", 99.5, 0},
		{what + "RSS", float64(now) / (1 << 20), "MiB", 0, 400},
		{what + "RSS at most", float64(peak) / (1 << 20), "MiB", 0, 400},
	}, nil
}
