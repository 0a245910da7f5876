package shaper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
)

// conforms checks the promise of a rate on a log, and that all of it arrived.
func conforms(t *testing.T, log []attempt, want int, rate algorithms.Rate) {
	t.Helper()
	if len(log) != want {
		t.Fatalf("%d deliveries, want %d", len(log), want)
	}
	if e := algorithms.CheckRate(departures(log), rate, 5*time.Millisecond); e.Broken {
		t.Errorf("%d departures in %s, allowed %.2f", e.Count, time.Duration(e.To-e.From), e.Allowed)
	}
}

// B22: what waited while nothing could leave does not come out as a flood.
func TestPaceAfterIdling(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.run(config(), nil)
		time.Sleep(time.Minute)
		r.publish("acme", 50)
		began := time.Now()
		time.Sleep(4*time.Second + 850*time.Millisecond)
		synctest.Wait()
		if n := len(r.destination.log()); n >= 50 {
			t.Errorf("all %d left within 4.85 s of a pace of 10/s", n)
		}
		time.Sleep(time.Second)
		log := r.destination.log()
		conforms(t, log, 50, config().Rate)
		for i := 1; i < len(log); i++ {
			if gap := log[i].at.Sub(log[i-1].at); gap < 95*time.Millisecond {
				t.Errorf("delivery %d came %s after the one before", i, gap)
			}
		}
		if took := log[49].at.Sub(began); took > 5*time.Second {
			t.Errorf("50 at 10/s took %s", took)
		}
	})
}

func TestPaceWhileTheConsumerIsHeldBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.run(config(), nil)
		r.destination.set(func(d *destination) { d.held = time.Now().Add(time.Minute) })
		r.publish("acme", 30)
		time.Sleep(59 * time.Second)
		if n := len(r.destination.log()); n > 0 {
			t.Fatalf("%d deliveries while the consumer was held back", n)
		}
		time.Sleep(5 * time.Second)
		conforms(t, r.destination.log(), 30, config().Rate)
	})
}

func TestPaceAchieved(t *testing.T) {
	for _, rate := range []algorithms.Rate{{N: 3, Per: time.Minute}, {N: 200, Per: time.Second}, {N: 2000, Per: time.Second}} {
		t.Run(rate.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t)
				const messages = 600
				r.publish("acme", messages)
				cfg := config()
				cfg.Rate = rate
				r.run(cfg, nil)
				span := time.Duration(float64(messages) / rate.PerSecond() * float64(time.Second))
				time.Sleep(span + time.Second)
				log := r.destination.log()
				conforms(t, log, messages, rate)
				first, last := log[0].ReleasedAt, log[len(log)-1].ReleasedAt
				if achieved := float64(messages-1) / last.Sub(first).Seconds() / rate.PerSecond(); achieved < 0.995 {
					t.Errorf("achieved %.4f of the rate", achieved)
				}
				if n := r.left(); n > 0 {
					t.Errorf("%d messages are left in the stream", n)
				}
			})
		})
	}
}

func TestPaceUnlimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 500)
		cfg := config()
		cfg.Rate = algorithms.UnlimitedRate()
		r.run(cfg, nil)
		time.Sleep(time.Second)
		if n := len(r.destination.log()); n != 500 {
			t.Errorf("%d deliveries of 500", n)
		}
	})
}

// A restart behaves as if a delivery had just left, whatever the predecessor did.
func TestPaceOverRestarts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 40)
		for range 8 {
			s := r.run(config(), nil)
			time.Sleep(330 * time.Millisecond)
			if err := s.stop(); err != nil {
				t.Fatal(err)
			}
		}
		r.run(config(), nil)
		time.Sleep(10 * time.Second)
		conforms(t, r.destination.log(), 40, config().Rate)
	})
}

// A clock that was set back between two lives must not stop the outlet.
func TestPaceAfterAClockThatSteppedBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		ahead := r.run(config(), func(d *Deps) {
			d.Clock = func() int64 { return time.Now().Add(time.Hour).UnixNano() }
		})
		r.publish("acme", 5)
		time.Sleep(2 * time.Second)
		if err := ahead.stop(); err != nil {
			t.Fatal(err)
		}
		r.publish("acme", 5)
		r.run(config(), nil)
		time.Sleep(2 * time.Second)
		if n := len(r.destination.log()); n != 10 {
			t.Errorf("%d deliveries of 10", n)
		}
	})
}

func TestConcurrency(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.takes = time.Second
		r.publish("acme", 40)
		r.run(config(), func(d *Deps) { d.Concurrency = 3 })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		waiting, inFlight, _, _ := r.backlog.state()
		if inFlight != 3 || waiting+3 > 40 {
			t.Errorf("%d in flight and %d waiting", inFlight, waiting)
		}
		time.Sleep(20 * time.Second)
		if n := len(r.destination.log()); n != 40 || r.destination.most != 3 {
			t.Errorf("%d deliveries of 40, at most %d at once; want 3", n, r.destination.most)
		}
	})
}

func TestBatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 30)
		r.publish("globex", 30)
		r.run(config(), func(d *Deps) { d.Batch = 5 })
		time.Sleep(7 * time.Second)
		log := r.destination.log()
		if len(log) != 60 {
			t.Fatalf("%d deliveries of 60", len(log))
		}
		batches := map[time.Time]int{}
		var order []algorithms.Departure
		for _, a := range log {
			batches[a.ReleasedAt]++
		}
		for at, n := range batches {
			order = append(order, algorithms.Departure{At: at.UnixNano(), N: uint64(n)})
			if n > 5 {
				t.Errorf("a batch of %d", n)
			}
		}
		if e := algorithms.CheckRate(order, config().Rate, 5*time.Millisecond); e.Broken {
			t.Errorf("%d departures in %s, allowed %.2f", e.Count, time.Duration(e.To-e.From), e.Allowed)
		}
	})
}

// What comes after idling is not late, whenever the last one left.
func TestLateness(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		reg := prometheus.NewRegistry()
		r.run(config(), func(d *Deps) { d.Registerer = reg })
		for range 5 {
			time.Sleep(20 * time.Second)
			r.publish("acme", 3)
		}
		// Nor what the lease held back.
		time.Sleep(20 * time.Second)
		r.publish("acme", 3)
		r.leased.Store(false)
		time.Sleep(20 * time.Second)
		r.leased.Store(true)
		time.Sleep(time.Second)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "flowgate_shaper_lateness_seconds" {
				continue
			}
			h := f.GetMetric()[0].GetHistogram()
			if h.GetSampleCount() != 18 || h.GetSampleSum() > 0.2 {
				t.Errorf("%d deliveries were %.3f s late in all", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
		t.Error("no lateness is exported")
	})
}
