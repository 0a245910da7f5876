package shaper

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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
	Seen(seq uint64, tenant string)
	// Settled is one of a tenant's that is no longer there.
	Settled(tenant string)
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
	// BatchWait is how long a delivery waits for its batch to fill.
	BatchWait time.Duration
	// Ordered: a tenant's messages go strictly in order, one delivery at a time, and
	// a batch is of one tenant.
	Ordered bool
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
	pace    *pace // its clock is the dispatcher's
	paced   bool  // the dispatcher's: it waited for the clock alone
	acks    *acks
	ackRoom int // most unconfirmed at once
	state   *stateKeeper
	pause   *pauseKeeper
	loader  *loader
	jobs    chan job
	filling int64 // the dispatcher's: since when a batch could leave that is not full
	wake    chan struct{}
	dozing  atomic.Bool // the dispatcher waits for the clock alone, and not for long
	resync  chan error  // asks for a reset of the consumer, with the reason
	looked  chan struct{}
	// taken is of the messages handed out since the last reset the last that came in; the
	// feed alone sets it.
	taken atomic.Uint64

	mu      sync.Mutex // guards all below
	index   *index
	saved   map[uint64]attempts // of messages not seen yet
	gen     uint32
	pruned  uint32            // the generation that was compared with the index last
	prefix  string            // of the newest handles
	odd     map[uint64]string // handles of another form, by sequence
	running int               // deliveries that the workers have
	maxSeen uint64
	tidied  bool
	// unconfirmed is how many in flight are done but for the broker's confirmation.
	unconfirmed int
	finished    uint64 // since the backlog was told
	audit       Audit
}

// New makes a Shaper; nothing starts before Run.
func New(cfg Config, deps Deps) (*Shaper, error) {
	log := deps.Logger.With("component", "shaper")
	pace, err := newPace(cfg, newRateMetrics(deps.Registerer), log)
	if err != nil {
		return nil, fmt.Errorf("shaper: %w", err)
	}
	deps.Batch = max(1, deps.Batch)
	s := &Shaper{
		cfg: cfg, deps: deps, pace: pace,
		log:    log,
		index:  newIndex(int64(cfg.Memory), deps.Ordered, cfg.Weights),
		jobs:   make(chan job, deps.Concurrency),
		odd:    map[uint64]string{},
		wake:   make(chan struct{}, 1),
		resync: make(chan error, 1),
		looked: make(chan struct{}),
	}
	s.acks = newAcks(deps.NATS, s.settled)
	s.ackRoom = ackRoom(cfg.Rate)
	s.state = newStateKeeper(deps.State, deps.StateStream, s.log)
	s.pause = newPauseKeeper(deps.State, deps.NATS, s.log, s.poke)
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
	if err := s.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
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
	loop(s.pause.run)
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
	s.unwrite()
	s.state.end(s.pace.Next())
	stopKeeping()
	keeper.Wait()
	if cause := context.Cause(run); ctx.Err() == nil {
		return cause
	}
	return nil
}

// prepare reads what a predecessor left, and says that a process is at work.
func (s *Shaper) prepare(ctx context.Context) error {
	saved, departure, err := s.state.load(ctx)
	if err != nil {
		return err
	}
	s.saved = saved
	if err := s.pause.load(ctx); err != nil {
		return err
	}
	s.pace.Restore(departure.Next, s.deps.Clock(), uint64(s.deps.Batch))
	if departure.Next != 0 && !departure.Clean {
		if err := s.suspect(ctx); err != nil {
			return err
		}
	}
	if err := s.state.begin(ctx, s.pace.Next()); err != nil {
		return err
	}
	return s.acks.listen()
}

// suspect has those handled with care that may have ended the process before this one:
// of what is there each tenant's first, as many as were in flight or not confirmed at
// most.
func (s *Shaper) suspect(ctx context.Context) error {
	js, err := jetstream.New(s.deps.NATS)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, s.deps.Stream)
	if err != nil {
		return fmt.Errorf("shaper: read stream %s: %w", s.deps.Stream, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.suspectsTo = stream.CachedInfo().State.LastSeq
	s.index.suspectsEach = s.deps.Concurrency*s.deps.Batch + s.ackRoom
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
		s.dozing.Store(false)
	}
}

