package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/units"
)

// DeadLetterQuery selects dead letters, as it is sent; every field that is set must
// hold.
type DeadLetterQuery struct {
	Tenant string `json:"tenant,omitempty"`
	Class  string `json:"class,omitempty"`
	// OlderThan and NewerThan are ages like 90s or 24h, or instants as in RFC 3339.
	OlderThan string `json:"older_than,omitempty"`
	NewerThan string `json:"newer_than,omitempty"`
	// From and To are sequences, both included; To 0 is without end.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
}

// Filter reads the query at the instant now and joins all that is wrong with it.
func (q DeadLetterQuery) Filter(now time.Time) (consumers.DeadLetterFilter, error) {
	f := consumers.DeadLetterFilter{Tenant: q.Tenant, Class: consumers.ErrorClass(q.Class), From: q.From, To: q.To}
	var errs []error
	instant := func(name, text string, into *time.Time) {
		if text == "" {
			return
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			age, e := units.ParseDuration(text)
			if e != nil {
				errs = append(errs, fmt.Errorf("%s: %q is neither an age like 90s or 24h nor a time as in RFC 3339", name, text))
				return
			}
			at = now.Add(-age)
		}
		*into = at.UTC()
	}
	instant("older_than", q.OlderThan, &f.Before)
	instant("newer_than", q.NewerThan, &f.After)
	return f, errors.Join(append(errs, f.Validate())...)
}

// queryOf is a filter as it is sent.
func queryOf(f *consumers.DeadLetterFilter) *DeadLetterQuery {
	if f == nil {
		return nil
	}
	instant := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return at.Format(time.RFC3339Nano)
	}
	return &DeadLetterQuery{
		Tenant: f.Tenant, Class: string(f.Class), From: f.From, To: f.To,
		OlderThan: instant(f.Before), NewerThan: instant(f.After),
	}
}

// ParseRange reads a sequence, or a range of them: 7, 7-90, 7-.
func ParseRange(s string) (from, to uint64, err error) {
	first, last, ranged := strings.Cut(s, "-")
	if from, err = strconv.ParseUint(first, 10, 64); err == nil && from > 0 {
		to = from
		if ranged {
			if to = 0; last != "" {
				to, err = strconv.ParseUint(last, 10, 64)
			}
		}
		if err == nil && (to == 0 && last == "" || to >= from) && to < math.MaxUint64 {
			return from, to, nil
		}
	}
	return 0, 0, fmt.Errorf("%q is neither a sequence nor a range of them, like 7, 7-90 or 7-", s)
}

// DeadLetter is one of a list.
type DeadLetter struct {
	Seq        uint64    `json:"seq"`
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant"`
	Topic      string    `json:"topic"`
	Class      string    `json:"class"`
	Error      string    `json:"error"`
	Attempts   int       `json:"attempts"`
	MessageSeq uint64    `json:"message_seq"`
	AdmittedAt time.Time `json:"admitted_at,omitzero"`
	DiedAt     time.Time `json:"died_at"`
	Bytes      int       `json:"bytes"`
}

func deadLetterOf(d consumers.DeadLetter) DeadLetter {
	return DeadLetter{
		Seq: d.Seq, ID: d.ID, Tenant: d.Tenant, Topic: d.Topic, Class: string(d.Class), Error: d.Error,
		Attempts: d.Attempts, MessageSeq: d.MessageSeq, AdmittedAt: d.AdmittedAt, DiedAt: d.DiedAt, Bytes: d.Bytes,
	}
}

// DeadLetterList is the answer to GET /api/v1/dead-letters.
type DeadLetterList struct {
	DeadLetters []DeadLetter `json:"dead_letters"`
	// Next is the query of what comes after; null: nothing does. A list can be empty and
	// have a next: the class and the age are looked for, and a look is bounded.
	Next *DeadLetterQuery `json:"next"`
}

// DeadLetterContent is the answer to GET /api/v1/dead-letters/{seq}: with what the
// producer sent.
type DeadLetterContent struct {
	DeadLetter
	Headers map[string][]string `json:"headers"`
	// Payload is text, or base64 if Base64 is true.
	Payload string `json:"payload"`
	Base64  bool   `json:"payload_base64"`
}

// RaisedDeadLetter is the answer to POST /api/v1/dead-letters/{seq}/replay.
type RaisedDeadLetter struct {
	DeadLetter
	// BacklogSeq is its sequence in the backlog.
	BacklogSeq uint64 `json:"backlog_seq"`
}

// DeadLetterChange is the body of POST /api/v1/dead-letters/replay and …/purge. All is
// needed where the query selects everything.
type DeadLetterChange struct {
	DeadLetterQuery
	All    bool   `json:"all,omitempty"`
	Author string `json:"author,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Filter reads the query.
func (c DeadLetterChange) Filter(now time.Time) (consumers.DeadLetterFilter, error) {
	f, err := c.DeadLetterQuery.Filter(now)
	if err == nil && f.All() && !c.All {
		err = errors.New(`nothing is selected; for every dead letter say so with "all"`)
	}
	return f, err
}

// DeadLetterProgress is how far a change of many came: the work of one request is
// bounded. It goes on with Next.
type DeadLetterProgress struct {
	Count uint64 `json:"count"`
	// Skipped cannot be replayed, of which Why tells the first.
	Skipped uint64 `json:"skipped"`
	Why     string `json:"why,omitempty"`
	// Waiting says that the backlog had no room for more in that time.
	Waiting bool `json:"waiting"`
	// Stopped is what ended it early.
	Stopped string           `json:"stopped,omitempty"`
	Next    *DeadLetterQuery `json:"next"`
}

// room reports whether the backlog has room for a dead letter that is replayed. Replays
// fill it up to LOW, where producers are admitted even if they were refused before: they
// have the rest.
func (g *gateway) room() bool {
	now := g.clock.now()
	if _, full := g.backlog.Full(now); full {
		return false
	}
	s := g.backlog.Snapshot(now)
	return s.Depth() == 0 || s.Depth() < s.Marks.Low
}

// makeGraveyard makes what operators see of the dead letters.
func (g *gateway) makeGraveyard() {
	names := g.cfg.Names()
	g.graveyard = consumers.NewGraveyard(consumers.GraveyardDeps{
		JS: g.js, Stream: names.DLQStream, Subjects: names.DLQ, BacklogStream: names.Stream, Backlog: names.Backlog,
		Room: g.room, Replayed: g.backlog.Replayed, TenantLabel: g.labels.of, Registerer: g.registry,
	})
}

// recount brings the count in the status up to date after a change.
func (g *gateway) recount(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if n, err := g.graveyard.Count(ctx); err == nil {
		g.deadLetters.Store(n) // the watch does, otherwise
	}
}
