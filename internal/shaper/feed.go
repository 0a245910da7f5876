package shaper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How the feed reads ahead. Taking the backlog in costs as much as taking it at the
// front door: at full speed it would halve what producers can publish (measured: 0.47 of
// raw JetStream against 0.94 without it), and hold departures up (a million messages
// waiting: 900/s of 1,000/s were reached). So while the shaper has work for a second the
// feed takes a chunk at a time with pauses: calmFeed, or four times what is delivered;
// while the front door is busy slowFeed, or twice. Depth stays exact meanwhile, and what
// is not read waits in the stream. With less than a second's work it runs free.
const (
	feedChunk = 64
	calmFeed  = 10_000 // messages a second
	slowFeed  = 5_000
	busyDoor  = 10_000 // messages a second at the front door
	// asked is how many messages are asked for at a time (measured, of a bare pull
	// consumer's rate: 30 reach 0.56, 256 0.71, 1,024 0.78).
	asked = 1024
)

// feed takes the backlog into the index. After each fault it resets the consumer
// and begins anew.
func (s *Shaper) feed(ctx context.Context) error {
	pause := retryPause
	for ctx.Err() == nil {
		if !s.leased(ctx) {
			break
		}
		began := time.Now()
		err := s.feedOnce(ctx)
		if ctx.Err() != nil || s.deps.NATS.IsClosed() {
			break
		}
		if time.Since(began) > time.Minute || errors.Is(err, errReconnected) {
			pause = retryPause
		}
		s.log.Warn("feed begins anew", "reason", err)
		if s.rest(ctx, pause) {
			pause = retryPause
		} else {
			pause = min(2*pause, maxRetryPause)
		}
		if !s.leased(ctx) {
			break
		}
		if err := s.restore(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("consumer not restored", "error", err)
		}
	}
	if ctx.Err() == nil {
		return errors.New("shaper: the NATS connection was closed for good")
	}
	return nil
}

// rest waits until the feed is to begin anew: for the pause, or until the connection is
// there again, since it was in vain before. Who else asks for a reset meanwhile gets it
// then.
func (s *Shaper) rest(ctx context.Context, pause time.Duration) (reconnected bool) {
	end := time.NewTimer(pause)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return false
		case reason := <-s.resync:
			if errors.Is(reason, errReconnected) {
				return true
			}
		}
	}
}

// restore makes the consumer again if it is not there.
func (s *Shaper) restore(ctx context.Context) error {
	for {
		once, stop := s.connected(ctx)
		err := s.deps.Restore(once)
		stop()
		if !errors.Is(context.Cause(once), errReconnected) {
			return err
		}
	}
}

// connected ends when the connection is made anew: what was asked over the one before is
// answered no more, and its time limit is longer than most outages. Who else asks for a
// reset meanwhile gets it by what is under way.
func (s *Shaper) connected(ctx context.Context) (once context.Context, stop func()) {
	once, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-once.Done():
				return
			case reason := <-s.resync:
				if errors.Is(reason, errReconnected) {
					cancel(reason)
				}
			}
		}
	})
	return once, func() { cancel(nil); watch.Wait() }
}

// leased waits for the lease: whoever does not hold it must not take from the consumer
// what another one is delivering.
func (s *Shaper) leased(ctx context.Context) bool {
	for !s.deps.Lease.Valid() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(leasePause):
		}
	}
	return true
}

var errReconnected = errors.New("reconnected to NATS")

const (
	retryPause    = 50 * time.Millisecond
	maxRetryPause = 5 * time.Second
	// maxParked bounds a due time that comes from before a restart.
	maxParked = 5 * time.Minute
)

