package shaper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// loaders is how many messages are read again at once; one at a time a stream
// gives 15,000 a second, 16 at once 45,000; a broker that is busy takes longer over each.
const loaders = 16

// loader makes messages ready: it reads again, by sequence, the bodies that did not fit
// in memory, ahead of their turn, and writes attempts down that are to be handled with
// care, when it is their turn.
//
// An attempt is written down before it is made if it is a message's second or later
// one, or if the message may have ended a process: one that does so each time runs out
// of attempts like this. What is written is undone or overtaken by the outcome.
type loader struct {
	s        *Shaper
	requests chan request
}

// request is for a message's body, or, with attempts above 0, for so many to be
// written down.
type request struct {
	seq      uint64
	attempts int
}

func newLoader(s *Shaper) *loader {
	return &loader{s: s, requests: make(chan request, 256)}
}

// read asks for m's body; it never blocks. What finds no room is asked for again at a
// later step.
func (l *loader) read(m *message) bool { return l.ask(request{seq: m.seq}) }

// write asks for the attempt at m that comes next to be written down. It requires that
// the shaper's mu is held.
func (l *loader) write(m *message) bool {
	return l.ask(request{m.seq, int(l.s.index.tries[m.seq].counted) + 1})
}

func (l *loader) ask(r request) bool {
	select {
	case l.requests <- r:
		return true
	default:
		return false
	}
}

func (l *loader) run(ctx context.Context) error {
	js, err := jetstream.New(l.s.deps.NATS)
	if err != nil {
		return err
	}
	var stream jetstream.Stream
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-l.requests:
			if r.attempts > 0 {
				l.writeDown(ctx, r)
				continue
			}
			if stream == nil {
				if stream, err = js.Stream(ctx, l.s.deps.Stream); err != nil {
					stream = nil
				}
			}
			l.load(ctx, stream, r.seq)
		}
	}
}

func (l *loader) load(ctx context.Context, stream jetstream.Stream, seq uint64) {
	var raw *jetstream.RawStreamMsg
	err := errors.New("no stream")
	if stream != nil {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		raw, err = stream.GetMsg(bounded, seq)
		cancel()
	}
	s := l.s
	var body []byte
	switch {
	case err == nil:
		_, topic, _ := strings.Cut(strings.TrimPrefix(raw.Subject, s.deps.Subjects+"."), ".")
		body = pack(topic, raw.Header, raw.Data)
	case ctx.Err() == nil && !errors.Is(err, jetstream.ErrMsgNotFound):
		s.log.Debug("message not read again", "seq", seq, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	s.mu.Lock()
	if m := s.index.find(seq); m != nil {
		switch {
		case err == nil:
			s.index.load(m, body)
		case errors.Is(err, jetstream.ErrMsgNotFound):
			s.dropped(m) // deleted under us; nothing is left to deliver
			s.index.gone(m)
		default:
			s.index.unasked(m)
		}
	}
	s.mu.Unlock()
	s.poke()
}

// writeDown writes an attempt down. If that fails it is made all the same: what is
// lost is a count, and only if the process ends.
func (l *loader) writeDown(ctx context.Context, r request) {
	s := l.s
	if err := s.state.saveNow(ctx, r.seq, attempts{Attempts: r.attempts, Due: s.deps.Clock()}); err != nil && ctx.Err() == nil {
		s.log.Warn("attempt not written down", "seq", r.seq, "error", err)
	}
	s.mu.Lock()
	if m := s.index.find(r.seq); m != nil {
		s.index.written(m)
	} else {
		s.state.forget(r.seq) // deleted under us
	}
	s.mu.Unlock()
	s.poke()
}
