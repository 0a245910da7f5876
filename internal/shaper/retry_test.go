package shaper

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// failing fails the first so many attempts at each message.
func failing(times int, delay time.Duration) func(consumers.Delivery) consumers.Outcome {
	return func(d consumers.Delivery) consumers.Outcome {
		if d.Attempt > times {
			return done(d)
		}
		return consumers.Outcome{Action: consumers.Later, Delay: delay, Counted: true, Err: errors.New("no")}
	}
}

// Retries pass the same bucket as first attempts.
func TestRetriesAreMetered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = failing(2, 300*time.Millisecond)
		r.publish("acme", 30)
		r.run(config(), nil)
		time.Sleep(11 * time.Second)
		conforms(t, r.destination.log(), 90, config().Rate)
		if n := r.left(); n > 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

// B03: parked messages do not hold up the others.
func TestDelayedMessagesStepAside(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = func(d consumers.Delivery) consumers.Outcome {
			if d.Tenant == "stuck" {
				return consumers.Outcome{Action: consumers.Later, Delay: time.Hour}
			}
			return done(d)
		}
		r.publish("stuck", 20)
		s := r.run(config(), func(d *Deps) { d.Concurrency = 1 })
		time.Sleep(3 * time.Second)
		r.publish("fine", 5)
		time.Sleep(600 * time.Millisecond)
		fine := 0
		for _, a := range r.destination.log() {
			if a.Tenant == "fine" {
				fine++
			}
		}
		if fine != 5 {
			t.Errorf("%d of 5 messages passed 20 parked ones within 5 intervals", fine)
		}
		if _, _, delayed, _ := r.backlog.state(); delayed != 20 {
			t.Errorf("%d delayed, want 20", delayed)
		}
		at, ok := s.Oldest()
		if age := time.Since(at); !ok || age < 3*time.Second {
			t.Errorf("the oldest message is %s old", age)
		}
	})
}

// Attempts and due times are ours, and outlive the process.
func TestAttemptsOutliveARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = failing(3, 10*time.Second)
		r.publish("acme", 1)
		s := r.run(config(), nil)
		time.Sleep(12 * time.Second) // two attempts
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		r.run(config(), nil)
		time.Sleep(5 * time.Second)
		if n := len(r.destination.log()); n != 2 {
			t.Fatalf("%d attempts before the second wait was over; want 2", n)
		}
		time.Sleep(30 * time.Second)
		log := r.destination.log()
		var attempts []int
		for _, a := range log {
			attempts = append(attempts, a.Attempt)
		}
		if len(attempts) != 4 || attempts[2] != 3 || attempts[3] != 4 {
			t.Errorf("attempts %v, want 1 2 3 4", attempts)
		}
		kv, err := r.js.KeyValue(t.Context(), "FLOWGATE_STATE")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Get(t.Context(), "retry.1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("the attempts are kept after the delivery: %v", err)
		}
		stream, err := r.js.Stream(t.Context(), "KV_FLOWGATE_STATE")
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != 1 { // the departure
			t.Errorf("%d entries in the state bucket, want 1", n)
		}
	})
}

func TestUncountedAttempts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = func(d consumers.Delivery) consumers.Outcome {
			if time.Since(r.start) < time.Minute {
				return consumers.Outcome{Action: consumers.Later, Delay: 5 * time.Second}
			}
			return done(d)
		}
		r.publish("acme", 1)
		r.run(config(), nil)
		time.Sleep(2 * time.Minute)
		for _, a := range r.destination.log() {
			if a.Attempt != 1 {
				t.Errorf("attempt %d, want 1: none counted", a.Attempt)
			}
		}
	})
}
