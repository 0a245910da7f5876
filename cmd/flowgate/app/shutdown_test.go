package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// B10: over any number of stops every message is delivered once, and who publishes
// meanwhile is told.
func TestStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, s := t.TempDir(), &sink{}
		s.answers(func(ctx context.Context, _ consumers.Delivery) error {
			select {
			case <-time.After(300 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		acked := 0
		for round := range 10 {
			r := startIn(t, dir, s, "FLOWGATE_SHAPER_RATE=20/s")
			_, js := r.client()
			for i := range 10 {
				r.admitted(js, fmt.Sprint("t", i%3), 1)
				acked++
			}
			time.Sleep(time.Duration(round*137) * time.Millisecond)
			if err := r.stop(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		r := startIn(t, dir, s, "FLOWGATE_SHAPER_RATE=20/s")
		time.Sleep(time.Minute)
		st := r.settled()
		ids := delivered(s.log())
		if len(ids) != acked || st.DeadLetters != 0 || st.Depth.Total != 0 {
			t.Errorf("%d of %d messages delivered, %d dead letters, depth %d", len(ids), acked, st.DeadLetters, st.Depth.Total)
		}
		for id, n := range ids {
			if n != 1 {
				t.Errorf("%s was delivered %d times", id, n)
			}
		}
	})
}

// Every publish under a stop is answered: acknowledged, or refused as draining.
func TestEveryPublishIsAnsweredUnderAStop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHUTDOWN_DELAY=0s")
		r.sink.answers(func(ctx context.Context, _ consumers.Delivery) error {
			time.Sleep(time.Second) // keeps the drain going
			return nil
		})
		_, js := r.client()
		var mu sync.Mutex
		counts := map[string]int{}
		var unanswered []time.Time // when they were sent
		var publishers sync.WaitGroup
		for range 5 {
			publishers.Go(func() {
				for {
					sent := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					_, err := js.Publish(ctx, "ingress.acme.orders", nil, jetstream.WithRetryAttempts(0))
					cancel()
					code, _ := refusal(err)
					mu.Lock()
					counts[fmt.Sprint(code)]++
					if errors.Is(err, context.DeadlineExceeded) {
						unanswered = append(unanswered, sent)
					}
					mu.Unlock()
					if err != nil && code != 60504 {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		ended := time.Now()
		publishers.Wait()
		if counts["0"] < 100 || counts["60504"] < 100 {
			t.Errorf("answers %v: want acknowledgements, then draining", counts)
		}
		for _, sent := range unanswered {
			// The embedded broker goes with the gateway.
			if before := ended.Sub(sent); before > 50*time.Millisecond {
				t.Errorf("a message sent %s before the end was not answered", before)
			}
		}
	})
}

// A stop with nothing to do, or asleep for a minute until the next departure, is
// short.
func TestStopWhileAsleep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHAPER_RATE=1/m")
		_, js := r.client()
		r.admitted(js, "acme", 10)
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}

// Whoever is stopped while it waits for the name ends at once, and well.
func TestStopWhileStarting(t *testing.T) {
	// In real time: the server sleeps at its end with a lock held that a consumer just
	// being made waits for, which a fake clock does not outlast.
	dir := t.TempDir()
	cfg, err := settings.Load([]string{"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Config: cfg, Destination: &sink{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Errorf("stopped while starting: %v", err)
	}
	// Nothing is left behind that would keep the next one out.
	startIn(t, dir, &sink{})
}