const (
	// idle is how long the dispatcher sleeps when only an event can change anything.
	idle = time.Hour
	// dozes is how long a wait for the clock may be that nothing interrupts: at 10,000/s
	// each delivery would wake the dispatcher twice for nothing.
	dozes = 50 * time.Millisecond
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
		s.index.ahead(s.ahead(), s.loader.read)
		free := s.running < s.deps.Concurrency && s.unconfirmed < s.ackRoom
		there := s.index.takeable(s.deps.Batch)
		due, delayed := s.index.nextDue()
		s.mu.Unlock()
		next := idle
		if delayed {
			next = time.Duration(due - now)
		}
		switch {
		case !free:
			return s.hold(idle)
		case there == 0:
			s.filling = 0
			return s.hold(next)
		}
		if wait, paused := s.pause.gate.wait(); paused {
			return s.hold(wait)
		}
		if wait := s.pace.Wait(now); wait > 0 {
			s.paced = true
			// What happens before changes nothing, but for an adaptive rate.
			s.dozing.Store(wait < dozes && !bool(s.cfg.Adaptive))
			return min(wait, idle)
		}
		if wait := s.fill(now, there); wait > 0 {
			return s.hold(min(wait, next))
		}
		if !s.deps.Lease.Valid() {
			return s.hold(leasePause)
		}
		wait, ok := s.deps.Outlet.Ready(time.Unix(0, now))
		if !ok {
			return s.hold(min(max(wait, time.Millisecond), idle))
		}
		if !s.pause.gate.enter() {
			s.deps.Outlet.Unready()
			continue // it began just now
		}
		started := s.start()
		s.pause.gate.leave()
		if !started {
			s.deps.Outlet.Unready()
			return s.hold(next) // all that wait are being made ready; the loader wakes us
		}
	}
}

// fill is how long a batch that is not full waits for more, from when it could leave.
func (s *Shaper) fill(now int64, there int) time.Duration {
	if there >= s.deps.Batch || s.deps.BatchWait == 0 {
		return 0
	}
	if s.filling == 0 {
		s.filling = now
	}
	return s.deps.BatchWait - time.Duration(now-s.filling)
}

// hold waits for something else than the departure clock: what leaves next is not
// late.
func (s *Shaper) hold(wait time.Duration) time.Duration {
	s.paced = false
	return wait
}

// start takes the next batch and sends it off at the departure clock's reading; false
// if there is nothing to take. Messages whose deadline has passed go by themselves, and
// the clock does not count them: nothing is delivered.
func (s *Shaper) start() bool {
	s.mu.Lock()
	batch := s.index.take(s.deps.Batch, s.loader.write)
	if len(batch) == 0 {
		s.mu.Unlock()
		return false
	}
	batch, late := s.sort(batch)
	j := job{items: make([]item, len(batch))}
	for i, m := range batch {
		j.items[i] = s.item(m)
	}
	s.running++
	s.tell()
	s.mu.Unlock()
	j.released = s.deps.Clock()
	if !late {
		s.depart(j)
	}
	s.jobs <- j // has room: one a worker
	return true
}

// sort leaves those of a batch whose deadline has passed, if there are any, and lets the
// others step back. It requires that mu is held.
func (s *Shaper) sort(batch []*message) (left []*message, late bool) {
	now := s.deps.Clock()
	passed := func(m *message) bool { return m.passed(now) }
	if !slices.ContainsFunc(batch, passed) {
		return batch, false
	}
	for _, m := range slices.Backward(batch) {
		if !passed(m) {
			s.stepBack(s.item(m), now)
		}
	}
	return slices.DeleteFunc(batch, func(m *message) bool { return !passed(m) }), true
}

// depart moves the clock on for a job that leaves at this instant.
func (s *Shaper) depart(j job) {
	s.filling = 0
	scheduled := s.pace.Next()
	// The clock only moves on from the Wait that let us in.
	s.pace.Depart(j.released, uint64(len(j.items)), s.paced)
	// Late is what the clock alone held back; what came or was let go just now is not.
	late := int64(0)
	if s.paced {
		late = j.released - scheduled
	}
	s.metrics.released(len(j.items), late)
	s.state.depart(s.pace.Next())
}

// ahead is how many of the messages next in turn should have their bodies in
// memory.
func (s *Shaper) ahead() int { return max(64, 2*s.deps.Batch*s.deps.Concurrency) }

// settled forgets messages whose acknowledgement is confirmed.
func (s *Shaper) settled(seqs []uint64) {
	s.mu.Lock()
	for _, seq := range seqs {
		m := s.index.find(seq)
		if m == nil || m.state() != inFlight {
			continue
		}
		if s.index.tries[seq].kept {
			s.state.forget(seq)
		}
		delete(s.odd, seq)
		s.deps.Backlog.Settled(s.index.numbered[m.lane].tenant)
		s.index.done(m)
		s.unconfirmed--
		s.finished++
	}
	s.tell()
	s.mu.Unlock()
	s.poke()
}

// tell brings the backlog's count up to date. It requires that mu is held.
func (s *Shaper) tell() {
	s.deps.Backlog.Outlet(uint64(s.index.waiting), uint64(s.index.flying), uint64(len(s.index.delays)), s.finished)
	s.finished = 0
}

// poke wakes the dispatcher.
func (s *Shaper) poke() {
	if s.dozing.Load() {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reset asks the feed to reset the consumer.
func (s *Shaper) reset(reason error) {
	select {
	case s.resync <- reason:
	default:
	}
}
