package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/bubble"
)

// stub is a destination that does what a test says.
type stub struct {
	answer func(ctx context.Context, batch []Delivery) []error

	mu    sync.Mutex
	calls [][]Delivery
}

func (s *stub) Deliver(ctx context.Context, batch []Delivery) []error {
	s.mu.Lock()
	s.calls = append(s.calls, slices.Clone(batch))
	s.mu.Unlock()
	return s.answer(ctx, batch)
}

func (s *stub) Close() error { return nil }

// always answers every message alike.
func always(err error) *stub {
	return &stub{answer: func(_ context.Context, batch []Delivery) []error { return all(len(batch), err) }}
}

// grave is a dead-letter store in memory.
type grave struct {
	fail error
	slow bool // until the context ends

	mu      sync.Mutex
	letters []Delivery
	reasons []string
}

func (g *grave) Put(ctx context.Context, d Delivery, reason error) error {
	if g.slow {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.fail != nil {
		return g.fail
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.letters = append(g.letters, d)
	g.reasons = append(g.reasons, reason.Error())
	return nil
}

func testConfig() Config {
	return Config{URL: "sqlite:", Concurrency: 4, Timeout: 10 * time.Second, MaxAttempts: 3, Backoff: time.Second, BackoffMax: 30 * time.Second, Batch: 1}
}

// newDesk makes a desk without chance: its waits are the longest.
func newDesk(dest Destination, dead DeadLetterStore) (*Desk, *prometheus.Registry) {
	reg := prometheus.NewRegistry()
	d := NewDesk(testConfig(), dest, dead, nil, reg, quiet())
	one := func() float64 { return 1 }
	d.random, d.breaker.random = one, one
	return d, reg
}

// wantOutcome checks all but the error, of which it looks for the words.
func wantOutcome(t *testing.T, got, want Outcome, words string) {
	t.Helper()
	if got.Action != want.Action || got.Delay != want.Delay || got.Counted != want.Counted {
		t.Errorf("outcome %+v, want %+v", got, want)
	}
	if words == "" {
		if got.Err != nil {
			t.Errorf("outcome with the error %v", got.Err)
		}
		return
	}
	wantError(t, got.Err, words)
}

func TestDeskOutcomes(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		answer  error
		attempt int
		want    Outcome
		buried  bool
	}{
		"done":                        {nil, 1, Outcome{Action: Ack}, false},
		"done at the last attempt":    {nil, 3, Outcome{Action: Ack}, false},
		"failed":                      {refused, 1, Outcome{Action: Later, Delay: time.Second, Counted: true}, false},
		"failed again":                {refused, 2, Outcome{Action: Later, Delay: 2 * time.Second, Counted: true}, false},
		"failed for the last time":    {refused, 3, Outcome{Action: Ack}, true},
		"retry after":                 {RetryAfter(time.Hour, refused), 1, Outcome{Action: Later, Delay: time.Hour, Counted: true}, false},
		"retry after less than ours":  {RetryAfter(time.Millisecond, refused), 2, Outcome{Action: Later, Delay: 2 * time.Second, Counted: true}, false},
		"retry after the last":        {RetryAfter(time.Hour, refused), 3, Outcome{Action: Ack}, true},
		"never":                       {Permanent(refused), 1, Outcome{Action: Ack}, true},
		"overloaded":                  {Overloaded(0, refused), 1, Outcome{Action: Later, Delay: time.Second}, false},
		"overloaded at the last":      {Overloaded(0, refused), 3, Outcome{Action: Later, Delay: time.Second}, false},
		"overloaded, asks for a hour": {Overloaded(time.Hour, refused), 3, Outcome{Action: Later, Delay: time.Hour}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &grave{}
			desk, _ := newDesk(always(test.answer), dead)
			d := aDelivery(1)
			d.Attempt = test.attempt
			words := ""
			if test.answer != nil {
				words = "refused"
			}
			outcomes := desk.Attempt(t.Context(), []Delivery{d})
			wantOutcome(t, outcomes[0], test.want, words)
			if buried := len(dead.letters) == 1; buried != test.buried {
				t.Fatalf("among the dead letters: %t, want %t", buried, test.buried)
			}
			if test.buried && (dead.letters[0].Attempt != test.attempt || dead.reasons[0] != "refused") {
				t.Errorf("dead letter after %d attempts for %q", dead.letters[0].Attempt, dead.reasons[0])
			}
		})
	}
}

