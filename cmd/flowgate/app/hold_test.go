package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// answered publishes n messages at once, each with an inbox of its own, and gives the
// answers with the time each took, in the order of publishing.
func answered(r *running, tenant string, n int, header func(i int) nats.Header) (stored int, refused []time.Duration, slowest time.Duration) {
	r.t.Helper()
	nc, js := r.client()
	type result struct {
		err  error
		took time.Duration
	}
	results := make(chan result, n)
	began := time.Now()
	for i := range n {
		m := &nats.Msg{Subject: "ingress." + tenant + ".orders", Data: fmt.Appendf(nil, "%s %d", tenant, i)}
		if header != nil {
			m.Header = header(i)
		}
		f, err := js.PublishMsgAsync(m)
		if err != nil {
			r.t.Fatal(err)
		}
		go func() {
			select {
			case <-f.Ok():
				results <- result{nil, time.Since(began)}
			case err := <-f.Err():
				results <- result{err, time.Since(began)}
			case <-time.After(3 * time.Second):
				results <- result{fmt.Errorf("no answer"), 3 * time.Second}
			}
		}()
	}
	if err := nc.Flush(); err != nil {
		r.t.Fatal(err)
	}
	for range n {
		res := <-results
		slowest = max(slowest, res.took)
		if res.err == nil {
			stored++
		} else {
			_, wait := refusal(res.err)
			refused = append(refused, wait)
		}
	}
	return stored, refused, slowest
}

// payloads are what a tenant's messages say, in stream order.
func payloads(r *running, tenant string) (texts []string) {
	log := r.sink.log()
	slices.SortFunc(log, func(a, b consumers.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, d := range log {
		if d.Tenant == tenant {
			texts = append(texts, strings.TrimPrefix(string(d.Payload), tenant+" "))
		}
	}
	return texts
}

// With HOLD, who is over a limit is answered later in place of being refused, as long as
// it passes in time; what would not is refused at once.
func TestHoldPacesWhoIsOverALimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_INGRESS_HOLD=1s", "FLOWGATE_LIMIT_TENANT=token-bucket:20/s,burst=5")
		stored, refused, slowest := answered(r, "acme", 40, nil)
		// 5 at once, 20 within the second.
		if stored != 25 || slowest < 900*time.Millisecond || slowest > 1100*time.Millisecond {
			t.Errorf("%d stored, the slowest answer after %s", stored, slowest)
		}
		for _, wait := range refused {
			if wait <= time.Second || wait > 2*time.Second {
				t.Errorf("refused with a hint of %s", wait)
			}
		}
		// What was held took from its limit when it passed.
		if stored, _, _ := answered(r, "globex", 1, nil); stored != 1 {
			t.Error("another tenant is held up")
		}
		r.drained(26)
		for i, text := range payloads(r, "acme") {
			if text != fmt.Sprint(i) {
				t.Errorf("place %d: %s", i, text)
			}
		}
	})
}

// Behind a message that is held its tenant's others wait, also those that no limit
// would hold; another tenant's do not.
func TestHoldKeepsTheOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_INGRESS_HOLD=1s", "FLOWGATE_LIMIT_USER=token-bucket:2/s,burst=1", "FLOWGATE_LIMIT_TENANT=unlimited")
		header := func(i int) nats.Header {
			if i < 2 {
				return nats.Header{"Flowgate-User": {"u"}, "Nats-Msg-Id": {fmt.Sprint(i)}}
			}
			return nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}}
		}
		stored, refused, slowest := answered(r, "acme", 10, header)
		if stored != 10 || len(refused) > 0 || slowest < 400*time.Millisecond || slowest > 700*time.Millisecond {
			t.Errorf("%d stored, %d refused, the slowest after %s", stored, len(refused), slowest)
		}
		r.drained(10)
		for i, text := range payloads(r, "acme") {
			if text != fmt.Sprint(i) {
				t.Errorf("place %d: %s", i, text)
			}
		}
	})
}

// Under pressure a message is held until its slot, if that is near.
func TestHoldUnderPressure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_INGRESS_HOLD=1s", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=50/s",
			"FLOWGATE_BACKPRESSURE_HIGH=40", "FLOWGATE_BACKPRESSURE_LOW=30")
		stored, refused, slowest := answered(r, "acme", 100, nil)
		if stored < 70 || stored > 85 || slowest > 1200*time.Millisecond {
			t.Errorf("%d stored, %d refused, the slowest after %s", stored, len(refused), slowest)
		}
		for _, wait := range refused {
			if wait <= time.Second {
				t.Errorf("refused with a hint of %s", wait)
			}
		}
	})
}

// A stop answers all that is held, and nothing waits for longer than 2 s for its answer,
// whatever is configured.
func TestHoldEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_INGRESS_HOLD=2s", "FLOWGATE_LIMIT_TENANT=fixed-window:1/m")
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - 1900*time.Millisecond)))
		stored, refused, slowest := answered(r, "acme", 3, nil)
		if stored != 1 || len(refused) != 2 || slowest > 100*time.Millisecond {
			t.Errorf("%d stored, %d refused, the slowest after %s", stored, len(refused), slowest)
		}
		time.Sleep(900 * time.Millisecond) // 1 s to the next window
		done := make(chan struct{})
		go func() {
			defer close(done)
			stored, refused, slowest := answered(r, "acme", 3, nil)
			if stored != 0 || len(refused) != 3 || slowest > 700*time.Millisecond {
				t.Errorf("at the stop: %d stored, %d refused, the slowest after %s", stored, len(refused), slowest)
			}
		}()
		time.Sleep(500 * time.Millisecond)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// What was held is not taken for a broker that does not confirm.
func TestHoldIsNoSilence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_INGRESS_HOLD=2s", "FLOWGATE_LIMIT_TENANT=token-bucket:50/s,burst=20")
		for range 5 {
			_, refused, _ := answered(r, "acme", 150, nil)
			for _, wait := range refused {
				if wait == time.Second { // overloaded
					t.Fatal("refused as if the broker were silent")
				}
			}
		}
		if r.running().door.Silent() {
			t.Error("the broker is taken for silent")
		}
	})
}
