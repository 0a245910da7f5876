package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
)

// A tenant that comes late waits behind what is in flight and one message of each
// other tenant, however much they have waiting.
func TestNewcomer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("big", 300)
		r.publish("large", 300)
		r.run(config(), nil)
		time.Sleep(5 * time.Second)
		before := len(r.destination.log())
		r.publish("late", 1)
		time.Sleep(time.Second)
		for i, a := range r.destination.log()[before:] {
			if a.Tenant != "late" {
				continue
			}
			if i > 3 {
				t.Errorf("the newcomer was served after %d others", i)
			}
			return
		}
		t.Error("the newcomer was not served within a second")
	})
}

func TestTenantsInTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		tenants := 7
		for i := range tenants {
			r.publish(fmt.Sprint("tenant", i), 20+30*i)
		}
		r.run(config(), nil)
		time.Sleep(12 * time.Second) // about 17 of each
		counts := map[string]int{}
		for _, a := range r.destination.log() {
			counts[a.Tenant]++
		}
		least, most := 1<<30, 0
		for i := range tenants {
			n := counts[fmt.Sprint("tenant", i)]
			least, most = min(least, n), max(most, n)
		}
		if least < 15 || most-least > 1 {
			t.Errorf("served %v", counts)
		}
	})
}

func TestOrderWithinATenant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.run(config(), nil)
		for range 10 {
			r.publish("acme", 3)
			r.publish("globex", 2)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		_ = s.stop()
		r.run(config(), nil) // the rest, in another life
		time.Sleep(10 * time.Second)
		last := map[string]uint64{}
		log := r.destination.log()
		for _, a := range log {
			if a.Seq <= last[a.Tenant] {
				t.Errorf("%s: %d after %d", a.Tenant, a.Seq, last[a.Tenant])
			}
			last[a.Tenant] = a.Seq
		}
		if len(log) != 50 {
			t.Errorf("%d deliveries of 50", len(log))
		}
	})
}

// Tenants get their weights' parts, of the cost and not of the number, and new weights
// hold at once.
func TestWeightsAndCosts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, tenant := range []string{"five", "three", "two"} {
			r.publish(tenant, 900)
		}
		for range 300 {
			m := nats.NewMsg(subjects + ".costly.orders")
			m.Header.Set("Flowgate-Cost", "10")
			if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		cfg := config()
		cfg.Rate = algorithms.Rate{N: 100, Per: time.Second}
		cfg.Weights = Weights{"five": 5, "three": 3, "two": 2, "costly": 10}
		s := r.run(cfg, nil)
		counts := func(log []attempt) map[string]int {
			n := map[string]int{}
			for _, a := range log {
				n[a.Tenant]++
			}
			return n
		}
		time.Sleep(11 * time.Second)
		log := r.destination.log()[:1100]
		for tenant, want := range map[string]int{"five": 500, "three": 300, "two": 200, "costly": 100} {
			if got := counts(log)[tenant]; got < want-want/100-1 || got > want+want/100+1 {
				t.Errorf("%s got %d of 1100, want %d within 1 %%", tenant, got, want)
			}
		}
		s.SetWeights(Weights{"two": 8, "costly": 10})
		time.Sleep(100 * time.Millisecond)
		from := len(r.destination.log())
		time.Sleep(5510 * time.Millisecond) // 550 and one more
		log = r.destination.log()[from : from+550]
		for tenant, want := range map[string]int{"five": 50, "three": 50, "two": 400, "costly": 50} {
			if got := counts(log)[tenant]; got < want-5 || got > want+5 {
				t.Errorf("with the new weights %s got %d of 550, want %d", tenant, got, want)
			}
		}
	})
}