// TestDeskJudgesEachMessage hands over a batch with one of every kind.
func TestDeskJudgesEachMessage(t *testing.T) {
	dead := &grave{}
	dest := &stub{answer: func(_ context.Context, batch []Delivery) []error {
		return []error{nil, errors.New("bad day"), Permanent(errors.New("bad row")), nil}
	}}
	desk, _ := newDesk(dest, dead)
	batch := deliveries(6)
	batch[1].Deadline = batch[1].ReleasedAt.Add(-time.Microsecond) // passed while it waited
	batch[2].Deadline = batch[2].ReleasedAt                        // just in time
	batch[4].Deadline = batch[4].ReleasedAt.Add(-time.Hour)
	batch[4].Attempt = 3
	outcomes := desk.Attempt(t.Context(), batch)

	var ids []string
	for _, d := range dest.calls[0] {
		ids = append(ids, d.ID)
	}
	if got := strings.Join(ids, " "); len(dest.calls) != 1 || got != "acme/1 acme/3 acme/4 acme/6" {
		t.Errorf("the destination was handed %s in %d calls", got, len(dest.calls))
	}
	wantOutcome(t, outcomes[0], Outcome{Action: Ack}, "")
	wantOutcome(t, outcomes[1], Outcome{Action: Ack}, "expired")
	wantOutcome(t, outcomes[2], Outcome{Action: Later, Delay: time.Second, Counted: true}, "bad day")
	wantOutcome(t, outcomes[3], Outcome{Action: Ack}, "bad row")
	wantOutcome(t, outcomes[4], Outcome{Action: Ack}, "expired")
	wantOutcome(t, outcomes[5], Outcome{Action: Ack}, "")

	var buried []string
	for i, d := range dead.letters {
		buried = append(buried, fmt.Sprintf("%s after %d: %.7s", d.ID, d.Attempt, dead.reasons[i]))
	}
	slices.Sort(buried)
	// An attempt that was not made is none.
	if got, want := strings.Join(buried, ", "), "acme/2 after 0: expired, acme/4 after 1: bad row, acme/5 after 2: expired"; got != want {
		t.Errorf("dead letters %s; want %s", got, want)
	}
}

func TestDeskAllExpired(t *testing.T) {
	dest := always(nil)
	desk, _ := newDesk(dest, &grave{})
	batch := deliveries(2)
	for i := range batch {
		batch[i].Deadline = batch[i].ReleasedAt.Add(-1)
	}
	for _, o := range desk.Attempt(t.Context(), batch) {
		wantOutcome(t, o, Outcome{Action: Ack}, "expired")
	}
	if len(dest.calls) != 0 {
		t.Errorf("the destination was called for %v", dest.calls)
	}
}

// A message whose last attempt was begun and never ended is not tried again.
func TestDeskCrashed(t *testing.T) {
	dest, dead := always(nil), &grave{}
	desk, _ := newDesk(dest, dead)
	batch := deliveries(2)
	batch[0].Attempt = testConfig().MaxAttempts + 1
	outcomes := desk.Attempt(t.Context(), batch)
	wantOutcome(t, outcomes[0], Outcome{Action: Ack}, "crashed")
	wantOutcome(t, outcomes[1], Outcome{Action: Ack}, "")
	if len(dest.calls) != 1 || len(dest.calls[0]) != 1 || dest.calls[0][0].ID != batch[1].ID {
		t.Errorf("the destination was called for %v", dest.calls)
	}
	if len(dead.letters) != 1 || dead.letters[0].Attempt != testConfig().MaxAttempts {
		t.Errorf("dead letters %v", dead.letters)
	}
}

// TestDeskCallsBeforeItBuries: the departure clock has timed the call, and a dead
// letter must not hold it up.
func TestDeskCallsBeforeItBuries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var called time.Time
		dest := &stub{answer: func(context.Context, []Delivery) []error {
			called = time.Now()
			return []error{nil}
		}}
		desk, _ := newDesk(dest, &grave{slow: true})
		batch := deliveries(2)
		batch[0].Deadline = batch[0].ReleasedAt.Add(-1)
		began := time.Now()
		outcomes := desk.Attempt(t.Context(), batch)
		if late := called.Sub(began); late != 0 {
			t.Errorf("the call was made %s after the departure", late)
		}
		wantOutcome(t, outcomes[0], Outcome{Action: Later, Delay: 30 * time.Second}, "deadline exceeded")
		wantOutcome(t, outcomes[1], Outcome{Action: Ack}, "")
	})
}

