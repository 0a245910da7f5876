package shaper

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Audit is what the stream itself says, compared with the index each second.
type Audit struct {
	// Tried is when the last look began, At when the last successful one did: one
	// that fails leaves all the rest as it was.
	Tried, At time.Time
	// Messages and Bytes are the stream's own counts, LastSeq its last sequence.
	Messages, Bytes, LastSeq uint64
	// Pending is how many of them the consumer has not handed out.
	Pending uint64
	// Difference is how many messages the index and the stream disagree by, after
	// what is under way is taken off.
	Difference int64

	forwarded   uint64    // by the front door, before the look
	leader      string    // the server that leads the consumer
	stableSince time.Time // nothing pending on the server since then
	doubts      int       // looks in a row that found a difference
	// taken is how many handed out messages had come in, and underSince since when none
	// came though there were more.
	taken      uint64
	underSince time.Time
}

const (
	auditEvery = time.Second
	// idleEvery is how often the stream is looked at while nothing happens: a look
	// costs the broker two requests.
	idleEvery = 4 * time.Second
	// doubtful is after how many looks a difference is believed.
	doubtful = 3
	// underway is for how long what was handed out may take to come in.
	underway = 10 * time.Second
	// missing is for how long the stream may be gone before Run fails.
	missing = 5 * time.Second
)

// Audit gives the last comparison with the stream.
func (s *Shaper) Audit() Audit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.audit
}

// Looked is closed once the stream was read for the first time.
func (s *Shaper) Looked() <-chan struct{} { return s.looked }

// ErrStreamGone ends Run when the backlog stream was deleted or replaced.
var ErrStreamGone = errors.New("the backlog stream is gone")

