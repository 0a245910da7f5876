package ingress

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

func TestDraining(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, _ *Deps, _ *jetstream.StreamConfig) { c.Tenants = []string{"acme", "t?"} }).run()
		js := r.producer()
		if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
			t.Fatal(err)
		}
		r.door.Drain()
		r.space.full.Store(true) // the reason stays draining
		e := wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 503, 60504)
		if !strings.HasSuffix(e.Description, "; retry_after_ms=0") {
			t.Errorf("draining is to be retried at once, elsewhere: %q", e.Description)
		}
		wantNAK(t, second(js.Publish(t.Context(), "ingress.acme", nil)), 400, 60400)
		wantNAK(t, second(js.Publish(t.Context(), "ingress.other.t", nil)), 403, 60403)
		if n := r.metric("flowgate_ingress_messages_total", "reason", "draining", "result", "refused"); n != 1 {
			t.Errorf("draining = %v", n)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Whoever had a message under way when the gateway stopped has an answer: stored,
// refused, or, from the broker, that nobody is there.
func TestStopUnderTraffic(t *testing.T) {
	for _, after := range []int{1, 100, 3000} {
		bubble.Test(t, func(t *testing.T) {
			const n = 3000
			r := newRig(t).run()
			js := r.producer()
			var futures []jetstream.PubAckFuture
			for i := range n {
				if i == after {
					go r.cancel()
				}
				futures = append(futures, publishAsync(t, js, 1)...)
			}
			got := outcomes(t, js, futures)
			gone := got[jetstream.ErrNoStreamResponse.Error()] + got[nats.ErrNoResponders.Error()]
			if got["stored"]+got["60504"]+gone != n {
				t.Errorf("stopped after %d: %v, %d in all", after, got, n)
			}
			start := time.Now()
			if err := r.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			if d := time.Since(start); d > answeredBy {
				t.Errorf("Run took %v to return", d)
			}
			if s := r.state(); int(s.Msgs) != got["stored"] {
				t.Errorf("stored %d, acknowledged %d", s.Msgs, got["stored"])
			}
		})
	}
}

// Messages that the client library holds when the gateway stops are answered too.
func TestStopWithMessagesUnread(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 500
		r := newRig(t)
		gate := make(chan struct{})
		var once sync.Once
		clock := r.door.deps.Clock
		r.door.deps.Clock = func() int64 { // receive reads it first, on the subscription's goroutine
			once.Do(func() { <-gate })
			return clock()
		}
		r.run()
		js := r.producer()
		futures := publishAsync(t, js, n)
		synctest.Wait() // the first is in receive, the others wait behind it
		r.cancel()
		synctest.Wait()
		close(gate)
		if got := outcomes(t, js, futures); got["60504"] != n {
			t.Errorf("%v, want %d times draining", got, n)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestStopWaitsForTheBroker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		r.pipe.swallow.Store(true)
		futures := publishAsync(t, js, 10)
		synctest.Wait()
		start := time.Now()
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if d := time.Since(start); d > answeredBy {
			t.Errorf("Run took %v to return", d)
		}
		synctest.Wait()
		if n := js.PublishAsyncPending(); n > 0 {
			t.Errorf("%d producers have no answer from a gateway that is gone", n)
		}
		if got := outcomes(t, js, futures); got["60505"] != 10 {
			t.Errorf("%v", got)
		}
	})
}

func TestConnectionClosedForGood(t *testing.T) {
	for name, closeOne := range map[string]func(*rig){
		"receiving":  func(r *rig) { r.receive.Close() },
		"forwarding": func(r *rig) { r.forward.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t).run()
				js := r.producer()
				r.pipe.swallow.Store(true)
				futures := publishAsync(t, js, 10)
				synctest.Wait()
				start := time.Now()
				closeOne(r)
				err := <-r.result
				r.result <- err
				if err == nil || !strings.Contains(err.Error(), "closed for good") {
					t.Errorf("Run returned %v", err)
				}
				if d := time.Since(start); d > answeredBy {
					t.Errorf("Run took %v to return", d)
				}
				if name == "forwarding" {
					if got := outcomes(t, js, futures); got["60505"] != 10 {
						t.Errorf("%v", got)
					}
				}
			})
		})
	}
}

func TestRunWithoutConnection(t *testing.T) {
	for name, closeOne := range map[string]func(*rig){
		"receiving":  func(r *rig) { r.receive.Close() },
		"forwarding": func(r *rig) { r.forward.Close() },
	} {
		bubble.Test(t, func(t *testing.T) {
			r := newRig(t)
			closeOne(r)
			if err := r.door.Run(t.Context()); err == nil {
				t.Errorf("%s connection closed: Run returned nil", name)
			}
		})
	}
}