// TestDeskUnwritableDeadLetter: what can be written nowhere stays where it is, is
// tried again slowly, and is never acknowledged.
func TestDeskUnwritableDeadLetter(t *testing.T) {
	full := errors.New("the dead-letter stream is full")
	last, expired := aDelivery(1), aDelivery(1)
	last.Attempt = 3
	expired.Deadline = expired.ReleasedAt.Add(-1)
	for name, test := range map[string]struct {
		answer   error
		delivery Delivery
	}{
		"rejected":     {Permanent(errors.New("bad")), aDelivery(1)},
		"last attempt": {errors.New("bad"), last},
		"expired":      {nil, expired},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &grave{fail: full}
			log := &bubble.Log{}
			desk, reg := newDesk(always(test.answer), dead)
			desk.log = log.Logger(slog.LevelInfo)
			for range 3 {
				o := desk.Attempt(t.Context(), []Delivery{test.delivery})[0]
				wantOutcome(t, o, Outcome{Action: Later, Delay: 30 * time.Second}, "full")
			}
			wantSamples(t, reg, map[string]float64{"flowgate_dead_letters_unwritten_total": 3, `flowgate_dead_letters_total{tenant="acme"}`: 0})
			if n := strings.Count(log.String(), "dead letter not written"); n != 1 {
				t.Errorf("the log tells %d times, want once\n%s", n, log)
			}
			dead.fail = nil
			if o := desk.Attempt(t.Context(), []Delivery{test.delivery})[0]; o.Action != Ack || len(dead.letters) != 1 {
				t.Errorf("once there is room: %+v, %d dead letters", o, len(dead.letters))
			}
			wantSamples(t, reg, map[string]float64{"flowgate_dead_letters_unwritten_total": 3, `flowgate_dead_letters_total{tenant="acme"}`: 1})
		})
	}
	// Slow also where the backoff is short.
	cfg := testConfig()
	cfg.Backoff, cfg.BackoffMax = time.Millisecond, time.Millisecond
	desk := NewDesk(cfg, always(Permanent(full)), &grave{fail: full}, nil, nil, quiet())
	wantOutcome(t, desk.Attempt(t.Context(), deliveries(1))[0], Outcome{Action: Later, Delay: 5 * time.Second}, "full")
}

// TestDeskBadDestination has a destination break its contract: the process lives,
// and each message had an attempt.
func TestDeskBadDestination(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(context.Context, []Delivery) []error
		says   string
	}{
		"panics":      {func(context.Context, []Delivery) []error { panic("out of my mind") }, "out of my mind"},
		"nil map":     {func(context.Context, []Delivery) []error { var m map[string]int; m["a"] = 1; return nil }, "nil map"},
		"too few":     {func(context.Context, []Delivery) []error { return make([]error, 2) }, "2 verdicts for 3"},
		"too many":    {func(context.Context, []Delivery) []error { return make([]error, 4) }, "4 verdicts for 3"},
		"none at all": {func(context.Context, []Delivery) []error { return nil }, "0 verdicts for 3"},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &grave{}
			desk, reg := newDesk(&stub{answer: test.answer}, dead)
			batch := deliveries(3)
			batch[2].Attempt = 3
			outcomes := desk.Attempt(t.Context(), batch)
			for _, o := range outcomes[:2] {
				wantOutcome(t, o, Outcome{Action: Later, Delay: time.Second, Counted: true}, test.says)
			}
			wantOutcome(t, outcomes[2], Outcome{Action: Ack}, test.says)
			if len(dead.letters) != 1 || dead.letters[0].ID != "acme/3" {
				t.Errorf("dead letters %v, want acme/3", dead.letters)
			}
			wantSamples(t, reg, map[string]float64{"flowgate_consumer_in_flight": 0})
			wantState(t, desk.breaker, "closed")
		})
	}
}
