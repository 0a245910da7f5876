package shaper

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/consumers"
)

// Outlet makes one attempt at a batch and says what happens to each message.
type Outlet interface {
	Attempt(ctx context.Context, batch []consumers.Delivery) []consumers.Outcome
	// Ready claims the right to start a delivery; if the consumer is held back,
	// it says for how long. Unready gives an unused claim back.
	Ready(now time.Time) (wait time.Duration, ok bool)
	Unready()
}

// Backlog is told what the outlet holds.
type Backlog interface {
	Seen(seq uint64)
	Skipped(seq uint64)
	Outlet(waiting, inFlight, delayed, finished uint64)
	CaughtUp(lastSeq uint64)
	// Stored is the stream's own count.
	Stored(messages, bytes uint64)
}

// Lease is the right to deliver. While it is not valid nothing is; who holds it
// sees to its end.
type Lease interface{ Valid() bool }

// Deps are what a Shaper works with.
type Deps struct {
	// NATS carries the pull requests, the messages and the acks.
	NATS *nats.Conn
	// Stream and Consumer are the names of the backlog stream and its durable;
	// Subjects is the backlog's subject prefix without its last dot.
	Stream, Consumer, Subjects string
	// Restore makes the durable again if it was deleted.
	Restore func(ctx context.Context) error
	// Origin names messages without an id: "<stream>@<incarnation>".
	Origin string
	// Created is when the stream was made: another time is another stream.
	Created time.Time
	// State keeps the departure clock and the attempts; StateStream is its
	// stream, from which what is over is removed.
	State       jetstream.KeyValue
	StateStream jetstream.Stream

	Outlet  Outlet
	Backlog Backlog
	Lease   Lease
	// Forwarded counts what the front door forwarded; the feed steps back while
	// it is busy.
	Forwarded func() uint64

	// Concurrency is the most deliveries in flight, Batch the most messages of
	// one delivery (0 is 1).
	Concurrency, Batch int
	// DrainTime bounds the wait for deliveries in flight when Run's context ends.
	DrainTime time.Duration
	// Clock reads monotonic nanoseconds, anchored to Unix time.
	Clock      func() int64
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Shaper is the outlet's pace. One goroutine decides what leaves and when.
type Shaper struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	clock   *algorithms.DepartureClock // owned by the dispatcher
	paced   bool                       // the dispatcher's: it waited for the clock alone
	acks    *acks
	ackRoom int // most unconfirmed at once
	state   *stateKeeper
	loader  *loader
	jobs    chan []*message
	wake    chan struct{}
	resync  chan string // asks for a reset of the consumer, with the reason
	looked  chan struct{}

	mu      sync.Mutex // guards all below
	index   *index
	saved   map[uint64]attempts // of messages not seen yet
	gen     uint32
	pruned  uint32  // the generation that was compared with the index last
	prefix  *string // of the newest handle
	maxSeen uint64
	tidied  bool
	// unconfirmed is how many in flight are done but for the broker's confirmation.
	unconfirmed int
	finished    uint64 // since the backlog was told
	audit       Audit
}

// New makes a Shaper; nothing starts before Run.
func New(cfg Config, deps Deps) (*Shaper, error) {
	clock, err := algorithms.NewDepartureClock(cfg.Rate, cfg.Tolerance)
	if err != nil {
		return nil, fmt.Errorf("shaper: FLOWGATE_SHAPER_RATE: %w", err)
	}
	deps.Batch = max(1, deps.Batch)
	s := &Shaper{
		cfg: cfg, deps: deps, clock: clock,
		log:    deps.Logger.With("component", "shaper"),
		index:  newIndex(int64(cfg.Memory)),
		jobs:   make(chan []*message, deps.Concurrency),
		wake:   make(chan struct{}, 1),
		resync: make(chan string, 1),
		looked: make(chan struct{}),
	}
	s.acks = newAcks(deps.NATS, s.settled)
	s.ackRoom = ackRoom(cfg.Rate)
	s.state = newStateKeeper(deps.State, deps.StateStream, s.log)
	s.loader = newLoader(s)
	s.metrics = newMetrics(deps.Registerer)
	return s, nil
}

