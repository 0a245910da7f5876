package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// measureTakeover has one gateway deliver and another stand by on a NATS of its own,
// ends the first, in order or by SIGKILL, and waits for the other's first delivery.
func measureTakeover(ctx context.Context, short bool) ([]figure, error) {
	rounds := 10
	if short {
		rounds = 1
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
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server is not ready")
	}
	m := &takeovers{path: path, url: s.ClientURL()}
	defer m.end()
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	var clean, killed []time.Duration
	for range rounds {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			took, err := m.takeover(ctx, sig)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sig, err)
			}
			if sig == syscall.SIGTERM {
				clean = append(clean, took)
			} else {
				killed = append(killed, took)
			}
		}
	}
	slices.Sort(clean)
	slices.Sort(killed)
	return []figure{
		{fmt.Sprintf("after a clean stop, median of %d", rounds), clean[rounds/2].Seconds(), "s", 0, 0},
		{"after a clean stop, longest", clean[rounds-1].Seconds(), "s", 0, 1},
		{fmt.Sprintf("after SIGKILL, median of %d", rounds), killed[rounds/2].Seconds(), "s", 0, 0},
		{"after SIGKILL, longest", killed[rounds-1].Seconds(), "s", 0, 3},
	}, nil
}

// takeovers is a gateway at work and one that stands by, again and again.
type takeovers struct {
	path, url       string
	active, standby *deliverer
}

// deliverer is a gateway that tells on its standard output what it delivers.
type deliverer struct {
	cmd   *exec.Cmd
	ready chan struct{} // closed when it stands by or is active

	mu    sync.Mutex
	last  time.Time // of its newest delivery
	ended chan struct{}
}

func (m *takeovers) start(ctx context.Context) (*deliverer, error) {
	d := &deliverer{cmd: exec.CommandContext(ctx, m.path), ready: make(chan struct{}), ended: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), "FLOWGATE_NATS_URL="+m.url, "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=100000", "FLOWGATE_SHAPER_RATE=100/s", "FLOWGATE_CONSUMER_URL=stdout:", "FLOWGATE_LOG_FORMAT=text")
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	logs, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			d.mu.Lock()
			d.last = time.Now()
			d.mu.Unlock()
		}
	})
	reading.Go(func() {
		told := false
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			if text := lines.Text(); !told && (strings.Contains(text, "standing by") || strings.Contains(text, "msg=ready")) {
				told = true
				close(d.ready)
			}
		}
	})
	go func() {
		reading.Wait()
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	select {
	case <-d.ready:
		return d, nil
	case <-d.ended:
		return nil, errors.New("the gateway ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
		return nil, errors.New("the gateway is not there after a minute")
	}
}

func (d *deliverer) newest() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// begin starts the first one, and gives it work for long.
func (m *takeovers) begin(ctx context.Context) (err error) {
	if m.active, err = m.start(ctx); err != nil {
		return err
	}
	nc, err := nats.Connect(m.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return publish(ctx, js, load{messages: 20_000})
}

// takeover ends the active one and returns how long it took until the other delivered.
func (m *takeovers) takeover(ctx context.Context, sig syscall.Signal) (time.Duration, error) {
	var err error
	if m.standby, err = m.start(ctx); err != nil {
		return 0, err
	}
	if err := await(ctx, func() bool { return !m.active.newest().IsZero() }); err != nil {
		return 0, err
	}
	if !m.standby.newest().IsZero() {
		return 0, errors.New("the one that stands by has delivered")
	}
	began := time.Now()
	if err := m.active.cmd.Process.Signal(sig); err != nil {
		return 0, err
	}
	if err := await(ctx, func() bool { return !m.standby.newest().IsZero() }); err != nil {
		return 0, err
	}
	took := time.Since(began)
	<-m.active.ended
	m.active, m.standby = m.standby, nil
	return took, nil
}

func (m *takeovers) end() {
	for _, d := range []*deliverer{m.active, m.standby} {
		if d != nil {
			_ = d.cmd.Process.Kill()
			<-d.ended
		}
	}
}
