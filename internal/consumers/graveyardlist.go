package consumers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A page looks at so many dead letters at most, and then says where to go on: the
// class and the age are looked for, not looked up.
const lookedAt = 50_000

// A window that the newest are looked for in, backwards, is so wide in sequences that
// it should hold so many of them.
const windowful = 1 << 10

// pull is how many headers are asked for at once, pullWait how long they may take.
const (
	pull     = 256
	pullWait = 2 * time.Second
)

// MaxPage is the most dead letters of a page.
const MaxPage = 1000

// Page is a part of what a filter selects.
type Page struct {
	Letters []DeadLetter
	// Next selects what comes after the page; nil: nothing does. A page may be empty
	// and have a next.
	Next *DeadLetterFilter
}

// List gives up to n dead letters, 1 to MaxPage, the oldest or the newest first. It
// reads headers alone.
func (y *Graveyard) List(ctx context.Context, f DeadLetterFilter, newest bool, n int) (Page, error) {
	if err := f.Validate(); err != nil {
		return Page{}, err
	}
	n = min(max(n, 1), MaxPage)
	s, err := y.stream(ctx)
	if err != nil {
		return Page{}, err
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 || f.From > state.LastSeq || f.last() < state.FirstSeq {
		return Page{}, nil
	}
	if newest {
		return y.newest(ctx, f, s, n)
	}
	return y.oldest(ctx, f, n)
}

func (y *Graveyard) oldest(ctx context.Context, f DeadLetterFilter, n int) (p Page, err error) {
	looked := 0
	err = y.scan(ctx, f, func(d DeadLetter, more bool) bool {
		looked++
		if f.admits(d) {
			p.Letters = append(p.Letters, d)
		}
		if len(p.Letters) < n && looked < lookedAt {
			return true
		}
		if more && d.Seq < f.last() {
			next := f
			next.From = d.Seq + 1
			p.Next = &next
		}
		return false
	})
	return p, err
}

// newest reads windows from the end; the broker reads a stream forwards only.
func (y *Graveyard) newest(ctx context.Context, f DeadLetterFilter, s jetstream.Stream, n int) (p Page, err error) {
	state := s.CachedInfo().State
	first, last := max(state.FirstSeq, f.From), min(state.LastSeq, f.last())
	there, err := y.matching(ctx, f, s)
	if there == 0 || err != nil {
		return Page{}, err
	}
	span := state.LastSeq - state.FirstSeq + 1
	width := max(windowful, uint64(float64(span)/float64(there)*windowful))
	looked := 0
	for {
		window := f
		window.From, window.To = first, last
		if last-first >= width {
			window.From = last - width + 1
		}
		var found []DeadLetter // the last of the window
		inWindow, tooOld := 0, false
		err := y.scan(ctx, window, func(d DeadLetter, _ bool) bool {
			inWindow++
			tooOld = tooOld || d.DiedAt.Before(f.After)
			if window.admits(d) {
				found = append(found, d)
				if room := n - len(p.Letters); len(found) > 2*room {
					found = append(found[:0], found[len(found)-room:]...)
				}
			}
			return true
		})
		if err != nil {
			return Page{}, err
		}
		slices.Reverse(found)
		p.Letters = append(p.Letters, found[:min(len(found), n-len(p.Letters))]...)
		end := window.From
		if len(p.Letters) == n {
			end = p.Letters[n-1].Seq
		}
		if end <= first || tooOld && len(p.Letters) < n {
			return p, nil // those before it are older still
		}
		last = end - 1
		if looked += inWindow; len(p.Letters) == n || looked >= lookedAt {
			next := f
			next.To = last
			p.Next = &next
			return p, nil
		}
		if inWindow < windowful/2 { // they lie unevenly
			width = min(2*width, span)
		}
	}
}

// matching is how many dead letters f's tenant has, of any sequence; everybody's
// without one.
func (y *Graveyard) matching(ctx context.Context, f DeadLetterFilter, s jetstream.Stream) (n uint64, err error) {
	subjects := y.subjects(f.Tenant)
	if len(subjects) == 0 {
		return s.CachedInfo().State.Msgs, nil
	}
	for _, subject := range subjects {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return 0, fmt.Errorf("count dead letters: %w", err)
		}
		for _, messages := range info.State.Subjects {
			n += messages
		}
	}
	return n, nil
}

// subjects selects a tenant's dead letters; none is everybody's.
func (y *Graveyard) subjects(tenant string) []string {
	if tenant == "" {
		return nil
	}
	space := y.deps.Subjects + "." + tenant
	return []string{space, space + ".>"}
}

// unused is after what time the broker removes a reader that was left behind.
const unused = 30 * time.Second

// scan reads the dead letters that f's tenant and range select, until visit returns false. more says that the stream had another one then.
func (y *Graveyard) scan(ctx context.Context, f DeadLetterFilter, visit func(d DeadLetter, more bool) bool) error {
	cfg := jetstream.ConsumerConfig{
		Description:    "flowgate: a look at the dead letters",
		FilterSubjects: y.subjects(f.Tenant),
		AckPolicy:      jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: unused,
	}
	if f.From > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, f.From
	}
	c, err := y.deps.JS.CreateConsumer(ctx, y.deps.Stream, cfg)
	if err != nil {
		return fmt.Errorf("read dead letters of %s: %w", y.deps.Stream, err)
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = y.deps.JS.DeleteConsumer(late, y.deps.Stream, c.CachedInfo().Name) // the broker does, later
	}()
	pending, read := c.CachedInfo().NumPending, uint64(0)
	for pending > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := c.Fetch(int(min(pending, pull)), jetstream.FetchMaxWait(pullWait))
		if err != nil {
			return fmt.Errorf("read dead letters: %w", err)
		}
		came := false
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return fmt.Errorf("read dead letters: %w", err)
			}
			came = true
			if read++; meta.Sequence.Consumer != read {
				return fmt.Errorf("read dead letters: some were lost on the way after sequence %d; try again", meta.Sequence.Stream)
			}
			if meta.Sequence.Stream > f.last() {
				return nil
			}
			pending = meta.NumPending
			d := y.read(m.Subject(), meta.Sequence.Stream, meta.Timestamp, m.Headers())
			d.Bytes, _ = strconv.Atoi(m.Headers().Get(nats.MsgSize))
			if !visit(d, pending > 0) {
				return nil
			}
		}
		if err := batch.Error(); err != nil {
			return fmt.Errorf("read dead letters: %w", err)
		}
		if came {
			continue
		}
		// What was left is deleted, or does not arrive.
		info, err := c.Info(ctx)
		if err != nil {
			return fmt.Errorf("read dead letters: %w", err)
		}
		if pending = info.NumPending; pending > 0 {
			return fmt.Errorf("read dead letters: the broker sent none within %s; try again", pullWait)
		}
	}
	return nil
}