// ackRoom is how many acknowledgements may wait for the broker's confirmation at
// once: what leaves in 100 ms, so that the broker's pauses cost no pace, and a
// crash repeats no more than that beside what the consumer works on. 4 to 4096.
// (With 145,000 messages waiting the broker pauses for tens of milliseconds: room for
// 20 ms reached 98.8 % of 2,000/s.)
func ackRoom(rate algorithms.Rate) int {
	return int(min(max(math.Ceil(rate.PerSecond()*0.100), 4), 4096))
}

// Run meters until ctx ends; then it finishes what is in flight, within the
// drain time, and leaves the rest to the stream. It fails if the stream is gone.
func (s *Shaper) Run(ctx context.Context) error {
	saved, departure, err := s.state.load(ctx)
	if err != nil {
		return err
	}
	s.saved = saved
	s.clock.Restore(departure, s.deps.Clock(), uint64(s.deps.Batch))
	if err := s.acks.listen(); err != nil {
		return err
	}

	run, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Deliveries outlive ctx: they get the drain time.
	deliver, cut := context.WithCancel(context.Background())
	defer cut()
	keep, stopKeeping := context.WithCancel(context.Background())
	defer stopKeeping()

	var loops, workers, keeper sync.WaitGroup
	loop := func(f func(context.Context) error) {
		loops.Go(func() {
			if err := f(run); err != nil {
				fail(err)
			}
		})
	}
	loop(s.feed)
	loop(s.watchConnection)
	loop(s.watchStream)
	loop(s.dispatch)
	for range loaders {
		loop(s.loader.run)
	}
	keeper.Go(func() { s.state.run(keep) })
	for range s.deps.Concurrency {
		workers.Go(func() { s.deliver(deliver) })
	}

	<-run.Done()
	loops.Wait()
	close(s.jobs) // the dispatcher is gone
	timer := time.AfterFunc(s.deps.DrainTime, cut)
	workers.Wait()
	timer.Stop()
	s.acks.wait(time.Second)
	s.state.depart(s.clock.Next(), true)
	stopKeeping()
	keeper.Wait()
	if cause := context.Cause(run); ctx.Err() == nil {
		return cause
	}
	return nil
}

// dispatch lets deliveries go, one decision after the other.
func (s *Shaper) dispatch(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.step())
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
	}
}

const (
	// idle is how long the dispatcher sleeps when only an event can change anything.
	idle = time.Hour
	// leasePause is how long until it looks again at a lease that is not valid.
	leasePause = 50 * time.Millisecond
)

// step starts all the deliveries that may start now and returns how long to wait
// for the next, unless something happens before.
func (s *Shaper) step() time.Duration {
	for {
		now := s.deps.Clock()
		s.mu.Lock()
		s.index.promote(now)
		s.index.unloadedAhead(s.ahead(), s.loader.request)
		free := s.index.nInFlight-s.unconfirmed < s.deps.Concurrency*s.deps.Batch && s.unconfirmed < s.ackRoom && len(s.jobs) < cap(s.jobs)
		ready := s.index.nWaiting > 0
		due, delayed := s.index.nextDue()
		s.mu.Unlock()
		switch {
		case !free, !ready && !delayed:
			return s.hold(idle)
		case !ready:
			return s.hold(time.Duration(due - now))
		}
		if wait := s.clock.Wait(now); wait > 0 {
			s.paced = true
			return min(wait, idle)
		}
		if !s.deps.Lease.Valid() {
			return s.hold(leasePause)
		}
		wait, ok := s.deps.Outlet.Ready(time.Unix(0, now))
		if !ok {
			return s.hold(min(max(wait, time.Millisecond), idle))
		}
		if wait, started := s.start(); !started {
			s.deps.Outlet.Unready()
			return s.hold(wait)
		}
	}
}

// hold waits for something else than the departure clock: what leaves next is not
// late.
func (s *Shaper) hold(wait time.Duration) time.Duration {
	s.paced = false
	return wait
}

