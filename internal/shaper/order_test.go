package shaper

import (
	"errors"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// With order by tenant a message that fails holds up its tenant, and nobody else.
func TestOrderThroughRetries(t *testing.T) {
	for _, batch := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			r := newRig(t)
			held := map[attemptID]bool{}
			failed := map[uint64]int{}
			var broken time.Time // the batch in which one failed
			r.destination.outcome = func(d consumers.Delivery) consumers.Outcome {
				if d.Tenant == "acme" && d.Seq%3 == 0 && failed[d.Seq] < 2 && d.ReleasedAt != broken {
					failed[d.Seq]++
					broken = d.ReleasedAt
					return consumers.Outcome{Action: consumers.Later, Delay: 2 * time.Second, Counted: true, Err: errors.New("no")}
				}
				if d.ReleasedAt == broken {
					held[attemptOf(d)] = true
					return consumers.Outcome{Action: consumers.Later, Err: errors.New("not tried: one before it failed")}
				}
				return done(d)
			}
			for range 6 {
				r.publish("acme", 3)
				r.publish("globex", 3)
			}
			r.run(config(), func(d *Deps) { d.Ordered, d.Batch = true, batch })
			time.Sleep(4 * time.Second)
			others := 0
			for _, a := range r.destination.log() {
				if a.Tenant == "globex" {
					others++
				}
			}
			if others < 15 {
				t.Errorf("batches of %d: the other tenant had %d deliveries in 4 s", batch, others)
			}
			time.Sleep(time.Minute)
			if n := r.left(); n != 0 {
				t.Fatalf("batches of %d: %d are left", batch, n)
			}
			// A tenant's deliveries never step over one that is not done.
			next := map[string]uint64{}
			inBatch := map[time.Time]string{}
			for _, a := range r.destination.log() {
				if held[attemptOf(a.Delivery)] {
					continue
				}
				if a.Seq < next[a.Tenant] {
					t.Errorf("batches of %d: %s: %d after %d", batch, a.Tenant, a.Seq, next[a.Tenant])
				}
				if a.Attempt == 3 || failed[a.Seq] == 0 {
					next[a.Tenant] = a.Seq
				}
				if other, ok := inBatch[a.ReleasedAt]; ok && other != a.Tenant {
					t.Errorf("a batch is of %s and %s", other, a.Tenant)
				}
				inBatch[a.ReleasedAt] = a.Tenant
			}
		})
	}
}

// attemptID tells one attempt at a message from another.
type attemptID struct {
	seq uint64
	at  time.Time
}

func attemptOf(d consumers.Delivery) attemptID { return attemptID{d.Seq, d.ReleasedAt} }

// Order holds over a restart: what waits for its retry still blocks its tenant.
func TestOrderOverARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = failing(1, 30*time.Second)
		r.publish("acme", 3)
		ordered := func(d *Deps) { d.Ordered = true }
		s := r.run(config(), ordered)
		time.Sleep(5 * time.Second)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		r.run(config(), ordered)
		time.Sleep(10 * time.Second)
		if n := len(r.destination.log()); n != 1 {
			t.Errorf("%d deliveries while the first waits for its retry, want its one", n)
		}
		time.Sleep(2 * time.Minute)
		var seqs []uint64
		for _, a := range r.destination.log() {
			if a.Attempt == 2 {
				seqs = append(seqs, a.Seq)
			}
		}
		if len(seqs) != 3 || seqs[0] != 1 || seqs[1] != 2 || seqs[2] != 3 {
			t.Errorf("done in the order %v", seqs)
		}
	})
}

// A batch waits for more, but no longer than it may.
func TestBatchWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		cfg := config()
		cfg.Rate = algorithms.Rate{N: 100, Per: time.Second}
		r.run(cfg, func(d *Deps) { d.Batch, d.BatchWait = 4, 3*time.Second })
		sizes := func() (sizes []int, first time.Duration) {
			n := map[time.Time]int{}
			log := r.destination.log()
			for _, a := range log {
				n[a.ReleasedAt]++
			}
			for i, a := range log {
				if i == 0 || a.ReleasedAt != log[i-1].ReleasedAt {
					sizes = append(sizes, n[a.ReleasedAt])
				}
			}
			if len(log) > 0 {
				first = log[0].at.Sub(log[0].AdmittedAt)
			}
			return sizes, first
		}
		time.Sleep(time.Second)
		r.publish("acme", 2)
		time.Sleep(2500 * time.Millisecond)
		if got, _ := sizes(); len(got) != 0 {
			t.Fatalf("batches %v after 2.5 s, want none", got)
		}
		time.Sleep(time.Second)
		if got, waited := sizes(); len(got) != 1 || got[0] != 2 || waited > 3100*time.Millisecond {
			t.Fatalf("batches %v after %v, want one of 2 after 3 s", got, waited)
		}
		r.publish("acme", 9)
		time.Sleep(time.Second)
		if got, _ := sizes(); len(got) != 3 || got[1] != 4 || got[2] != 4 {
			t.Fatalf("batches %v: full ones do not wait", got)
		}
		time.Sleep(3 * time.Second)
		if got, _ := sizes(); len(got) != 4 || got[3] != 1 {
			t.Fatalf("batches %v: the rest waits its time", got)
		}
	})
}
