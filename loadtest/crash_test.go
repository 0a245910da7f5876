package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
)

// crashes is how often the gateway is killed under load.
const crashes = 20

// TestCrash kills the gateway with SIGKILL under load, again and again, with the
// embedded broker and the SQLite writer in the same process. Producers go on as
// clients do. In the end everything acknowledged is in the table, nothing left
// faster than the rate over all lives, and only what was in flight was repeated.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	listen, admin := freeAddr(t), freeAddr(t)
	log := filepath.Join(dir, "starts.log")
	data := filepath.Join(dir, "data")
	environ := []string{
		childLog + "=" + log, "FLOWGATE_DATA_DIR=" + data,
		"FLOWGATE_NATS_LISTEN=" + listen, "FLOWGATE_ADMIN_LISTEN=" + admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=token-bucket:300/s", "FLOWGATE_SHAPER_RATE=400/s",
		"FLOWGATE_BACKPRESSURE_HIGH=1000",
	}
	ledger := invariants.NewLedger()
	loading, enough := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range 3 {
		nc, err := nats.Connect("nats://"+listen, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		p := producers.Producer{Tenant: fmt.Sprintf("tenant%d", i), Topic: "orders", Plan: producers.Steady(200), Obeys: true, Size: 256}
		load.Go(func() { p.Run(loading, js, ledger) })
	}
	for i := range crashes {
		p := startProcess(t, os.Args[0], environ...)
		waitReady(t, p, admin)
		// Somewhere between an empty start and a running backlog.
		time.Sleep(time.Duration(100+i*40) * time.Millisecond)
		p.kill()
	}
	p := startProcess(t, os.Args[0], environ...)
	waitReady(t, p, admin)
	enough()
	load.Wait()
	eventually(t, "the backlog is empty", time.Minute, func() bool { return status(t, admin).Depth.Total == 0 })
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.kill()

	rows, err := invariants.ReadSQLite(t.Context(), filepath.Join(data, "messages.db"))
	if err != nil {
		t.Fatal(err)
	}
	starts := readStarts(t, log)
	departures := make([]algorithms.Departure, len(starts))
	for i, s := range starts {
		departures[i] = algorithms.Departure{At: s.at, N: 1}
	}
	checks := []invariants.Check{
		ledger.Delivered(rows), ledger.NotDelivered(rows),
		invariants.Rate(departures, algorithms.Rate{N: 400, Per: time.Second}, tolerance),
	}
	t.Logf("after %d crashes:\n%s", crashes, invariants.Report(checks))
	for _, c := range checks {
		if !c.OK() {
			t.Errorf("%s: %v", c.Promise, c.Broken)
		}
	}
	repeats(t, starts)
}

// inFlight is how many deliveries the gateway makes at once, and unconfirmed how many
// acknowledgements may be on their way: what leaves in 100 ms.
const inFlight, unconfirmed = 4, 40

// repeats checks that only what was in flight at a crash was started again: a
// message is in flight until the broker has let it go.
func repeats(t *testing.T, starts []*start) {
	t.Helper()
	last := map[string]*start{}
	open, acking := map[int]int{}, map[int]int{} // by life
	for _, s := range starts {
		before := last[s.id]
		last[s.id] = s
		switch {
		case before == nil:
		case before.life == s.life:
			t.Errorf("%s was started twice in one life", s.id)
		case before.end == 0:
			open[before.life]++
		default:
			acking[before.life]++
		}
	}
	check := func(counts map[int]int, most int, what string) (sum int) {
		for life, n := range counts {
			if sum += n; n > most {
				t.Errorf("life %d: %d deliveries %s were repeated; there can be %d", life, n, what, most)
			}
		}
		return sum
	}
	t.Logf("%d deliveries of %d messages; repeated: %d that the consumer worked on (at most %d a crash), %d whose acknowledgement was on its way (at most %d)",
		len(starts), len(last), check(open, inFlight, "that the consumer worked on"), inFlight,
		check(acking, unconfirmed, "whose acknowledgement was on its way"), unconfirmed)
}

// waitReady waits until the process serves.
func waitReady(t *testing.T, p *process, admin string) {
	t.Helper()
	eventually(t, "the gateway is ready", time.Minute, func() bool {
		select {
		case err := <-p.ended:
			t.Fatalf("the gateway ended: %v", err)
		default:
		}
		c, err := net.Dial("tcp", admin)
		if err != nil {
			return false
		}
		_ = c.Close()
		r, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

func status(t *testing.T, admin string) app.Status {
	t.Helper()
	r, err := http.Get("http://" + admin + "/api/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	var s app.Status
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}
