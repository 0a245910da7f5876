package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/consumers/pgtest"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
)

// TestDatabaseGone stops PostgreSQL for 20 seconds under load.
func TestDatabaseGone(t *testing.T) {
	postgres := pgtest.Start(t)
	g, err := startGateway(context.Background(), t.TempDir(), nil, "FLOWGATE_CONSUMER_URL="+postgres.URL(),
		"FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_HTTP_LISTEN=off", "FLOWGATE_LIMIT_TENANT=token-bucket:100/s", "FLOWGATE_BACKPRESSURE_HIGH=1000")
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = g.stop()
		}
	}()
	_, admin := g.Addr()

	ledger := invariants.NewLedger()
	loading, enough := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range 3 {
		nc, err := nats.Connect(g.url)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		p := producers.Producer{Tenant: fmt.Sprintf("tenant%d", i), Topic: "orders", Plan: producers.Steady(60), Obeys: true, Size: 256}
		load.Go(func() { p.Run(loading, js, ledger) })
	}
	time.Sleep(3 * time.Second)
	if n := refusedAs(ledger, "backlog"); n > 0 {
		t.Errorf("%d refusals while the database was there", n)
	}
	tries := overloads(t, admin)
	postgres.Stop()
	time.Sleep(20 * time.Second)
	tries = overloads(t, admin) - tries
	s := status(t, admin)
	if s.Level != "pressured" || s.Breaker == "closed" || s.Depth.Total < 900 || s.Depth.Total > 1050 { // three tenants, each up to its part
		t.Errorf("after 20 s without the database: level %s, breaker %s, depth %d", s.Level, s.Breaker, s.Depth.Total)
	}
	told := refusedAs(ledger, "backlog")
	if told == 0 {
		t.Error("no producer was told that the backlog is full")
	}
	if tries > 60 {
		t.Errorf("%g attempts in 20 s without the database", tries)
	}
	postgres.Start()
	eventually(t, "producers are admitted again", 60*time.Second, func() bool { return status(t, admin).Level == "normal" })
	acked := acknowledged(ledger)
	time.Sleep(3 * time.Second)
	if now := acknowledged(ledger); now-acked < 100 {
		t.Errorf("%d messages acknowledged in 3 s after the outage", now-acked)
	}
	enough()
	load.Wait()
	eventually(t, "the backlog is empty", time.Minute, func() bool { return status(t, admin).Depth.Total == 0 })
	stopped = true
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	rows, err := invariants.ReadPostgres(t.Context(), postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	checks := []invariants.Check{
		ledger.Delivered(rows), ledger.NotDelivered(rows),
		invariants.Rate(invariants.Departures(rows), algorithms.Rate{N: 200, Per: time.Second}, tolerance),
		invariants.Depth(rows, 2000),
	}
	t.Logf("%g attempts without the database, %d backlog refusals\n%s", tries, told, invariants.Report(checks))
	for _, c := range checks {
		if !c.OK() {
			t.Errorf("%s: %v", c.Promise, c.Broken)
		}
	}
}

func refusedAs(l *invariants.Ledger, reason string) (n int) {
	for _, t := range l.Tallies() {
		n += t.Refused[reason]
	}
	return n
}

func acknowledged(l *invariants.Ledger) (n int) {
	for _, t := range l.Tallies() {
		n += t.Acked
	}
	return n
}

// overloads is how many attempts found the database away.
func overloads(t *testing.T, admin string) float64 {
	t.Helper()
	r, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), `flowgate_consumer_errors_total{class="overload"} `); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}
