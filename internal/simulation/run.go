package simulation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/shaper"
)

// Scenario is what a gateway meets.
type Scenario struct {
	// Arrivals are the first tries of messages, in order of time, up to Length.
	Arrivals  iter.Seq[arrivals.Arrival]
	Length    time.Duration
	Producers Producers
	// Consumer makes the one behind the gateway.
	Consumer func() Consumer
	// Poison says of a message, the number'th of all from 0 on, that it fails whenever it is
	// tried; nil: none does.
	Poison func(tenant string, number int) bool
	// Pauses are those of an operator.
	Pauses []Spell
	// NoIDs: messages have no ids of their own.
	NoIDs bool
	// Seed of what is drawn.
	Seed uint64
	// Draw is what the gateway draws its waits between attempts by, from [0, 1); nil: by Seed.
	Draw func() float64
	// Every is how far apart the samples are; 0: a second.
	Every time.Duration
	// After is how long to go on after Length at most, until all is delivered.
	After time.Duration
	// Progress hears each simulated second how far it is; it may be nil.
	Progress func(at time.Duration)
}

// message is one that a producer has to send.
type message struct {
	arrival arrivals.Arrival
	tenant  *tenant
	number  int   // of all there are
	tries   int   // so far
	stored  int64 // when it was admitted
	size    uint64
	inLine  bool
}

// flight is a delivery under way.
type flight struct {
	departure shaper.Departure
	try       *consumers.Try
}

type simulation struct {
	*gateway
	cfg    Config
	sc     Scenario
	random *rand.Rand
	agenda agenda
	end    int64 // of the arrivals

	messages []message
	spare    []int32
	waiting  map[uint64]int32 // messages by sequence
	consumer Consumer
	flights  map[uint64]flight // by the consumer's number
	timeouts queue[timeout]    // in order of time
	retrying int
	high     uint64

	next    arrivals.Arrival
	more    bool
	advance func() (arrivals.Arrival, bool)

	count count
}

// Run simulates a gateway of the configuration, which must be valid.
func Run(ctx context.Context, cfg Config, sc Scenario) (*Result, error) {
	if sc.Every <= 0 {
		sc.Every = time.Second
	}
	if sc.Producers.Patience <= 0 {
		sc.Producers.Patience = DefaultPatience
	}
	s := &simulation{
		cfg: cfg, sc: sc, random: rand.New(rand.NewPCG(sc.Seed, 1)), end: epoch + int64(sc.Length),
		waiting: map[uint64]int32{}, flights: map[uint64]flight{}, consumer: sc.Consumer(), high: cfg.Backpressure.High, count: newCount(sc.Every, epoch+int64(sc.Length)),
	}
	var err error
	if s.sc.Draw == nil {
		s.sc.Draw = s.random.Float64
	}
	if s.gateway, err = newGateway(cfg, s.sc.Draw, s.decided); err != nil {
		return nil, fmt.Errorf("simulation: %w", err)
	}
	var stop func()
	s.advance, stop = iter.Pull(sc.Arrivals)
	defer stop()
	s.next, s.more = s.advance()
	for i, p := range sc.Pauses {
		s.agenda.add(epoch+int64(p.From), paused, int32(i))
	}
	s.agenda.add(epoch+int64(time.Second), ticked, 0)
	if err := s.work(ctx); err != nil {
		return nil, err
	}
	return s.result(), nil
}

// work lets everything happen, until all is delivered or the time is over.
func (s *simulation) work(ctx context.Context) error {
	last := s.end + int64(s.sc.After)
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e := s.soonest()
		if s.idle() && e.at > s.end || e.at > last {
			s.pass(min(max(s.end, s.now), last))
			return nil
		}
		s.pass(max(e.at, s.now))
		switch e.kind {
		case delivered:
			s.hear()
		case held:
			s.door.Release(s.now)
		case stepped:
			s.depart()
		case tried:
			s.agenda.pop()
			s.retrying--
			if s.late(e.of, 0) {
				s.giveUp(e.of)
			} else {
				s.try(e.of)
			}
		case arrived:
			if err := s.arrive(); err != nil {
				return err
			}
		case paused:
			s.agenda.pop()
			s.outlet.Pause(s.now + int64(s.sc.Pauses[e.of].For))
		case ticked:
			s.agenda.pop()
			s.tick()
		}
	}
}

