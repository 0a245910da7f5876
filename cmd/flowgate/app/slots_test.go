package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/shaper"
)

// times is when the sink got what it got.
func (s *sink) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// send publishes one message with an id.
func send(js jetstream.JetStream, t *testing.T, tenant, id string) (code jetstream.ErrorCode, wait time.Duration) {
	t.Helper()
	m := &nats.Msg{Subject: "ingress." + tenant + ".orders", Data: []byte("x")}
	if id != "" {
		m.Header = nats.Header{"Nats-Msg-Id": {id}}
	}
	_, err := js.PublishMsg(t.Context(), m)
	if code, wait = refusal(err); err != nil && code == 0 {
		t.Errorf("%s of %s: %v", id, tenant, err)
	}
	return code, wait
}

// Producers who obey: ten times the rate at first, then a fifth more than it. Each is
// admitted at its second try, the database is never idle, and the depth stays below HIGH
// but for what tenants below their part add.
func TestObedientProducers(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, ids := range []bool{true, false} {
			t.Run(fmt.Sprintf("own tenants %v, ids %v", own, ids), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) { obey(t, own, ids) })
			})
		}
	}
}

func obey(t *testing.T, own, ids bool) {
	const producers, rate, high = 40, 100, 400
	r := start(t, fmt.Sprint("FLOWGATE_SHAPER_RATE=", rate, "/s"), fmt.Sprint("FLOWGATE_BACKPRESSURE_HIGH=", high), "FLOWGATE_LIMIT_TENANT=unlimited")
	var mu sync.Mutex
	var second, passed int
	var refusedAt time.Time
	begin := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var all sync.WaitGroup
	for i := range producers {
		_, js := r.client()
		tenant := "acme"
		if own {
			tenant = fmt.Sprint("tenant", i)
		}
		all.Go(func() {
			next := begin.Add(time.Duration(i) * time.Millisecond)
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(time.Until(next))
				gap := time.Second * producers / rate / 10
				if time.Since(begin) > 5*time.Second {
					gap = gap * 100 / 12
				}
				next = next.Add(gap)
				id := ""
				if ids {
					id = fmt.Sprint(i, "-", n)
				}
				for tries := 1; ctx.Err() == nil; tries++ {
					code, wait := send(js, t, tenant, id)
					mu.Lock()
					if tries == 2 {
						if second++; code == 0 {
							passed++
						}
					}
					if code != 0 && refusedAt.IsZero() {
						refusedAt = time.Now()
					}
					mu.Unlock()
					if code == 0 {
						break
					}
					if code != 60503 || wait <= 0 {
						t.Errorf("refused with %d, wait %v", code, wait)
					}
					time.Sleep(wait)
				}
			}
		})
	}
	deepest := uint64(0)
	for ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		if s, ok := r.Status(); ok {
			deepest = max(deepest, s.Depth.Total)
		}
	}
	end := time.Now()
	all.Wait()
	delivered := 0
	for _, at := range r.sink.times() {
		if at.After(refusedAt) && at.Before(end) {
			delivered++
		}
	}
	busy := float64(delivered) / (rate * end.Sub(refusedAt).Seconds())
	kept := float64(passed) / float64(second)
	t.Logf("busy %.1f %%, second tries admitted %.1f %% of %d, deepest %d", 100*busy, 100*kept, second, deepest)
	least, most := 0.95, uint64(high)
	if !ids {
		least = 0.90
	}
	if own {
		most += producers
	}
	if busy < 0.95 || kept < least || second < 20 || deepest > most {
		t.Errorf("busy %.1f %%, second tries admitted %.1f %% of %d, deepest %d", 100*busy, 100*kept, second, deepest)
	}
}

// Who is refused keeps its place although others come, and has one place however often it
// asks.
func TestAPlaceIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_SHAPER_RATE=10/s")
		_, js := r.client()
		for i := range 105 {
			if code, _ := send(js, t, "acme", fmt.Sprint("fill", i)); code != 0 {
				break
			}
		}
		_, first := send(js, t, "acme", "a")
		_, other := send(js, t, "acme", "b")
		if gap := other - first; gap < 90*time.Millisecond || gap > 110*time.Millisecond {
			t.Errorf("hints %v and %v at 10/s", first, other)
		}
		time.Sleep(time.Second)
		if _, again := send(js, t, "acme", "a"); (again - (first - time.Second)).Abs() > 20*time.Millisecond {
			t.Errorf("asked again after a second: %v, was %v", again, first)
		}
		time.Sleep(first - time.Second)
		if code, wait := send(js, t, "acme", "c"); code != 60503 {
			t.Errorf("a newcomer in between: %d, %v", code, wait)
		}
		if code, wait := send(js, t, "acme", "a"); code != 0 {
			t.Errorf("at its time: %d, %v", code, wait)
		}
	})
}

