package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
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
		err = fillLarge(ctx, "nats://"+listen, messages, 1<<10)
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

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// instance is a gateway in a process of its own.
type instance struct{ cmd *exec.Cmd }

func startInstance(ctx context.Context, path string, environ []string) (*instance, error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &instance{cmd}, nil
}

// end stops it in order.
func (i *instance) end() {
	_ = i.cmd.Process.Signal(os.Interrupt)
	_ = i.cmd.Wait()
}

func buildGateway(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "flowgate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/flowgate").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// twoPorts are free ones of loopback.
func twoPorts() (a, b string, err error) {
	var listeners []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer func() { _ = l.Close() }()
		listeners = append(listeners, l)
	}
	return listeners[0].Addr().String(), listeners[1].Addr().String(), nil
}

func readStatus(ctx context.Context, admin string) (app.Status, error) {
	var s app.Status
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/api/v1/status", nil)
	if err != nil {
		return s, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer func() { _ = r.Body.Close() }()
	return s, json.NewDecoder(r.Body).Decode(&s)
}

// released is how many deliveries a gateway has started.
func released(ctx context.Context, admin string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Body.Close() }()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "flowgate_shaper_released_total "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, errors.New("no flowgate_shaper_released_total among the metrics")
}

// awaitDepth waits until a gateway is active and so many messages are in its index.
func awaitDepth(ctx context.Context, admin string, least int) error {
	end := time.Now().Add(2 * time.Minute)
	for {
		s, err := readStatus(ctx, admin)
		if err == nil && s.Replica.Leader && s.Depth.Waiting+s.Depth.InFlight+s.Depth.Delayed >= uint64(max(0, least)) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the gateway at %s has %d messages waiting after 2 minutes, want %d: %w", admin, s.Depth.Waiting, least, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fillLarge publishes n messages of 100 tenants, each of so many bytes.
func fillLarge(ctx context.Context, url string, n, size int) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	body := make([]byte, size)
	for i := range n {
		if _, err := js.PublishAsync(fmt.Sprintf("ingress.tenant%d.orders", i%100), body, jetstream.WithStallWait(10*time.Second)); err != nil {
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
