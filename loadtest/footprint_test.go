package main

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/flowgate/flowgate/loadtest/invariants"
)

// binary builds the command as a user does, without the race detector.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "flowgate")
	build := exec.Command("go", "build", "-o", path, "../cmd/flowgate")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// TestRestartWithBacklog starts a gateway on 100,000 waiting messages.
func TestRestartWithBacklog(t *testing.T) {
	const messages = 100_000
	flowgate, data := binary(t), filepath.Join(t.TempDir(), "data")
	listen, admin := freeAddr(t), freeAddr(t)
	environ := []string{
		"FLOWGATE_DATA_DIR=" + data, "FLOWGATE_NATS_LISTEN=" + listen, "FLOWGATE_ADMIN_LISTEN=" + admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=200000",
	}
	p := startProcess(t, flowgate, append(environ, "FLOWGATE_SHAPER_RATE=1/h")...)
	waitReady(t, p, admin)
	if err := fill(t.Context(), "nats://"+listen, load{messages: messages}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the backlog is counted", 10*time.Second, func() bool { return status(t, admin).Depth.Total >= messages-1 })
	p.kill()
	before, err := invariants.ReadSQLite(t.Context(), filepath.Join(data, "messages.db"))
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	p = startProcess(t, flowgate, append(environ, "FLOWGATE_SHAPER_RATE=200/s")...)
	var first time.Time
	eventually(t, "a first delivery", 20*time.Second, func() bool {
		rows, err := invariants.ReadSQLite(t.Context(), filepath.Join(data, "messages.db"))
		if err != nil || len(rows) <= len(before) {
			return false
		}
		first = rows[len(before)].WrittenAt
		return true
	})
	waitReady(t, p, admin)
	eventually(t, "the whole backlog is in the index", 20*time.Second, func() bool {
		s := status(t, admin)
		return s.Depth.Total > messages-10_000 && time.Since(s.SampledAt) < 2*time.Second
	})
	// What the start left behind is given back once the backlog is taken in.
	var now, peak int64
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if now, peak, err = memory(p.Process.Pid); err != nil {
			t.Skip(err)
		}
		if now < 150<<20 && time.Since(began) > 5*time.Second || time.Now().After(end) {
			break
		}
	}
	took := first.Sub(began)
	t.Logf("first delivery %s after the start (at most 2s); RSS %d MiB (at most 150 MiB), its peak %d MiB", took.Round(time.Millisecond), now>>20, peak>>20)
	if took > 2*time.Second {
		t.Errorf("first delivery after %s", took)
	}
	if now > 150<<20 {
		t.Errorf("RSS %d MiB", now>>20)
	}
}

// TestIdle watches a gateway with nothing to do. What it may use of the processor
// is measured by `go run ./loadtest idle`; a test beside others can only tell that
// something spins.
func TestIdle(t *testing.T) {
	admin := freeAddr(t)
	p := startProcess(t, binary(t), "FLOWGATE_DATA_DIR="+filepath.Join(t.TempDir(), "data"),
		"FLOWGATE_NATS_LISTEN="+freeAddr(t), "FLOWGATE_ADMIN_LISTEN="+admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off")
	waitReady(t, p, admin)
	time.Sleep(2 * time.Second)
	before, err := processorTime(p.Process.Pid)
	if err != nil {
		t.Skip(err)
	}
	const span = 5 * time.Second
	time.Sleep(span)
	after, err := processorTime(p.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	now, _, err := memory(p.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	share := (after - before).Seconds() / span.Seconds() * 100
	t.Logf("idle: RSS %d MiB (at most 60 MiB), CPU %.2f %% of a core", now>>20, share)
	if now > 60<<20 {
		t.Errorf("RSS %d MiB", now>>20)
	}
	if share > 5 {
		t.Errorf("CPU %.2f %%", share)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it did not end within 5 s of SIGTERM")
	}
}
