package shaper

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/units"
)

// buried are dead letters in memory.
type buried struct {
	mu      sync.Mutex
	letters []consumers.Delivery
}

func (b *buried) Put(_ context.Context, d consumers.Delivery, _ error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letters = append(b.letters, d)
	return nil
}

func (b *buried) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.letters)
}

// runDesk runs a shaper with a desk before the consumer, at 200/s, with the usual
// attempts and waits.
func (r *rig) runDesk(m *modelled, ordered bool) (*consumers.Desk, *buried) {
	cfg, dead := config(), &buried{}
	cfg.Rate, cfg.Memory = algorithms.Rate{N: 200, Per: time.Second}, 64*units.MiB
	desk := consumers.NewDesk(consumers.Config{
		Concurrency: 4, Timeout: 10 * time.Second, MaxAttempts: 5,
		Backoff: 200 * time.Millisecond, BackoffMax: 30 * time.Second, Batch: 1,
	}, m, dead, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	r.run(cfg, func(d *Deps) { d.Outlet, d.Ordered = desk, ordered })
	return desk, dead
}

// doneOf is how many of a tenant's messages were delivered that the consumer takes.
func (m *modelled) doneOf(tenant string, refuses func(consumers.Delivery) bool) (n int) {
	for _, a := range m.attempts() {
		if a.Tenant == tenant && !refuses(a.Delivery) {
			n++
		}
	}
	return n
}

func refusesBad(d consumers.Delivery) bool { return string(d.Payload) == "bad" }

// refusingBad takes all but bad messages.
func refusingBad(asks time.Duration) func(time.Time, consumers.Delivery) error {
	return func(_ time.Time, d consumers.Delivery) error {
		if time.Sleep(time.Millisecond); refusesBad(d) {
			return consumers.Overloaded(asks, errors.New("429 Too Many Requests"))
		}
		return nil
	}
}

// TestRefusedAlone: a message that is refused each time while the others are taken is
// tried less and less often, and ends; in order, so does the wait of those behind it.
func TestRefusedAlone(t *testing.T) {
	for name, ordered := range map[string]bool{"none": false, "tenant": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t)
				m := &modelled{judge: refusingBad(0)}
				_, dead := r.runDesk(m, ordered)
				r.store("acme", []byte("bad"))
				r.publish("acme", 1)
				began := time.Now()
				const n = 20 * 60
				for range n { // 20 minutes
					r.publish("globex", 1)
					time.Sleep(time.Second)
				}
				var bad []attempt
				var behind time.Duration
				for _, a := range m.attempts() {
					switch {
					case refusesBad(a.Delivery):
						bad = append(bad, a)
					case a.Tenant == "acme":
						behind = a.at.Sub(began)
					}
				}
				if len(bad) < 20 || len(bad) > 40 {
					t.Fatalf("it was tried %d times in 20 minutes", len(bad))
				}
				last := bad[len(bad)-1]
				if took := last.at.Sub(began); took < 5*time.Minute || took > 15*time.Minute {
					t.Errorf("it ended after %s", took)
				}
				if gap := last.at.Sub(bad[len(bad)-2].at); gap < 15*time.Second {
					t.Errorf("at the end it was tried again after %s", gap)
				}
				if last.Attempt != 5 || dead.len() != 1 || r.left() != 0 {
					t.Errorf("ended at attempt %d; %d dead letters, %d messages left", last.Attempt, dead.len(), r.left())
				}
				if behind == 0 || (behind > time.Minute) != ordered {
					t.Errorf("the message behind it came after %s", behind)
				}
				if got := m.doneOf("globex", refusesBad); got != n {
					t.Errorf("%d of %d others delivered", got, n)
				}
			})
		})
	}
}

// TestRefusedAloneHoldsNobodyUp: a message that is refused alone opens the breaker while
// there is nothing else to do; what comes then is not held back behind it, each probe
// being that message again.
func TestRefusedAloneHoldsNobodyUp(t *testing.T) {
	for name, test := range map[string]struct{ asks, within time.Duration }{
		"refused": {0, 20 * time.Second},
		// All pause each time; the waits grow in between.
		"asks for a pause": {2 * time.Second, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t)
				m := &modelled{judge: refusingBad(test.asks)}
				desk, _ := r.runDesk(m, false)
				for range 3 {
					r.store("acme", []byte("bad"))
				}
				time.Sleep(time.Minute)
				if desk.BreakerState() == consumers.BreakerClosed {
					t.Fatal("the breaker is closed though nothing was taken")
				}
				const n = 500
				r.publish("acme", n)
				time.Sleep(test.within)
				if got := m.doneOf("acme", refusesBad); got != n {
					t.Errorf("%d of %d messages passed the refused ones in %s", got, n, test.within)
				}
			})
		})
	}
}

// TestOverloadedByTheRate: a consumer that takes half of what it is sent costs no
// message an attempt.
func TestOverloadedByTheRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		judge := overRefused(100, 5, 0)
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		m := &modelled{judge: func(now time.Time, d consumers.Delivery) error {
			mu.Lock()
			takes := time.Duration(random.Int64N(int64(5 * time.Millisecond)))
			mu.Unlock()
			time.Sleep(takes)
			return judge(now, d)
		}}
		const n = 6000
		r.publish("acme", n)
		_, dead := r.runDesk(m, false)
		time.Sleep(3 * time.Minute)
		refused := 0
		for _, a := range m.attempts() {
			if a.Attempt != 1 {
				t.Fatalf("attempt %d at %s", a.Attempt, a.ID)
			}
			refused++
		}
		if refused -= n; refused < n/2 {
			t.Fatalf("%d refused; the test tests nothing", refused)
		}
		if dead.len() > 0 || r.left() > 0 {
			t.Errorf("%d dead letters, %d messages left", dead.len(), r.left())
		}
		if got := m.between(r.start, r.start.Add(50*time.Second)); got < 90 {
			t.Errorf("%.1f/s of 100/s", got)
		}
	})
}
