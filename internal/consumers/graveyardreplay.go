package consumers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// deadlineHeader is the producer's: when it stops wanting the message.
const deadlineHeader = "Flowgate-Deadline"

// Raised is a dead letter that is in the backlog again.
type Raised struct {
	DeadLetter
	// BacklogSeq is its sequence in the backlog stream now.
	BacklogSeq uint64
}

// errUnfit is a dead letter that cannot be replayed, now or later.
type errUnfit struct{ error }

func (e errUnfit) Unwrap() error { return e.error }

// Unreplayable reports whether err says that a dead letter can never be replayed.
func Unreplayable(err error) bool {
	_, ok := errors.AsType[errUnfit](err)
	return ok
}

// ErrBacklogFull means that the broker took no replayed message: the backlog is at MAX.
var ErrBacklogFull = errors.New("the backlog is full; replay it when it has drained")

// Replay puts one dead letter back into the backlog, from where it is delivered like
// any other message, under the id it had, with all its attempts before it.
//
// It is published under a stream id made of the message's own place in the backlog, and
// deleted once the broker has stored it. If a replay ends between the two, the next one
// gets the answer that this id is known. That alone proves nothing: what was stored may
// have been purged since. So the message is looked for where the broker says it is. If
// it waits there, all is well, and the dead letter is deleted. If it is not there, it was
// delivered or is lost, and nobody can say which: it is published under the next id.
// Then a destination can see it twice, under one id, by which a database knows it. So it
// can after the broker's window for ids (FLOWGATE_INGRESS_DEDUP_WINDOW).
func (y *Graveyard) Replay(ctx context.Context, seq uint64) (Raised, error) {
	y.raising.Lock()
	defer y.raising.Unlock()
	s, err := y.stream(ctx)
	if err != nil {
		return Raised{}, err
	}
	dead, err := get(ctx, s, seq)
	if err != nil {
		return Raised{}, err
	}
	d := y.read(dead.Subject, dead.Sequence, dead.Time, dead.Header)
	d.Bytes = len(dead.Data)
	msg, err := y.message(d, dead)
	if err != nil {
		return Raised{}, err
	}
	raised := Raised{DeadLetter: d}
	id := ReplayID + dead.Header.Get(nats.MsgIdHdr)
	for n := 1; ; n++ {
		name := id
		if n > 1 {
			name += "/" + strconv.Itoa(n)
			// Another gateway may have been quicker, and its replay delivered.
			if _, err := get(ctx, s, seq); err != nil {
				return Raised{}, err
			}
		}
		msg.Header.Set(nats.MsgIdHdr, name)
		ack, err := y.deps.JS.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
		if err != nil {
			return Raised{}, fmt.Errorf("replay dead letter %d: %w", seq, refused(err))
		}
		raised.BacklogSeq = ack.Sequence
		if !ack.Duplicate {
			y.deps.Replayed(ack.Sequence, len(msg.Data))
			y.replayed.WithLabelValues(y.deps.TenantLabel(d.Tenant)).Inc()
			break
		}
		waits, err := y.waits(ctx, ack.Sequence, name)
		if err != nil {
			return Raised{}, fmt.Errorf("replay dead letter %d: %w", seq, err)
		}
		if waits {
			break
		}
	}
	if err := remove(ctx, s, seq); err != nil {
		return raised, fmt.Errorf("dead letter %d is in the backlog again, and still among the dead: %w", seq, err)
	}
	return raised, nil
}

// message makes what is published: what the producer sent, without its deadline, which
// would bury it again at once.
func (y *Graveyard) message(d DeadLetter, dead *jetstream.RawStreamMsg) (*nats.Msg, error) {
	key := dead.Header.Get(nats.MsgIdHdr)
	switch {
	case d.ID == "" || key == "":
		return nil, errUnfit{fmt.Errorf("dead letter %d was not written by flowgate: it has no %s or no %s; publish its payload anew and purge it", d.Seq, IDHeader, nats.MsgIdHdr)}
	case !tenantName.MatchString(d.Tenant) || d.Topic == "":
		return nil, errUnfit{fmt.Errorf("dead letter %d lies at %s, which names no tenant and topic", d.Seq, dead.Subject)}
	}
	h := nats.Header(producers(dead.Header))
	h.Del(deadlineHeader)
	h.Set(IDHeader, d.ID)
	return &nats.Msg{Subject: join(y.deps.Backlog, d.Tenant, d.Topic), Header: h, Data: dead.Data}, nil
}

// refused explains why a message was not stored.
func refused(err error) error {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch e.ErrorCode {
		case 10077: // messages or bytes
			return fmt.Errorf("%w: %w", ErrBacklogFull, err)
		case 10054: // over the stream's size of a message
			return errUnfit{err}
		}
	}
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) {
		return errUnfit{err}
	}
	return err
}

// waits reports whether the backlog holds, at seq, the message of that stream id.
func (y *Graveyard) waits(ctx context.Context, seq uint64, id string) (bool, error) {
	s, err := y.deps.JS.Stream(ctx, y.deps.BacklogStream)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", y.deps.BacklogStream, err)
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for it in the backlog: %w", err)
	}
	return m.Header.Get(nats.MsgIdHdr) == id, nil
}

// roomEvery is how often the backlog is asked for room.
const roomEvery = 20 * time.Millisecond

// ReplayAll replays what f selects, oldest first, while the backlog has room, until the
// instant; a zero one is never. What dies while it runs is not part of it: a filter
// without an end gets one. An error may come with progress.
func (y *Graveyard) ReplayAll(ctx context.Context, f DeadLetterFilter, until time.Time) (Progress, error) {
	return y.sweep(ctx, f, until, func(d DeadLetter) (bool, error) {
		for !y.deps.Room() {
			if past(until) {
				return false, errNoRoom
			}
			select {
			case <-ctx.Done():
				return false, ctx.Err()
			case <-time.After(roomEvery):
			}
		}
		_, err := y.Replay(ctx, d.Seq)
		return err == nil, err
	})
}

// errNoRoom ends a sweep in good order.
var errNoRoom = errors.New("no room")

func past(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// sweep does something with each dead letter that f selects, oldest first. do reports
// whether it was done.
func (y *Graveyard) sweep(ctx context.Context, f DeadLetterFilter, until time.Time, do func(DeadLetter) (bool, error)) (p Progress, err error) {
	if f.To == 0 {
		s, err := y.stream(ctx)
		if err != nil {
			return p, err
		}
		if f.To = s.CachedInfo().State.LastSeq; f.To == 0 || f.From > f.To {
			return p, f.Validate()
		}
	}
	p.Next = &f
	for p.Next != nil {
		page, err := y.List(ctx, *p.Next, false, pull)
		if err != nil {
			return p, err
		}
		for _, d := range page.Letters {
			// What is left, should it end here.
			rest := *p.Next
			rest.From = d.Seq
			p.Next = &rest
			if past(until) {
				return p, nil
			}
			done, err := do(d)
			switch {
			case done:
				p.Count++
			case errors.Is(err, errNoRoom):
				p.Waiting = true
				return p, nil
			case errors.Is(err, ErrNoDeadLetter): // somebody else's doing
			case Unreplayable(err):
				if p.Skipped++; p.Why == nil {
					p.Why = err
				}
			default:
				return p, err
			}
			// It is behind, whatever becomes of the next.
			rest.From = d.Seq + 1
		}
		if p.Next = page.Next; p.Next != nil && past(until) {
			return p, nil
		}
	}
	return p, nil
}
