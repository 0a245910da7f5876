package shaper

import (
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

// B10: on stop what is in flight ends and is acknowledged; the rest is for the next.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.takes = 300 * time.Millisecond
		r.publish("acme", 60)
		for range 5 {
			s := r.run(config(), nil)
			time.Sleep(770 * time.Millisecond)
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
		}
		r.run(config(), nil)
		time.Sleep(10 * time.Second)
		conforms(t, r.destination.log(), 60, config().Rate)
		r.once(60)
	})
}

// A delivery that does not end within the drain time is cut off and comes again.
func TestStopCutsOffWhatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.takes = time.Hour
		r.publish("acme", 2)
		s := r.run(config(), nil)
		time.Sleep(time.Second)
		began := time.Now()
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("the stop took %s with a drain time of 5s", took)
		}
		r.destination.set(func(d *destination) { d.takes, d.attempts = 0, nil })
		r.run(config(), nil)
		time.Sleep(time.Second)
		r.once(2)
		for _, a := range r.destination.log() {
			if a.Attempt != 1 {
				t.Errorf("the cut-off counted as attempt: the next is %d", a.Attempt)
			}
		}
	})
}
