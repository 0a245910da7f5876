package shaper

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// mortal runs a shaper whose process ends, with all it had not written, when a
// message of the tenant "poison" is delivered.
func (r *rig) mortal() *running {
	nc := r.connect()
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx := r.t.Context()
	state, err := js.KeyValue(ctx, "FLOWGATE_STATE")
	if err != nil {
		r.t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_FLOWGATE_STATE")
	if err != nil {
		r.t.Fatal(err)
	}
	r.destination.outcome = func(d consumers.Delivery) consumers.Outcome {
		if d.Tenant == "poison" {
			nc.Close()
		}
		return done(d)
	}
	return r.run(config(), func(d *Deps) {
		d.NATS, d.State, d.StateStream, d.DrainTime = nc, state, stream, time.Millisecond
	})
}

// A message that ends the process at each attempt has its attempts counted, so that it
// can become a dead letter; and nothing else of its neighbours is held up or counted.
func TestAMessageThatEndsTheProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 3)
		r.publish("poison", 1)
		r.publish("acme", 3)
		for range 5 {
			s := r.mortal()
			<-s.ended
			if s.result == nil {
				t.Fatal("the process did not end")
			}
			time.Sleep(time.Second)
		}
		var poison []int
		acme := map[uint64]int{}
		for _, a := range r.destination.log() {
			if a.Tenant == "poison" {
				poison = append(poison, a.Attempt)
			} else {
				acme[a.Seq] = max(acme[a.Seq], a.Attempt)
			}
		}
		// Of the first nothing is known but that the process ended.
		want := []int{1, 1, 2, 3, 4}
		for i := range want {
			if i >= len(poison) || poison[i] != want[i] {
				t.Fatalf("attempts %v, want %v", poison, want)
			}
		}
		for seq, n := range acme {
			if n > 2 {
				t.Errorf("%d of the neighbours is at its attempt %d", seq, n)
			}
		}
		// After an end in order nobody is suspected, and nothing is left behind.
		r.destination.set(func(d *destination) { d.outcome = done })
		s := r.run(config(), nil)
		time.Sleep(5 * time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		stream, err := r.js.Stream(t.Context(), "KV_FLOWGATE_STATE")
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != 1 || r.left() != 0 {
			t.Errorf("%d entries in the state bucket, want the departure; %d messages left", n, r.left())
		}
		r.publish("acme", 1)
		s = r.run(config(), nil)
		time.Sleep(time.Second)
		if s.index.suspectsTo != 0 {
			t.Error("after an end in order messages are suspected")
		}
	})
}

// The lease is looked at right before the call: a delivery that left the clock and was
// held up does not reach the consumer after its end.
func TestLeaseRightBeforeTheCall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 5)
		var looks atomic.Int64
		r.run(config(), func(d *Deps) {
			d.Lease = leaseFunc(func() bool {
				n := looks.Add(1)
				return n%2 == 1 || n > 10 // it ends between the two looks
			})
		})
		time.Sleep(10 * time.Second)
		conforms(t, r.destination.log(), 5, config().Rate)
		if n := r.left(); n > 0 {
			t.Errorf("%d messages are left", n)
		}
		if first := r.destination.log()[0].at.Sub(r.start); first < 400*time.Millisecond {
			t.Errorf("the first delivery was made after %v, while the lease had ended", first)
		}
	})
}

type leaseFunc func() bool

func (f leaseFunc) Valid() bool { return f() }

// An attempt that is written down and not made counts for nothing after an end in order.
func TestAnAttemptThatIsNotMade(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = failing(5, 2*time.Second)
		r.publish("acme", 1)
		var ends atomic.Bool
		var looks atomic.Int64
		s := r.run(config(), func(d *Deps) {
			d.Lease = leaseFunc(func() bool {
				return !ends.Load() || looks.Add(1)%2 == 1 // it ends right before the call
			})
		})
		time.Sleep(time.Second) // one attempt
		ends.Store(true)
		time.Sleep(5 * time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(r.destination.log()); n != 1 {
			t.Fatalf("%d attempts were made", n)
		}
		kv, err := r.js.KeyValue(t.Context(), "FLOWGATE_STATE")
		if err != nil {
			t.Fatal(err)
		}
		e, err := kv.Get(t.Context(), "retry.1")
		if err != nil {
			t.Fatal(err)
		}
		var a attempts
		if err := json.Unmarshal(e.Value(), &a); err != nil || a.Attempts != 1 {
			t.Errorf("kept is %s, %v; one attempt was made", e.Value(), err)
		}
	})
}