// start takes the next batch and sends it off at the departure clock's reading; if
// it cannot, it says when to try again.
func (s *Shaper) start() (wait time.Duration, started bool) {
	s.mu.Lock()
	var batch []*message
	for len(batch) < s.deps.Batch {
		m := s.index.take()
		if m == nil {
			break
		}
		batch = append(batch, m)
	}
	s.mu.Unlock()
	if len(batch) == 0 {
		return idle, false // all that wait are being read; the loader wakes us
	}
	if !s.deps.Lease.Valid() { // right before: it ends by itself
		s.mu.Lock()
		for _, m := range slices.Backward(batch) {
			s.index.putBack(m)
		}
		s.mu.Unlock()
		return leasePause, false
	}
	scheduled := s.clock.Next()
	now := s.deps.Clock()
	// The clock only moves on from the Wait that let us in.
	s.clock.Depart(now, uint64(len(batch)))
	for _, m := range batch {
		m.due = now // in flight it is the departure
	}
	// Late is what the clock alone held back; what came or was let go just now is not.
	late := int64(0)
	if s.paced {
		late = now - scheduled
	}
	s.metrics.released(len(batch), late)
	s.state.depart(s.clock.Next(), false)
	s.tell()
	s.jobs <- batch // has room: one a worker
	return 0, true
}

// ahead is how many of the messages next in turn should have their bodies in
// memory.
func (s *Shaper) ahead() int { return 8 + 4*s.deps.Batch*s.deps.Concurrency }

// deliver is a worker: it makes attempts until there are no more jobs.
func (s *Shaper) deliver(ctx context.Context) {
	for batch := range s.jobs {
		deliveries := make([]consumers.Delivery, len(batch))
		for i, m := range batch {
			deliveries[i] = m.delivery(s.deps.Origin, m.due)
		}
		outcomes := s.deps.Outlet.Attempt(ctx, deliveries)
		s.finish(batch, outcomes)
	}
}

// finish does what the outcomes say. What is to be acknowledged stays in flight
// until the broker confirms that; only so many may.
func (s *Shaper) finish(batch []*message, outcomes []consumers.Outcome) {
	now := s.deps.Clock()
	for i, m := range batch {
		o := outcomes[i]
		if o.Action == consumers.Ack {
			s.mu.Lock()
			s.unconfirmed++
			s.mu.Unlock()
			s.ack(m)
			continue
		}
		if o.Counted {
			m.attempts++
			m.saved = true
			s.state.save(m.seq, attempts{Attempts: int(m.attempts), Due: now + int64(o.Delay)})
		}
		s.mu.Lock()
		s.index.later(m, now+int64(min(o.Delay, math.MaxInt64/4)))
		s.mu.Unlock()
	}
	s.tell()
	s.poke()
}

// settled forgets messages whose acknowledgement is confirmed.
func (s *Shaper) settled(seqs []uint64) {
	s.mu.Lock()
	for _, seq := range seqs {
		m := s.index.bySeq[seq]
		if m == nil || m.state != inFlight {
			continue
		}
		s.index.done(m)
		s.unconfirmed--
		s.finished++
		if m.saved {
			s.state.forget(seq)
		}
	}
	s.mu.Unlock()
	s.tell()
	s.poke()
}

// ack acknowledges a message that is in flight; the feed may be giving it a new
// handle.
func (s *Shaper) ack(m *message) {
	s.mu.Lock()
	handle, gen := m.ack, m.gen
	s.mu.Unlock()
	s.acks.done(m.seq, handle.subject(m.seq, m.at), gen)
}

// tell brings the backlog's count up to date.
func (s *Shaper) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deps.Backlog.Outlet(uint64(s.index.nWaiting), uint64(s.index.nInFlight), uint64(len(s.index.delays)), s.finished)
	s.finished = 0
}

// poke wakes the dispatcher.
func (s *Shaper) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reset asks the feed to reset the consumer.
func (s *Shaper) reset(reason string) {
	select {
	case s.resync <- reason:
	default:
	}
}
