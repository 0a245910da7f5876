package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// TestLapsedTakeNoTurn: messages whose deadline passed while they waited cost the
// consumer nothing of its rate, whether they stand alone or between others.
func TestLapsedTakeNoTurn(t *testing.T) {
	for _, batch := range []int{1, 7} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t)
				soon := time.Now().Add(time.Minute).Format(time.RFC3339Nano)
				later := time.Now().Add(time.Hour).Format(time.RFC3339Nano)
				for i := range 330 {
					m := &nats.Msg{Subject: subjects + ".acme.orders", Header: nats.Header{"X": {"y"}}}
					switch {
					case i%11 == 10:
						m.Header.Set("Flowgate-Deadline", later)
					case i%11 > 0:
						m.Header.Set("Flowgate-Deadline", soon)
					}
					if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
				lapsed := make(chan consumers.Delivery, 330)
				r.destination.outcome = func(d consumers.Delivery) consumers.Outcome {
					if !d.Deadline.IsZero() && d.ReleasedAt.After(d.Deadline) {
						lapsed <- d
					}
					return done(d)
				}
				time.Sleep(2 * time.Minute)
				began := time.Now()
				r.run(config(), func(d *Deps) { d.Batch = batch })
				time.Sleep(time.Duration(60+batch) * time.Second / 10)
				var alive []attempt
				for _, a := range r.destination.log() {
					if a.Deadline.IsZero() || a.at.Before(a.Deadline) {
						alive = append(alive, a)
					}
				}
				if len(alive) != 60 || len(lapsed) != 270 {
					t.Fatalf("%d are delivered and %d lapsed", len(alive), len(lapsed))
				}
				for range 270 {
					if d := <-lapsed; d.ReleasedAt.After(began.Add(6500 * time.Millisecond)) {
						t.Errorf("%d lapsed only at %s", d.Seq, d.ReleasedAt.Sub(began))
					}
				}
				var seq uint64
				for _, a := range alive {
					if a.Seq < seq {
						t.Errorf("%d came after %d", a.Seq, seq)
					}
					seq = a.Seq
				}
				if n := r.left(); n != 0 {
					t.Errorf("%d are left", n)
				}
			})
		})
	}
}