// A pause that ends is part of the hint.
func TestHintsKnowThePause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_LOW=60", "FLOWGATE_SHAPER_RATE=10/s")
		if _, _, err := r.running().shaper.Pause(t.Context(), shaper.Pause{Until: time.Now().Add(30 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		_, js := r.client()
		r.admitted(js, "acme", 100)
		if code, wait := send(js, t, "acme", "a"); code != 60503 || wait < 33*time.Second || wait > 35*time.Second {
			t.Errorf("paused for 30 s and 40 messages above LOW: %d, %v", code, wait)
		} else {
			time.Sleep(wait)
		}
		if code, wait := send(js, t, "acme", "a"); code != 0 {
			t.Errorf("at its time: %d, %v", code, wait)
		}
	})
}

// Those who filled the backlog are refused, and who did not are not, by the live weights.
func TestQuietTenantsAreAdmitted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_SHAPER_RATE=1/s", "FLOWGATE_SHAPER_WEIGHTS=big=4")
		_, js := r.client()
		count := func(tenant string) (n int) {
			for ; n < 300; n++ {
				if code, _ := send(js, t, tenant, ""); code != 0 {
					break
				}
			}
			return n
		}
		if n := count("hog"); n < 100 || n > 102 {
			t.Errorf("alone: %d", n)
		}
		if n := count("big"); n < 78 || n > 84 {
			t.Errorf("with a weight of 4 beside 1: %d of 80", n)
		}
		if n := count("quiet"); n < 15 || n > 18 {
			t.Errorf("with 1 beside 5: %d of 16", n)
		}
		// What is left up to MAX is for others, and at MAX it is the gateway that says so.
		others := 0
		for ; others < 20; others++ {
			if code, wait := send(js, t, fmt.Sprint("other", others), ""); code != 0 {
				if code != 60503 || wait < 50*time.Millisecond || wait > time.Minute {
					t.Errorf("at MAX: %d, %v", code, wait)
				}
				break
			}
		}
		if s := r.settled(); s.Depth.Total < 198 || s.Depth.Total > 200 || others == 20 {
			t.Errorf("depth %d with %d others, MAX is 200", s.Depth.Total, others)
		}
	})
}

func TestTenantMax(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_TENANT_MAX=20%", "FLOWGATE_SHAPER_RATE=1/s")
		_, js := r.client()
		for _, tenant := range []string{"acme", "globex"} {
			n := 0
			for ; n < 50; n++ {
				code, wait := send(js, t, tenant, fmt.Sprint(n))
				if code == 0 {
					continue
				}
				if code != 60430 || wait < 500*time.Millisecond || wait > 3*time.Second {
					t.Errorf("%s: %d, %v", tenant, code, wait)
				}
				break
			}
			if n < 20 || n > 22 {
				t.Errorf("%s has %d messages of 20", tenant, n)
			}
		}
		if s := r.settled(); s.Level != "normal" {
			t.Errorf("level %s", s.Level)
		}
	})
}

// The age of the oldest message and an outage of the consumer are signals, if they are
// given a mark.
func TestOtherSignals(t *testing.T) {
	for name, set := range map[string]string{"age": "FLOWGATE_BACKPRESSURE_HIGH_AGE=10s", "outage": "FLOWGATE_BACKPRESSURE_HIGH_OUTAGE=10s"} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := start(t, set, "FLOWGATE_BACKPRESSURE_FAIR=off")
				r.sink.answers(away)
				_, js := r.client()
				r.admitted(js, "acme", 50)
				time.Sleep(5 * time.Second)
				r.admitted(js, "acme", 1)
				time.Sleep(8 * time.Second)
				code, wait := send(js, t, "acme", "a")
				if s := r.settled(); code != 60503 || s.Level != "pressured" {
					t.Errorf("after 13 s: %d, level %s", code, s.Level)
				}
				r.sink.answers(nil)
				time.Sleep(max(wait, 10*time.Second))
				if s := r.settled(); s.Level != "normal" {
					t.Errorf("with all delivered the level is %s", s.Level)
				}
				r.admitted(js, "acme", 1)
				g := r.running()
				for _, signal := range g.backlog.Snapshot(g.clock.now()).Signals {
					want := uint64(0)
					if signal.Signal.String() == name {
						want = 1
					}
					if signal.ToPressured != want || signal.ToNormal != want {
						t.Errorf("%+v", signal)
					}
				}
			})
		})
	}
}

// In shadow mode all of it decides and nothing is refused, nor a place promised.
func TestShadowPromisesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_MODE=shadow", "FLOWGATE_BACKPRESSURE_HIGH=50", "FLOWGATE_BACKPRESSURE_TENANT_MAX=30", "FLOWGATE_SHAPER_RATE=1/s")
		_, js := r.client()
		r.admitted(js, "acme", 80)
		g := r.running()
		if s := g.backlog.Snapshot(g.clock.now()); s.Slots != 0 || !s.Pressured {
			t.Errorf("%d slots, pressured %v", s.Slots, s.Pressured)
		}
	})
}
