package shaper

import (
	"fmt"
	"testing"
	"time"

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