// watchStream compares the index with the stream and repairs it. It fails if the
// stream was deleted or another one took its name: sequences mean nothing then,
// and only a new start can tell what is there.
func (s *Shaper) watchStream(ctx context.Context) error {
	js, err := jetstream.New(s.deps.NATS)
	if err != nil {
		return err
	}
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	var goneSince time.Time
	for {
		err := s.look(ctx, js)
		switch {
		case err == nil:
			goneSince = time.Time{}
		case errors.Is(err, ErrStreamGone):
			return err
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if goneSince.IsZero() {
				goneSince = time.Now()
				s.log.Error("the backlog stream is gone", "stream", s.deps.Stream)
			}
			if time.Since(goneSince) >= missing {
				return fmt.Errorf("%w: %s was deleted under the gateway; start it again to make a new one", ErrStreamGone, s.deps.Stream)
			}
		case ctx.Err() == nil:
			s.log.Debug("stream not read", "error", err)
		}
		s.acks.nudge()
		for wait := true; wait; wait = s.calm() {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// calm reports whether a look can wait: nothing is held, and the last looks found
// nothing wrong.
func (s *Shaper) calm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.audit
	return s.index.len() == 0 && a.Messages == 0 && !a.At.Before(a.Tried) &&
		!a.stableSince.IsZero() && time.Since(a.stableSince) > 2*auditEvery &&
		a.forwarded == s.deps.Forwarded() && time.Since(a.At) < idleEvery-auditEvery/2
}

// look makes one comparison.
func (s *Shaper) look(ctx context.Context, js jetstream.JetStream) error {
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s.mu.Lock()
	s.audit.Tried, s.audit.forwarded = time.Now(), s.deps.Forwarded()
	s.mu.Unlock()
	least0, most0 := s.held()
	stream, err := js.Stream(bounded, s.deps.Stream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if !s.deps.Created.IsZero() && !info.Created.Equal(s.deps.Created) {
		return fmt.Errorf("%w: another stream %s, made at %s, took its place; start the gateway again", ErrStreamGone, s.deps.Stream, info.Created)
	}
	consumer, err := stream.Consumer(bounded, s.deps.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		s.reset(errors.New("the consumer was deleted"))
		return nil
	}
	if err != nil {
		return err
	}
	least1, most1 := s.held()
	c := consumer.CachedInfo()

	now := time.Now()
	s.mu.Lock()
	a := &s.audit
	if a.At.IsZero() {
		close(s.looked)
	}
	a.At = now
	a.Messages, a.Bytes, a.LastSeq = info.State.Msgs, info.State.Bytes, info.State.LastSeq
	a.Pending = c.NumPending
	moved := false
	if c.Cluster != nil {
		moved = a.leader != "" && c.Cluster.Leader != a.leader
		a.leader = c.Cluster.Leader
	}
	// What was handed out and has not come in is not in the index, however long ago.
	taken := s.taken.Load()
	under := c.Delivered.Consumer > taken
	switch {
	case c.NumPending > 0 || under:
		a.stableSince = time.Time{}
	case a.stableSince.IsZero():
		a.stableSince = now
	}
	if !under || a.taken != taken {
		a.taken, a.underSince = taken, now
	}
	lost := now.Sub(a.underSince) >= underway
	stable := !a.stableSince.IsZero() && now.Sub(a.stableSince) >= auditEvery*9/10 // a tick may be early
	// What the index holds, at the least and at the most, against the stream.
	least, most := min(least0, least1), max(most0, most1)
	messages := int64(info.State.Msgs)
	a.Difference = 0
	if messages < least {
		a.Difference = least - messages
	} else if messages > most && stable {
		a.Difference = most - messages
	}
	if a.Difference == 0 {
		a.doubts = 0
	} else {
		a.doubts++
	}
	doubt := a.doubts >= doubtful
	if doubt {
		a.doubts = 0
	}
	gen, caughtUp := s.gen, stable && s.maxSeen < info.State.LastSeq
	pruned := 0
	if stable && s.pruned != gen {
		// Once a reset: it is a pass over the whole backlog. What is deleted later shows
		// as a difference, and leads to the next reset.
		s.pruned = gen
		pruned = s.index.prune(func(m *message) bool { return m.gen() == uint8(gen) }, s.dropped)
		// Whatever was kept of messages that nobody handed out is of none that is there.
		for seq := range s.saved {
			s.state.forget(seq)
		}
		clear(s.saved)
		s.tell()
	}
	s.mu.Unlock()

	s.deps.Backlog.Stored(info.State.Msgs, info.State.Bytes)
	if stable {
		s.acks.allHandedOut()
		s.tidy()
	}
	if caughtUp {
		s.deps.Backlog.CaughtUp(info.State.LastSeq)
	}
	if pruned > 0 {
		s.log.Warn("messages were deleted from the stream under the gateway", "messages", pruned)
	}
	switch {
	case moved:
		s.reset(errors.New("the consumer has another leader"))
	case lost:
		s.reset(errors.New("messages were handed out and did not come in"))
	case doubt:
		s.reset(errors.New("the index and the stream disagree"))
	}
	return nil
}

// aLot is how many messages make an intake worth tidying up after.
const aLot = 10_000

// tidy gives back, once, what taking in a large backlog left behind, mostly at the
// start: as much as the messages themselves hold, which the collector alone would
// keep for minutes.
func (s *Shaper) tidy() {
	s.mu.Lock()
	due := !s.tidied && s.index.len() >= aLot
	s.tidied = s.tidied || due
	s.mu.Unlock()
	if due {
		debug.FreeOSMemory()
	}
}

// held is how many messages of the index the stream must have, and may have: some
// are acknowledged, and not confirmed yet.
func (s *Shaper) held() (least, most int64) {
	acked := int64(s.acks.len())
	s.mu.Lock()
	n := int64(s.index.len())
	s.mu.Unlock()
	return n - acked, n
}

// OldestWaiting is Oldest without what waits for a retry or is in flight. It costs a look
// at each tenant's first message.
func (s *Shaper) OldestWaiting() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ns int64
	for _, l := range s.index.lanes {
		if l.head == 0 {
			continue
		}
		if first := s.index.slab.at(l.head).at; !ok || first < ns {
			ns, ok = first, true
		}
	}
	return time.Unix(0, ns), ok
}

// Tenants is how many messages of the index each tenant has, in any state.
func (s *Shaper) Tenants() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenants := make(map[string]int, len(s.index.lanes))
	for name, l := range s.index.lanes {
		tenants[name] = l.messages
	}
	return tenants
}
