package shaper

import (
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/consumers"
)

// Rehearsal is a Shaper without a broker, moved by hand and by a clock of the caller's:
// for who asks what a gateway would do. Index, departure clock, breaker, batches and
// retries are the Shaper's own. What asks the broker for something has its answer at
// once: a body, an attempt that is written down, an ack. It is not safe for concurrent
// use.
type Rehearsal struct {
	s    *Shaper
	next int64 // when the next step is due; below 0: at once
}

// Departure is a delivery that has started.
type Departure struct {
	At    int64
	Batch []consumers.Delivery
	job   job
}

// NewRehearsal makes one. Of deps it takes the Outlet, of which only Ready and Unready are
// called, the Backlog, the Clock, and what says how deliveries are made.
func NewRehearsal(cfg Config, deps Deps) (*Rehearsal, error) {
	log := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	pace, err := newPace(cfg, newRateMetrics(registry), log)
	if err != nil {
		return nil, err
	}
	deps.Batch, deps.Lease, deps.Logger = max(1, deps.Batch), always{}, log
	s := &Shaper{
		cfg: cfg, deps: deps, pace: pace, log: log,
		index: newIndex(math.MaxInt64/8, deps.Ordered, cfg.Weights),
		jobs:  make(chan job, deps.Concurrency),
		odd:   map[uint64]string{},
		wake:  make(chan struct{}, 1),
	}
	// Without a connection the client refuses every publish, and nothing is lost by it.
	s.acks = &acks{settled: s.settled, seqs: map[uint64]int{}, stale: map[uint64]struct{}{}}
	s.ackRoom = ackRoom(cfg.Rate)
	s.state = newStateKeeper(nil, nil, log)
	s.pause = newPauseKeeper(nil, nil, log, s.poke)
	s.pause.gate.now = func() time.Time { return time.Unix(0, deps.Clock()) }
	s.loader = newLoader(s)
	s.metrics = newMetrics(registry)
	s.pace.Restore(s.pace.Next(), deps.Clock(), uint64(deps.Batch))
	return &Rehearsal{s: s, next: -1}, nil
}

// always is a lease that never ends.
type always struct{}

func (always) Valid() bool { return true }

// nothing is the packed body of every message.
var nothing = pack("", nil, nil)

// Arrive takes in a message of the backlog; its sequence is larger than all before.
func (r *Rehearsal) Arrive(seq uint64, tenant string) {
	s := r.s
	in := arrival{message: message{seq: seq, at: s.deps.Clock()}, tenant: tenant, body: nothing}
	in.setCost(1)
	s.index.add(&in)
	s.maxSeen = seq
	s.deps.Backlog.Seen(seq, tenant)
	if s.index.waiting == 1 || s.deps.Batch > 1 {
		s.poke()
	}
}

// Due is when Step has something to do, if nothing happens before.
func (r *Rehearsal) Due() int64 {
	select {
	case <-r.s.wake:
		r.next = -1
	default:
	}
	return r.next
}

// Step starts all the deliveries that may start now.
func (r *Rehearsal) Step() []Departure {
	s := r.s
	s.dozing.Store(false)
	var started []Departure
	for {
		r.next = s.deps.Clock() + int64(s.step())
		for len(s.jobs) > 0 {
			j := <-s.jobs
			d := Departure{At: j.released, job: j, Batch: make([]consumers.Delivery, len(j.items))}
			for i, m := range j.items {
				d.Batch[i] = m.delivery("rehearsal", m.tenant, int(m.tries.counted), j.released)
				d.Batch[i].Refusals = m.tries.refusals
			}
			started = append(started, d)
		}
		if len(s.loader.requests) == 0 {
			return started
		}
		for len(s.loader.requests) > 0 {
			if m := s.index.find((<-s.loader.requests).seq); m != nil {
				s.index.written(m)
			}
		}
	}
}

// Finish does what the outcomes of a delivery say.
func (r *Rehearsal) Finish(d Departure, outcomes []consumers.Outcome) {
	s := r.s
	s.finish(d.job, outcomes)
	if n := len(s.acks.fifo); n > 0 {
		s.acks.confirmed(&nats.Msg{Subject: "." + formatSeq(s.acks.first+uint64(n))})
	}
	clear(s.state.changes) // nobody writes them
}

// Pause holds deliveries back until an instant of the clock.
func (r *Rehearsal) Pause(until int64) {
	r.s.pause.gate.set(&pauseState{Pause: Pause{Until: time.Unix(0, until)}, on: true})
	r.s.poke()
}

// Paused is Shaper's.
func (r *Rehearsal) Paused() (Pause, bool) { return r.s.Paused() }

// Rate is Shaper's.
func (r *Rehearsal) Rate() RateState { return r.s.Rate() }

// Oldest is Shaper's, and OldestWaiting too.
func (r *Rehearsal) Oldest() (at time.Time, ok bool)        { return r.s.Oldest() }
func (r *Rehearsal) OldestWaiting() (at time.Time, ok bool) { return r.s.OldestWaiting() }
