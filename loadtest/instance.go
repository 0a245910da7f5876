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

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

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
