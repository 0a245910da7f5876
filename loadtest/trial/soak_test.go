package trial

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/database"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
)

var soakFor = flag.Duration("soak.for", 5*time.Minute, "virtual time of TestSoak")

// booked is the fragile database behind a gateway in this process.
type booked struct {
	db     *database.Database
	record *invariants.Record
	life   int
}

func (b *booked) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	verdicts := make([]error, len(batch))
	for i, d := range batch {
		a := invariants.Arrived{
			ID: d.ID, Tenant: d.Tenant, Seq: d.Seq, Attempt: d.Attempt, Process: b.life,
			Admitted: d.AdmittedAt.UnixNano(), Released: d.ReleasedAt.UnixNano(), Started: time.Now().UnixNano(),
		}
		err := b.db.Do(ctx)
		bad := d.Attempt == 1 && poisonous(d.ID, 0.02)
		a.Ended, a.Done = time.Now().UnixNano(), err == nil && !bad
		b.record.Arrive(a)
		switch {
		case err != nil:
			verdicts[i] = consumers.Overloaded(0, err)
		case bad:
			verdicts[i] = errors.New("not at the first time")
		}
	}
	return verdicts
}

func (b *booked) Close() error { return nil }

// soaking is a gateway at work.
type soaking struct {
	app    *app.App
	cancel context.CancelFunc
	ended  chan error
}

func startSoaking(t *testing.T, cfg settings.Config, d consumers.Destination) *soaking {
	t.Helper()
	a, err := app.New(app.Options{Config: cfg, Destination: d, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &soaking{a, cancel, make(chan error, 1)}
	go func() { s.ended <- a.Run(ctx) }()
	select {
	case err := <-s.ended:
		t.Fatal(err)
	case <-a.Ready():
	}
	return s
}

func (s *soaking) stop(t *testing.T) {
	t.Helper()
	bubble.Settle()
	s.cancel()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// leftOver is what this process holds while no gateway runs in it.
type leftOver struct {
	heap  uint64 // bytes that are reachable
	files int    // open ones; 0 where the system does not tell
}

func rest() leftOver {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, _ := os.ReadDir("/proc/self/fd")
	return leftOver{m.HeapAlloc, len(open)}
}

// TestSoak runs the real gateway and broker on the fake clock, with bursts, retries, a database
// that goes away each 7 minutes, and a restart each 40. All promises hold, and nothing that is
// started is left over.
//
//	go test -run Soak ./loadtest/trial -soak.for 48h -timeout 0
func TestSoak(t *testing.T) {
	if testing.Short() && *soakFor > time.Minute {
		t.Skip("minutes of virtual time")
	}
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		db, err := database.New(fragile.Config{Latency: 200 * time.Millisecond, Knee: 2, Thrash: 1, Noise: 0.2, CrashAt: 12, Recovery: 5 * time.Second, Warmup: 5 * time.Second, Cold: 3})
		if err != nil {
			t.Fatal(err)
		}
		record := &invariants.Record{DeadLetters: map[string]bool{}}
		cfg, err := settings.Load([]string{
			"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
			"FLOWGATE_SHAPER_RATE=5/s", "FLOWGATE_CONSUMER_CONCURRENCY=2", "FLOWGATE_CONSUMER_MAX_ATTEMPTS=3", "FLOWGATE_BACKPRESSURE_HIGH=100",
		})
		if err != nil {
			t.Fatal(err)
		}
		pattern := arrivals.Pattern{Seed: 1, Groups: []arrivals.Group{
			{Tenant: "shop-", Tenants: 5, Phases: []arrivals.Phase{{For: 1000 * time.Hour, From: 1, To: 1}}},
			{Tenant: "batch", Repeat: true, Phases: []arrivals.Phase{{For: 20 * time.Minute}, {For: 10 * time.Minute, Burst: 150}}},
		}}
		began := time.Now()
		var goroutines []int
		var left []leftOver // after each life
		for life, over := 1, time.Duration(0); over < *soakFor; life++ {
			length := min(40*time.Minute, *soakFor-over)
			g := startSoaking(t, cfg, &booked{db, record, life})
			nc, err := g.app.Connect(nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
			if err != nil {
				t.Fatal(err)
			}
			client, err := producers.NewAsync(nc, "ingress")
			if err != nil {
				t.Fatal(err)
			}
			// The part of the schedule that belongs to this life, at its instants.
			part := func(yield func(arrivals.Arrival) bool) {
				for a := range pattern.Schedule(over + length) {
					if a.At >= over && !yield(a) {
						return
					}
				}
			}
			pumped := make(chan struct{})
			go func() {
				defer close(pumped)
				producers.Pump{
					Schedule: part, Record: record, Ingress: "ingress", First: len(record.Messages),
					Client: func(string) (producers.Client, producers.Reaction) { return client, producers.Reaction{} },
				}.Run(t.Context(), began)
			}()
			for at := 3 * time.Minute; at < length; at += 7 * time.Minute {
				time.Sleep(time.Until(began.Add(over + at)))
				db.Halt()
				time.Sleep(20 * time.Second)
				db.Return()
			}
			time.Sleep(time.Until(began.Add(over + length)))
			goroutines = append(goroutines, runtime.NumGoroutine())
			<-pumped
			for {
				s, _ := g.app.Status()
				if s.Depth.Total == 0 {
					break
				}
				time.Sleep(time.Second)
			}
			nc.Close()
			g.stop(t)
			left = append(left, rest())
			over += max(length, time.Since(began)-over)
		}
		for _, c := range []invariants.Check{
			record.NothingLost(), record.Once(), invariants.Rate(record.Departures(1), algorithms.Rate{N: 5, Per: time.Second}, cfg.Shaper.Tolerance),
			record.Deepest(200), record.Order(false), record.Answered(2 * time.Second),
		} {
			t.Logf("%s: %s", c.Promise, c.Found)
			for _, b := range c.Broken {
				t.Errorf("%s: %s", c.Promise, b)
			}
		}
		t.Logf("%s of virtual time, %d messages; goroutines in each life: %v", time.Since(began), len(record.Messages), goroutines)
		*record, db = invariants.Record{}, nil // what is left now is what the lives left behind
		end, first := rest(), left[0]
		t.Logf("left over after the first life: %d KiB, %d files; after all, without the ledger: %d KiB, %d files", first.heap>>10, first.files, end.heap>>10, end.files)
		if end.heap > first.heap+8<<20 || end.files > first.files+4 {
			t.Errorf("the %d lives left %d KiB and %d files behind, the first %d KiB and %d files", len(left), end.heap>>10, end.files, first.heap>>10, first.files)
		}
		if first, last := goroutines[0], goroutines[len(goroutines)-1]; last > first+10 {
			t.Errorf("%d goroutines in the first life, %d in the last", first, last)
		}
	})
}
