package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/arrivals"
)

// record is what happened in a phase, seen from outside: by the producers and by the
// database. Instants are since its beginning.
type record struct {
	began  time.Time
	ledger *os.File // nil: none

	mu         sync.Mutex
	messages   []publication
	departures []time.Duration // calls of the database, repeats included
	finished   []time.Duration // calls that it finished
	repeats    int             // of these, of messages that were finished before
	refusals   map[string]*told
}

// publication is one arrival.
type publication struct {
	tenant             string
	due, answered      time.Duration
	accepted, timedOut bool
	finished           time.Duration // 0: not
}

// told is what producers were told, and how often.
type told struct {
	Text  string `json:"text"`
	Times int    `json:"times"`
}

func newRecord() *record {
	return &record{began: time.Now(), refusals: map[string]*told{}}
}

func (r *record) since() time.Duration { return time.Since(r.began) }

// due notes an arrival and gives its number.
func (r *record) due(a arrivals.Arrival) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, publication{tenant: a.Tenant, due: a.At})
	return len(r.messages) - 1
}

// answer notes how a publish ended.
func (r *record) answer(id int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.messages[id]
	m.answered = r.since()
	switch {
	case err == nil:
		m.accepted = true
		r.note('a', id)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout):
		m.timedOut = true
	default:
		text := err.Error()
		if t := r.refusals[shape(text)]; t != nil {
			t.Times++
		} else {
			r.refusals[shape(text)] = &told{text, 1}
		}
	}
}

// shape is a text without its numbers, by which texts are counted together.
func shape(text string) string {
	s := make([]rune, 0, len(text))
	for _, c := range text {
		if c >= '0' && c <= '9' {
			c = '#'
			if len(s) > 0 && s[len(s)-1] == c {
				continue
			}
		}
		s = append(s, c)
	}
	return string(s)
}

// wrap notes calls of the database.
func (r *record) wrap(write func(context.Context) error) func(context.Context, []byte) error {
	return func(ctx context.Context, payload []byte) error {
		_, id, err := named(payload)
		if err != nil {
			report(err)
			return nil
		}
		r.mu.Lock()
		r.departures = append(r.departures, r.since())
		r.mu.Unlock()
		if err := write(ctx); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finished = append(r.finished, r.since())
		r.note('d', id)
		if id >= len(r.messages) {
			return nil // of an earlier process; its ledger knows
		}
		if m := &r.messages[id]; m.finished == 0 {
			m.finished = r.since()
		} else {
			r.repeats++
		}
		return nil
	}
}

// note writes a line that outlives the process.
func (r *record) note(what byte, id int) {
	if r.ledger == nil {
		return
	}
	if _, err := fmt.Fprintf(r.ledger, "%c %d\n", what, id); err != nil {
		report(err)
	}
}

// last is when something last happened at the database, and how much is owed still.
func (r *record) last() (at time.Duration, owed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.departures); n > 0 {
		at = r.departures[n-1]
	}
	if n := len(r.finished); n > 0 {
		at = max(at, r.finished[n-1])
	}
	for i := range r.messages {
		if m := &r.messages[i]; m.accepted && m.finished == 0 {
			owed++
		}
	}
	return at, owed
}

// report says on standard error what went wrong in passing.
func report(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
}
