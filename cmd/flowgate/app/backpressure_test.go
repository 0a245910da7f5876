package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

func away(context.Context, consumers.Delivery) error {
	return consumers.Overloaded(0, errors.New("connection refused"))
}

// B06: a burst between two looks cannot sail past the mark, from however many
// connections it comes; and who comes after it is refused at once.
func TestBurstStopsAtHigh(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=1000", "FLOWGATE_LIMIT_TENANT=unlimited")
		r.sink.answers(away)
		results := make(chan [2]int)
		for range 50 {
			_, js := r.client()
			go func() {
				var futures []jetstream.PubAckFuture
				for range 200 {
					f, err := js.PublishAsync("ingress.acme.orders", []byte("x"))
					if err != nil {
						t.Error(err)
						continue
					}
					futures = append(futures, f)
				}
				var counts [2]int
				for _, f := range futures {
					select {
					case <-f.Ok():
						counts[0]++
					case err := <-f.Err():
						if code, _ := refusal(err); code != 60503 {
							t.Errorf("refused with %v", err)
						}
						counts[1]++
					}
				}
				results <- counts
			}()
		}
		admitted, refused := 0, 0
		for range 50 {
			c := <-results
			admitted, refused = admitted+c[0], refused+c[1]
		}
		if admitted != 1000 || admitted+refused != 10_000 {
			t.Errorf("%d admitted and %d refused of 10000 with HIGH at 1000", admitted, refused)
		}
		s := r.settled()
		if s.Depth.Total != 1000 || s.Level != "pressured" {
			t.Errorf("depth %+v, level %s", s.Depth, s.Level)
		}
		_, js := r.client()
		if code, _ := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil))); code != 60503 {
			t.Errorf("a new connection over the mark: code %d", code)
		}
		r.admitted(js, "globex", 1) // it is not globex that filled it
	})
}

// B07: what is in flight counts.
func TestInFlightCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_CONSUMER_CONCURRENCY=100",
			"FLOWGATE_CONSUMER_TIMEOUT=1h", "FLOWGATE_SHAPER_RATE=unlimited")
		r.sink.answers(hangs)
		_, js := r.client()
		r.admitted(js, "acme", 100)
		if s := r.settled(); s.Depth.InFlight != 100 || s.Depth.Waiting != 0 || s.Depth.Total != 100 {
			t.Errorf("depth %+v", s.Depth)
		}
		if code, _ := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil))); code != 60503 {
			t.Errorf("the 101st: code %d", code)
		}
	})
}

// The hint is the time until LOW at the drain rate, and it is enough for one
// producer alone. B31: the level changes once each way.
func TestHysteresisAndHint(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_LOW=60", "FLOWGATE_SHAPER_RATE=10/s")
		_, js := r.client()
		for i := 0; ; i++ {
			_, err := js.Publish(t.Context(), "ingress.acme.orders", nil)
			if err == nil {
				continue
			}
			code, wait := refusal(err)
			if code != 60503 || i < 100 || i > 103 {
				t.Fatalf("message %d: %v", i, err)
			}
			if wait < 3500*time.Millisecond || wait > 4500*time.Millisecond {
				t.Errorf("from 100 to 60 at 10/s: wait %s, want 4 s", wait)
			}
			// Before the hint it is refused, though the depth is below HIGH.
			time.Sleep(wait / 2)
			if code, _ := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil))); code != 60503 {
				t.Errorf("between the marks: code %d", code)
			}
			time.Sleep(wait/2 + 50*time.Millisecond)
			if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err != nil {
				t.Errorf("after the hint: %v", err)
			}
			break
		}
		s := r.running().backlog.Snapshot(r.running().clock.now())
		if s.Signals[0].ToPressured != 1 || s.Signals[0].ToNormal != 1 {
			t.Errorf("%d changes to pressured and %d back", s.Signals[0].ToPressured, s.Signals[0].ToNormal)
		}
	})
}

