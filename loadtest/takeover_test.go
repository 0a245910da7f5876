package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/loadtest/invariants"
)

// publication is what became of one message.
type publication struct {
	id   string
	at   time.Time
	took time.Duration
	err  error
}

// TestTakeover has two gateways on a NATS of its own: the active one is killed, then
// the next stopped in order, then the next is halted for longer than its lease. All
// the time producers publish. Every answer comes in time or nobody is there, what was
// acknowledged is delivered, no window holds more than the rate allows over all of
// them, and one whose lease is over delivers nothing more.
func TestTakeover(t *testing.T) {
	const rate = 200
	dir := t.TempDir()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	log, table := filepath.Join(dir, "starts.log"), filepath.Join(dir, "messages.db")
	addresses := map[*process]string{}
	begin := func(active bool) *process {
		admin := freeAddr(t)
		p := startProcess(t, os.Args[0], childLog+"="+log, "FLOWGATE_NATS_URL="+s.ClientURL(), "FLOWGATE_DATA_DIR="+dir,
			"FLOWGATE_CONSUMER_URL=sqlite:"+table, "FLOWGATE_ADMIN_LISTEN="+admin, "FLOWGATE_INGRESS_HTTP_LISTEN=off",
			"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=200/s")
		addresses[p] = admin
		if active {
			waitReady(t, p, admin)
		} else {
			eventually(t, "it stands by", time.Minute, func() bool { return alive(admin) && status(t, admin).Replica.Active != "" })
		}
		return p
	}
	first, second := begin(true), (*process)(nil)
	second = begin(false)

	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	publishing, enough := context.WithCancel(t.Context())
	defer enough()
	var mu sync.Mutex
	var published []publication
	var producers sync.WaitGroup
	producers.Go(func() {
		tick := time.NewTicker(8 * time.Millisecond)
		defer tick.Stop()
		for n := 0; publishing.Err() == nil; n++ {
			id := "m" + time.Now().Format("150405.000000")
			producers.Go(func() {
				p := publication{id: id, at: time.Now()}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				_, p.err = js.Publish(ctx, "ingress.acme.orders", []byte(id), jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
				p.took = time.Since(p.at)
				mu.Lock()
				published = append(published, p)
				mu.Unlock()
			})
			<-tick.C
		}
	})

	time.Sleep(2 * time.Second)
	killed := time.Now()
	first.kill()
	waitReady(t, second, addresses[second])
	t.Logf("ready %s after SIGKILL", time.Since(killed).Round(time.Millisecond))
	third := begin(false)
	time.Sleep(time.Second)

	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	waitReady(t, third, addresses[third])
	t.Logf("ready %s after SIGTERM", time.Since(stopped).Round(time.Millisecond))
	if err := <-second.ended; err != nil {
		t.Errorf("the one that was stopped in order: %v", err)
	}
	fourth := begin(false)
	time.Sleep(time.Second)

	if err := third.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	halted := time.Now()
	waitReady(t, fourth, addresses[fourth])
	t.Logf("ready %s after SIGSTOP", time.Since(halted).Round(time.Millisecond))
	took := time.Now()
	if err := third.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-third.ended:
		if err == nil {
			t.Error("one that lost its lease ends as if all were well")
		}
	case <-time.After(time.Minute):
		t.Error("one that lost its lease goes on")
	}
	time.Sleep(time.Second)
	enough()
	producers.Wait()
	eventually(t, "the backlog is empty", time.Minute, func() bool {
		stream, err := js.Stream(t.Context(), "FLOWGATE") // what counts is the broker's word
		return err == nil && stream.CachedInfo().State.Msgs == 0 && status(t, addresses[fourth]).Depth.Total == 0
	})

	var departures []algorithms.Departure
	for _, d := range readStarts(t, log) {
		departures = append(departures, algorithms.Departure{At: d.at, N: 1})
		if d.process == third.Process.Pid && d.at > took.UnixNano() {
			t.Errorf("%s left %s after another had taken over", d.id, time.Duration(d.at-took.UnixNano()))
		}
	}
	if e := algorithms.CheckRate(departures, algorithms.Rate{N: rate, Per: time.Second}, tolerance); e.Broken {
		t.Errorf("%d left in %s, at most %.2f may", e.Count, time.Duration(e.To-e.From), e.Allowed)
	}
	rows, err := invariants.ReadSQLite(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, r := range rows {
		there[r.ID] = true
	}
	// What a gateway had when it was killed or halted nobody can answer.
	had := func(at time.Time) bool {
		return at.After(killed.Add(-time.Second)) && at.Before(killed.Add(time.Second)) ||
			at.After(halted.Add(-time.Second)) && at.Before(took.Add(time.Second))
	}
	acked, nobody, silent := 0, 0, 0
	for _, p := range published {
		switch {
		case p.err == nil:
			if acked++; !there["acme/"+p.id] {
				t.Errorf("%s was acknowledged and is not in the database", p.id)
			}
		case errors.Is(p.err, nats.ErrNoResponders), errors.Is(p.err, jetstream.ErrNoStreamResponse):
			nobody++
		case errors.Is(p.err, context.DeadlineExceeded) && had(p.at):
			silent++
		default:
			var api *jetstream.APIError
			if !errors.As(p.err, &api) {
				t.Errorf("%s, published at %s: %v after %s", p.id, p.at.Format("05.000"), p.err, p.took)
			}
		}
		if p.took > 5*time.Second && !had(p.at) {
			t.Errorf("%s was answered after %s", p.id, p.took)
		}
	}
	t.Logf("%d published: %d acknowledged, %d heard that nobody is there, %d in the hands of one that was killed or halted; %d rows", len(published), acked, nobody, silent, len(rows))
	if acked < len(published)/2 {
		t.Error("fewer than half were acknowledged")
	}
}

// alive reports whether an admin address answers.
func alive(admin string) bool {
	r, err := http.Get("http://" + admin + "/livez")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return true
}