// soonest is what happens next; it stays planned.
func (s *simulation) soonest() event {
	e := s.agenda.events[0] // there is always a tick
	for _, other := range [...]event{
		{at: s.answer(), kind: delivered},
		{at: s.outlet.Due(), kind: stepped},
		{at: s.door.Due(), kind: held},
		{at: s.arrival(), kind: arrived},
	} {
		if other.before(e) {
			e = other
		}
	}
	return e
}

// arrival is when the next message comes.
func (s *simulation) arrival() int64 {
	if !s.more {
		return math.MaxInt64
	}
	return epoch + int64(s.next.At)
}

// idle reports whether nothing is under way any more.
func (s *simulation) idle() bool {
	return !s.more && s.retrying == 0 && s.count.depth == 0 && s.door.Due() == math.MaxInt64
}

// pass moves the clock.
func (s *simulation) pass(to int64) {
	if to <= s.now {
		return
	}
	_, raised := s.backlog.Pressure()
	s.count.pass(s.now, to, s.count.depth >= s.high, raised != 0)
	s.now = to
}

var errOrder = errors.New("simulation: the arrivals are not in order of time")

func (s *simulation) arrive() error {
	a := s.next
	if s.next, s.more = s.advance(); s.more && s.next.At < a.At {
		return errOrder
	}
	if a.At >= s.sc.Length {
		s.more = false
		return nil
	}
	i := int32(len(s.messages))
	if n := len(s.spare); n > 0 {
		i, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		s.messages = append(s.messages, message{})
	}
	t := s.count.arrived(a.Tenant, s.sc.Producers)
	s.messages[i] = message{arrival: a, tenant: t, number: int(s.count.offered)}
	if len(t.line.items) > 0 {
		s.lineUp(i)
	} else {
		s.try(i)
	}
	return nil
}

func (s *simulation) try(i int32) {
	m := &s.messages[i]
	m.tries++
	s.count.tries++
	l := ingress.Letter{Tenant: m.arrival.Tenant, Topic: m.arrival.Topic, Bytes: m.arrival.Bytes, Tag: int(i)}
	if !s.sc.NoIDs {
		l.ID = strconv.Itoa(m.number)
	}
	s.door.Arrive(s.now, l)
}

// decided hears what the door made of a message.
func (s *simulation) decided(d ingress.Decision) {
	i := int32(d.Tag)
	m := &s.messages[i]
	if d.Refused == nil {
		s.leaveLine(i)
		m.stored, m.size = s.now, uint64(d.Size)
		s.waiting[s.stored(m.arrival.Tenant)] = i
		s.count.admitted(m, s.now)
		if d.Shadow != nil {
			s.count.shadow[string(d.Shadow.Reason)]++
		}
		return
	}
	s.count.refused(m, string(d.Refused.Reason))
	wait, ok := m.tenant.behaviour.Again(d.Refused.Wait, m.tries, s.random.Float64())
	if !ok || s.late(i, wait) {
		s.giveUp(i)
		return
	}
	if m.tenant.behaviour != Obey || d.Refused.Reason != ingress.RateLimited {
		s.leaveLine(i)
	} else if !m.inLine && s.lineUp(i) > 1 {
		return // its turn comes
	}
	s.retrying++
	s.agenda.add(s.now+int64(wait), tried, i)
}

// Whom a limit refuses is told when one message passes, and so are all the others. Those
// who obey stand in line, as package client has them: the first tries, and new ones stand
// behind.

// lineUp puts a message at the end of its tenant's line and tells how long that is.
func (s *simulation) lineUp(i int32) int {
	m := &s.messages[i]
	m.inLine = true
	m.tenant.line.push(i)
	return len(m.tenant.line.items)
}

// leaveLine takes the first of a line out of it, if it is one, and has the next one try.
func (s *simulation) leaveLine(i int32) {
	m := &s.messages[i]
	if !m.inLine {
		return
	}
	m.inLine = false
	line := &m.tenant.line
	if line.pop(); len(line.items) > 0 {
		s.retrying++
		s.agenda.add(s.now, tried, line.items[0])
	}
}

// late reports whether a producer's patience ends before a wait does.
func (s *simulation) late(i int32, wait time.Duration) bool {
	return s.now+int64(wait) > epoch+int64(s.messages[i].arrival.At+s.sc.Producers.Patience)
}

