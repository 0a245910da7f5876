package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
)

// TestBoundOverFiftyCrashes kills the gateway fifty times with SIGKILL, under retries,
// with another rate, concurrency and batch in one life than in the one before, adaptive
// or not, with pauses, and holds the departures of all lives together against the promise: in every window at
// most w·rate + tolerance·rate + a batch, the largest rate of the lives it touches.
func TestBoundOverFiftyCrashes(t *testing.T) {
	const kills = 50
	dir := t.TempDir()
	listen, admin := freeAddr(t), freeAddr(t)
	log, data := filepath.Join(dir, "starts.log"), filepath.Join(dir, "data")
	environ := []string{
		childLog + "=" + log, childFailEvery + "=5", "FLOWGATE_DATA_DIR=" + data,
		"FLOWGATE_NATS_LISTEN=" + listen, "FLOWGATE_ADMIN_LISTEN=" + admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=2000",
		"FLOWGATE_CONSUMER_BACKOFF=20ms", "FLOWGATE_CONSUMER_MAX_ATTEMPTS=100",
	}
	// What the lives are like in turn; the rate stays for some, so that windows lie over
	// a crash at one rate too.
	lives := []struct {
		rate, batch, concurrency int
		adaptive                 string
	}{
		{300, 1, 4, "off"}, {300, 1, 1, "off"}, {300, 1, 16, "on"}, {100, 1, 4, "off"}, {600, 1, 4, "on"},
		{600, 5, 2, "off"}, {600, 5, 4, "on"}, {200, 5, 1, "off"}, {300, 1, 4, "off"},
	}
	ledger := invariants.NewLedger()
	loading, enough := context.WithCancel(t.Context())
	defer enough()
	var load sync.WaitGroup
	for i := range 3 {
		nc, err := nats.Connect("nats://"+listen, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		p := producers.Producer{Tenant: fmt.Sprintf("tenant%d", i), Topic: "orders", Plan: producers.Steady(300), Obeys: true, Size: 64}
		load.Go(func() { p.Run(loading, js, ledger) })
	}
	number := map[int]int{} // of a life, by its process
	begin := func(i int) *process {
		l := lives[i%len(lives)]
		p := startProcess(t, os.Args[0], append(environ, fmt.Sprintf("FLOWGATE_SHAPER_RATE=%d/s", l.rate), "FLOWGATE_SHAPER_ADAPTIVE="+l.adaptive,
			fmt.Sprintf("FLOWGATE_CONSUMER_BATCH=%d", l.batch), fmt.Sprintf("FLOWGATE_CONSUMER_CONCURRENCY=%d", l.concurrency))...)
		number[p.Process.Pid] = i
		waitReady(t, p, admin)
		return p
	}
	for i := range kills {
		p := begin(i)
		time.Sleep(time.Duration(50+i%7*60) * time.Millisecond)
		if i%4 == 1 { // a pause, which the next life may begin with
			change(t, admin, "pause")
			time.Sleep(50 * time.Millisecond)
		}
		if i%4 == 3 || i%8 == 1 {
			change(t, admin, "resume")
			time.Sleep(50 * time.Millisecond)
		}
		p.kill()
	}
	p := begin(kills)
	change(t, admin, "resume")
	enough()
	load.Wait()
	eventually(t, "the backlog is empty", 3*time.Minute, func() bool { return status(t, admin).Depth.Total == 0 })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended

	starts := readStarts(t, log)
	// A batch leaves together: one departure of so many.
	byLife := make([][]algorithms.Departure, kills+1)
	retried := 0
	for i, s := range starts {
		if s.attempt > 1 {
			retried++
		}
		life := number[s.process]
		l := byLife[life]
		if n := len(l); n > 0 && i > 0 && l[n-1].At == s.at {
			l[n-1].N++
			continue
		}
		byLife[life] = append(l, algorithms.Departure{At: s.at, N: 1})
	}
	for from := range byLife {
		var together []algorithms.Departure
		rate := 0
		for to := from; to < len(byLife); to++ {
			together = append(together, byLife[to]...)
			rate = max(rate, lives[to%len(lives)].rate)
			e := algorithms.CheckRate(together, algorithms.Rate{N: uint64(rate), Per: time.Second}, tolerance)
			if e.Broken {
				t.Errorf("lives %d to %d: %d left in %s, at most %.2f may at %d/s", from, to, e.Count, time.Duration(e.To-e.From), e.Allowed, rate)
			}
		}
	}
	rows, err := invariants.ReadSQLite(t.Context(), filepath.Join(data, "messages.db"))
	if err != nil {
		t.Fatal(err)
	}
	checks := []invariants.Check{ledger.Delivered(rows), ledger.NotDelivered(rows)}
	t.Logf("%d deliveries over %d crashes, %d of them retries:\n%s", len(starts), kills, retried, invariants.Report(checks))
	for _, c := range checks {
		if !c.OK() {
			t.Errorf("%s: %v", c.Promise, c.Broken)
		}
	}
	if retried < 50 {
		t.Errorf("only %d retries", retried)
	}
}

// change asks the gateway to pause or to resume.
func change(t *testing.T, admin, what string) {
	t.Helper()
	r, err := http.Post("http://"+admin+"/api/v1/"+what, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", what, r.Status)
	}
}
