package ingress

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// stuck has the worker wait in its next decision until release is closed.
func (r *rig) stuck() (release chan struct{}) {
	release = make(chan struct{})
	r.limits.mu.Lock()
	defer r.limits.mu.Unlock()
	r.limits.wait = func() { <-release }
	return release
}

func TestQueueOverflow(t *testing.T) {
	for _, c := range []struct {
		name            string
		messages, bytes int
		kept            int
	}{
		{"messages", 4, 1 << 20, 5},
		{"bytes", 1000, 3 * 1100, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				const n = 20
				r := newRig(t)
				r.door.queue = newQueue(c.messages, c.bytes, "ingress.")
				r.run()
				js := r.producer()
				release := r.stuck()
				var futures []jetstream.PubAckFuture
				for i := range n {
					f, err := js.PublishAsync("ingress.acme.t", fmt.Appendf(nil, "%-1000d", i))
					if err != nil {
						t.Fatal(err)
					}
					futures = append(futures, f)
					if i == 0 {
						synctest.Wait() // it is with the worker
					}
				}
				synctest.Wait()
				// No time has passed: the refused know at once.
				refused := n - js.PublishAsyncPending()
				if refused != n-c.kept {
					t.Errorf("%d refused, want %d", refused, n-c.kept)
				}
				close(release)
				got := outcomes(t, js, futures)
				if got["60505"] != refused || got["stored"] != n-refused {
					t.Errorf("%v, want %d times overloaded and the rest stored", got, refused)
				}
				if m := r.metric("flowgate_ingress_messages_total", "reason", "overloaded", "tenant", ""); m != float64(refused) {
					t.Errorf("overloaded = %v, want %d", m, refused)
				}
				// The earliest were kept, in order.
				for i := range n - refused {
					if got := r.stored(uint64(i + 1)); strings.TrimSpace(string(got.Data)) != fmt.Sprint(i) {
						t.Errorf("sequence %d holds %s, want %d", i+1, got.Data, i)
					}
				}
			})
		})
	}
}

func TestWorkerStuck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 30
		r := newRig(t).run()
		js := r.producer()
		release := r.stuck()
		start := time.Now()
		futures := publishAsync(t, js, n)
		time.Sleep(answeredBy + sweepEvery/2) // no sweep at the instant of the release
		// One is in the worker's hands; all others have an answer.
		if pending := js.PublishAsyncPending(); pending != 1 {
			t.Errorf("%d producers have no answer after %v", pending, time.Since(start))
		}
		if q := r.metric("flowgate_ingress_queue_messages"); q != 0 {
			t.Errorf("queue holds %v", q)
		}
		close(release)
		if got := outcomes(t, js, futures); got["60505"] != n-1 || got["stored"] != 1 {
			t.Errorf("%v", got)
		}
		if s := r.state(); s.Msgs != 1 {
			t.Errorf("stored %d: what was answered for must not be stored too", s.Msgs)
		}
	})
}

func TestBacklogFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		r.space.full.Store(true)
		r.space.wait.Store(int64(1500*time.Millisecond + 1))
		e := wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 503, 60503)
		if !strings.HasSuffix(e.Description, "; retry_after_ms=1501") {
			t.Errorf("description %q", e.Description)
		}
		m, err := r.connect().RequestWithContext(t.Context(), "ingress.acme.t", nil)
		if err != nil {
			t.Fatal(err)
		}
		if h := m.Header; h.Get("Retry-After") != "2" || h.Get("Flowgate-Retry-After-Ms") != "1501" || h.Get("Flowgate-Reason") != "backlog" {
			t.Errorf("headers %v", h)
		}
		nc := r.connect()
		if err := nc.Publish("ingress.acme.t", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.metric("flowgate_ingress_messages_total", "reason", "backlog", "transport", "nats_no_reply"); n != 1 {
			t.Errorf("refused without a reply subject: %v", n)
		}
		if n := r.metric("flowgate_ingress_messages_total", "reason", "backlog", "transport", "nats"); n != 2 {
			t.Errorf("refused: %v", n)
		}
		if r.door.RefusedRate() <= 0 {
			t.Error("no rate of refusals")
		}
		if s := r.state(); s.Msgs > 0 || len(r.limits.costs()) > 0 {
			t.Errorf("%d stored, limits charged %v", s.Msgs, r.limits.costs())
		}
	})
}

// Names that producers make up get no label of their own while they are refused.
func TestRefusedTenantLabels(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config, d *Deps, _ *jetstream.StreamConfig) {
			c.Tenants = []string{"acme"}
			d.KnownTenant = func(string) string { return "other" }
		}).run()
		js := r.producer()
		for _, subject := range []string{"ingress.x1.t", "ingress.x2.t", "ingress.x3"} {
			_ = wantRefused(t, second(js.Publish(t.Context(), subject, nil)))
		}
		_ = wantRefused(t, second(js.Publish(t.Context(), "ingress.é.t", nil)))
		if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is counted after it is answered
		for tenant, want := range map[string]float64{"other": 3, "": 1, "acme": 1} {
			if n := r.metric("flowgate_ingress_messages_total", "tenant", tenant); n != want {
				t.Errorf("tenant %q: %v, want %v", tenant, n, want)
			}
		}
	})
}

func wantRefused(t *testing.T, err error) error {
	t.Helper()
	if err == nil {
		t.Error("admitted")
	}
	return err
}