// feedOnce resets the consumer and reads it until something is wrong.
func (s *Shaper) feedOnce(ctx context.Context) error {
	js, err := jetstream.New(s.deps.NATS)
	if err != nil {
		return err
	}
	once, heard := s.connected(ctx)
	bounded, cancel := context.WithTimeout(once, 5*time.Second)
	_, err = js.ResetConsumer(bounded, s.deps.Stream, s.deps.Consumer)
	cancel()
	heard()
	if errors.Is(context.Cause(once), errReconnected) {
		return errReconnected
	}
	if err != nil {
		return fmt.Errorf("reset consumer %s of %s: %w", s.deps.Consumer, s.deps.Stream, err)
	}
	s.mu.Lock()
	s.gen++
	gen := s.gen
	s.taken.Store(0)
	s.audit.underSince = time.Now()
	s.audit.stableSince = time.Time{}
	s.mu.Unlock()
	s.acks.reset(uint8(gen))

	read, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop(nil)
	puller, err := newPuller(s.deps.NATS, s.deps.Stream, s.deps.Consumer, asked, stop)
	if err != nil {
		return err
	}
	defer puller.stop()
	watch.Go(func() {
		select {
		case reason := <-s.resync:
			stop(reason)
		case <-read.Done():
		}
	})

	rate := s.cfg.Rate.PerSecond()
	forwarded, begun := s.deps.Forwarded(), time.Now()
	for n := 1; ; n++ {
		msg, err := puller.next(read)
		if err != nil {
			if cause := context.Cause(read); cause != nil {
				return cause
			}
			return err
		}
		if err := s.takeIn(msg, gen); err != nil {
			s.log.Warn("message in the backlog stream not understood", "error", err)
		}
		if n%feedChunk == 0 {
			f, took := s.deps.Forwarded(), time.Since(begun)
			if s.plenty() {
				speed := max(calmFeed, 4*rate)
				if float64(f-forwarded) > busyDoor*took.Seconds() {
					speed = max(slowFeed, 2*rate)
				}
				select {
				case <-read.Done():
				case <-time.After(time.Duration(feedChunk/speed*float64(time.Second)) - took):
				}
			}
			forwarded, begun = f, time.Now()
		}
	}
}

// plenty reports whether the shaper has work for a second.
func (s *Shaper) plenty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.index.waiting) > max(1024, s.cfg.Rate.PerSecond())
}

// takeIn puts a message into the index, or gives one that is there its new
// handle.
func (s *Shaper) takeIn(msg *nats.Msg, gen uint32) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	seq := meta.Sequence.Stream
	defer s.taken.Store(meta.Sequence.Consumer)
	if s.acks.again(seq, msg.Reply) {
		return nil
	}
	tail, ok := strings.CutPrefix(msg.Subject, s.deps.Subjects+".")
	if !ok || strings.HasPrefix(tail, "$") {
		// A canary, which the stream keeps only if it has replicas.
		_ = msg.Ack()
		s.deps.Backlog.Skipped(seq)
		return nil
	}
	tenant, topic, _ := strings.Cut(tail, ".")
	in := arrival{
		message: message{seq: seq, at: meta.Timestamp.UnixNano()},
		tenant:  tenant,
	}
	size := packedSize(topic, msg.Header, msg.Data)
	s.mu.Lock()
	room := s.index.room(size)
	s.mu.Unlock()
	if in.size = uint32(size); room { // to pack what is let go would be a waste
		in.body = pack(topic, msg.Header, msg.Data)
	}
	in.setCost(costOf(msg.Header))
	in.setGen(gen)
	s.mu.Lock()
	s.renew(&in.message, msg.Reply)
	if m := s.index.find(seq); m != nil {
		m.consumer = in.consumer
		m.setGen(gen)
		s.mu.Unlock()
		return nil
	}
	if a, ok := s.saved[seq]; ok {
		delete(s.saved, seq)
		in.tries = int32(min(a.Attempts, math.MaxInt32))
		// A clock that was set back must not park it for long.
		in.due = min(a.Due, s.deps.Clock()+int64(maxParked))
	}
	s.index.add(&in)
	s.maxSeen = max(s.maxSeen, seq)
	first := s.index.waiting == 1 || in.due != 0 || s.deps.Batch > 1
	s.deps.Backlog.Seen(seq, tenant)
	s.mu.Unlock()
	if first {
		s.poke()
	}
	return nil
}

// renew gives m its newest handle. It requires that mu is held.
func (s *Shaper) renew(m *message, reply string) {
	prefix, consumer, ok := readHandle(reply, m.seq, m.at)
	if !ok {
		s.odd[m.seq] = reply
		return
	}
	delete(s.odd, m.seq)
	m.consumer = consumer
	if s.prefix != prefix {
		// All are renewed then: it changes with the consumer.
		s.prefix = strings.Clone(prefix)
	}
}

// handle acknowledges m. It requires that mu is held.
func (s *Shaper) handle(m *message) string {
	if reply, ok := s.odd[m.seq]; ok {
		return reply
	}
	return handle(s.prefix, m.seq, m.at, m.consumer)
}

// watchConnection has the consumer reset after every reconnect: what was handed
// to the connection that broke stays pending on the server otherwise.
func (s *Shaper) watchConnection(ctx context.Context) error {
	events := s.deps.NATS.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.deps.NATS.RemoveStatusListener(events)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok || e == nats.CLOSED {
				return errors.New("shaper: the NATS connection was closed for good")
			}
			s.reset(errReconnected)
		}
	}
}