func (s *simulation) giveUp(i int32) {
	s.leaveLine(i)
	s.count.gaveUp(&s.messages[i])
	s.free(i)
}

func (s *simulation) free(i int32) {
	s.messages[i] = message{}
	s.spare = append(s.spare, i)
}

// timeout is when a delivery has had all the time there is.
type timeout struct {
	at int64
	id uint64
}

// queue is what comes out in the order it went in.
type queue[T any] struct{ items []T }

func (q *queue[T]) push(v T) { q.items = append(q.items, v) }
func (q *queue[T]) pop()     { q.items = q.items[1:] }

// depart starts the deliveries that may start now.
func (s *simulation) depart() {
	for _, d := range s.outlet.Step() {
		try := s.desk.Begin(d.Batch)
		due := try.Due()
		if len(due) == 0 {
			s.land(flight{d, try}, consumers.Answers{})
			continue
		}
		s.count.deliveries += uint64(len(due))
		id, err := s.consumer.Start(s.since(), len(due))
		if err != nil {
			s.land(flight{d, try}, answers(len(due), err))
			continue
		}
		s.flights[id] = flight{d, try}
		s.timeouts.push(timeout{s.now + int64(s.cfg.Consumer.Timeout), id})
	}
}

func (s *simulation) since() time.Duration { return time.Duration(s.now - epoch) }

func answers(n int, err error) (a consumers.Answers) {
	a.Errs = make([]error, n)
	for i := range a.Errs {
		a.Errs[i] = err
	}
	return a
}

// answer is when a delivery ends next, by the consumer or by its timeout.
func (s *simulation) answer() int64 {
	at := int64(math.MaxInt64)
	for q := &s.timeouts; len(q.items) > 0; q.pop() {
		if _, ok := s.flights[q.items[0].id]; ok {
			at = q.items[0].at
			break
		}
	}
	if next, ok := s.consumer.Next(); ok {
		at = min(at, epoch+int64(next))
	}
	return at
}

// hear ends what ends now.
func (s *simulation) hear() {
	for _, a := range s.consumer.Advance(s.since()) {
		f, ok := s.flights[a.ID]
		if !ok {
			continue // its time was over
		}
		delete(s.flights, a.ID)
		got := answers(len(f.try.Due()), a.Err)
		if a.Err == nil {
			s.poison(f.try.Due(), got.Errs)
		}
		got.Took = time.Duration(s.now - f.departure.At)
		s.land(f, got)
	}
	for q := &s.timeouts; len(q.items) > 0 && q.items[0].at <= s.now; q.pop() {
		id := q.items[0].id
		f, ok := s.flights[id]
		if !ok {
			continue
		}
		delete(s.flights, id)
		s.consumer.Cancel(s.since(), id)
		got := answers(len(f.try.Due()), context.DeadlineExceeded)
		got.Took, got.TimedOut = s.cfg.Consumer.Timeout, true
		s.land(f, got)
	}
}

var errPoison = errors.New("the message is not taken")

// poison fails what always does.
func (s *simulation) poison(due []consumers.Delivery, errs []error) {
	if s.sc.Poison == nil {
		return
	}
	for i, d := range due {
		if m := &s.messages[s.waiting[d.Seq]]; s.sc.Poison(m.arrival.Tenant, m.number-1) {
			errs[i] = errPoison
		}
	}
}

// land ends a delivery.
func (s *simulation) land(f flight, a consumers.Answers) {
	outcomes := f.try.End(context.Background(), time.Unix(0, s.now), a)
	s.outlet.Finish(f.departure, outcomes)
	for j, o := range outcomes {
		if o.Action != consumers.Ack {
			s.count.retried++
			continue
		}
		seq := f.departure.Batch[j].Seq
		at := s.waiting[seq]
		delete(s.waiting, seq)
		s.count.done(&s.messages[at], s.now, o.Err != nil)
		s.free(at)
	}
}

func (s *simulation) tick() {
	s.observe(s.cfg, s.count.depth, s.count.bytes)
	s.count.sample(s.now - epoch)
	if s.sc.Progress != nil {
		s.sc.Progress(time.Duration(s.now - epoch))
	}
	s.agenda.add(s.now+int64(time.Second), ticked, 0)
}
