package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
)

// TestDiskFull has the broker's store fail in mid-write. Every producer is told
// within 2 s, the gateway is not ready, and it goes on until the disk can be written
// again; then it ends, and the next one has lost nothing.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "starts.log")
	listen, admin := freeAddr(t), freeAddr(t)
	environ := []string{
		childLog + "=" + log, "FLOWGATE_DATA_DIR=" + data, "FLOWGATE_NATS_LISTEN=" + listen, "FLOWGATE_ADMIN_LISTEN=" + admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=50/s",
	}
	p := startProcess(t, os.Args[0], append(environ, fmt.Sprintf("%s=%d", childFileSize, 300<<10))...)
	waitReady(t, p, admin)
	nc, err := nats.Connect("nats://"+listen, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(2500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ledger := invariants.NewLedger()
	publish := func(prefix string, n int) (acked, overloaded int) {
		body := make([]byte, 1024)
		for i := range n {
			id := fmt.Sprint(prefix, i)
			payload := string(fmt.Appendf(body[:0:0], "%s %01000d", prefix, i))
			ledger.Sent("acme", id, payload)
			began := time.Now()
			_, err := js.Publish(t.Context(), "ingress.acme.orders", []byte(payload), jetstream.WithMsgID(id))
			took := time.Since(began)
			if err == nil {
				ledger.Acked("acme", id)
				acked++
				continue
			}
			ledger.Unsure("acme", id)
			if reason, _ := producers.Answer(err); reason != "overloaded" || took > 2100*time.Millisecond {
				t.Fatalf("message %s: %v after %s, want overloaded within 2 s", id, err, took)
			}
			overloaded++
			if overloaded > 10 {
				break
			}
		}
		return acked, overloaded
	}
	acked, overloaded := publish("a", 600)
	if acked < 100 || overloaded < 10 {
		t.Fatalf("%d acknowledged and %d refused; the store takes about 250", acked, overloaded)
	}
	r, err := http.Get("http://" + admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz says %d", r.StatusCode)
	}
	time.Sleep(3 * watchTime)
	select {
	case err := <-p.ended:
		t.Fatalf("the gateway ended while the disk is full: %v", err)
	default:
	}
	none := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(p.Process.Pid, unix.RLIMIT_FSIZE, &none, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err == nil {
			t.Error("the gateway ended well")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the gateway goes on with a store that does not write")
	}
	p = startProcess(t, os.Args[0], environ...)
	waitReady(t, p, admin)
	if acked, overloaded := publish("b", 50); acked != 50 {
		t.Errorf("after the restart: %d acknowledged, %d refused", acked, overloaded)
	}
	eventually(t, "the backlog is empty", time.Minute, func() bool { return status(t, admin).Depth.Total == 0 })
	rows, err := invariants.ReadSQLite(t.Context(), filepath.Join(data, "messages.db"))
	if err != nil {
		t.Fatal(err)
	}
	if c := ledger.Delivered(rows); !c.OK() {
		t.Errorf("%v", c.Broken)
	}
}

// watchTime is how often the gateway looks at its broker.
const watchTime = 5 * time.Second