// B31: after an outage the level comes back by itself, with no message to trigger
// it.
func TestLevelComesBackByItself(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=50")
		r.sink.answers(away)
		_, js := r.client()
		r.admitted(js, "acme", 50)
		if s := r.settled(); s.Level != "pressured" || s.Breaker == "closed" {
			t.Fatalf("level %s, breaker %s", s.Level, s.Breaker)
		}
		if _, wait := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil))); wait < time.Second || wait > 5*time.Second {
			t.Errorf("with the consumer away for a moment the hint is %s", wait)
		}
		time.Sleep(10 * time.Minute)
		_, err := js.Publish(t.Context(), "ingress.acme.orders", nil)
		if _, wait := refusal(err); wait < 30*time.Second || wait > time.Minute || !strings.Contains(err.Error(), "nothing is delivered at present") {
			t.Errorf("with the consumer away for ten minutes: %v", err)
		}
		r.sink.answers(nil)
		time.Sleep(time.Minute)
		if s := r.settled(); s.Level != "normal" || s.Depth.Total != 0 || s.Breaker != "closed" {
			t.Fatalf("after the outage: level %s, depth %d, breaker %s", s.Level, s.Depth.Total, s.Breaker)
		}
		r.admitted(js, "acme", 1)
	})
}

// The broker holds the last line: were our count wrong, its own refusal reaches the
// producer, and a gateway over it is not confused.
func TestStreamLimitReachesTheProducer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=1000")
		r.sink.answers(away)
		stream, err := r.control().Stream(t.Context(), "FLOWGATE")
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.MaxMsgs = 10
		if _, err := r.control().UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		_, js := r.client()
		r.admitted(js, "acme", 10)
		for range 20 {
			if code, _ := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil))); code != 10077 {
				t.Fatalf("over the stream's limit: code %d, want the broker's own 10077", code)
			}
		}
		if s := r.settled(); s.Depth.Total != 10 {
			t.Errorf("depth %+v: what the broker refused must not count", s.Depth)
		}
		r.sink.answers(nil)
		time.Sleep(time.Minute)
		r.admitted(js, "acme", 10)
	})
}

// Raising and lowering MAX keeps what is stored. B25.
func TestRestartWithALowerMax(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=1000")
		r.sink.answers(away)
		_, js := r.client()
		r.admitted(js, "acme", 500)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r2 := startIn(t, r.dir, &sink{answer: away}, "FLOWGATE_BACKPRESSURE_HIGH=100")
		if s := r2.settled(); s.Depth.Total != 500 || s.Level != "pressured" {
			t.Fatalf("depth %+v, level %s; 500 were stored", s.Depth, s.Level)
		}
		_, js = r2.client()
		if code, _ := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil))); code != 60503 {
			t.Errorf("code %d", code)
		}
		r2.sink.answers(nil)
		time.Sleep(time.Minute)
		if n := len(delivered(append(r.sink.log(), r2.sink.log()...))); n != 500 {
			t.Errorf("%d of 500 messages were delivered", n)
		}
	})
}

// delivered gives the ids of deliveries.
func delivered(log []consumers.Delivery) map[string]int {
	ids := map[string]int{}
	for _, d := range log {
		ids[d.ID]++
	}
	return ids
}

// The bytes are a mark like the messages: over it producers are told by us, with a
// hint, and not by the broker.
func TestBytesAreAMark(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_MAX_BYTES=4MiB", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=20/s")
		_, js := r.client()
		body := make([]byte, 50_000)
		admitted, refused := 0, 0
		for range 400 {
			_, err := js.Publish(t.Context(), "ingress.acme.orders", body)
			switch code, wait := refusal(err); code {
			case 0:
				admitted++
			case 60503:
				if refused++; wait < 50*time.Millisecond || wait > time.Minute {
					t.Errorf("hint %s", wait)
				}
			default:
				t.Fatalf("%v", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if admitted < 70 || refused < 200 {
			t.Errorf("%d admitted and %d refused; about 80 fit, and 20 a second leave", admitted, refused)
		}
		time.Sleep(10 * time.Second)
		r.admitted(js, "acme", 10)
	})
}
