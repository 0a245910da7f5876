package producers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/loadtest/invariants"
)

// scripted answers each try of a message in turn, after a while.
type scripted struct {
	takes   time.Duration
	answers map[string][]string // by id; none: acknowledged
	hint    time.Duration
}

func (s *scripted) Publish(m Message, done func(string, time.Duration)) {
	told := invariants.Acked
	if left := s.answers[m.ID]; len(left) > 0 {
		told, s.answers[m.ID] = left[0], left[1:]
	}
	time.AfterFunc(s.takes, func() { done(told, s.hint) })
}

func pump(t *testing.T, c Client, reaction Reaction, length time.Duration) *invariants.Record {
	t.Helper()
	record := &invariants.Record{}
	pattern := arrivals.Pattern{Groups: []arrivals.Group{{Tenant: "acme", Spacing: arrivals.Even, Phases: []arrivals.Phase{{For: time.Hour, From: 10, To: 10}}}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	Pump{Schedule: pattern.Schedule(length), Client: func(string) (Client, Reaction) { return c, reaction }, Record: record}.Run(ctx, time.Now())
	return record
}

// A slow answer delays no other message, and its time counts from the schedule.
func TestPumpIsOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := pump(t, &scripted{takes: 3 * time.Second}, Reaction{}, 950*time.Millisecond)
		if len(r.Tries) != 9 {
			t.Fatalf("%d tries", len(r.Tries))
		}
		for i, try := range r.Tries {
			due := began.Add(time.Duration(i+1) * 100 * time.Millisecond).UnixNano()
			if off := time.Duration(due - try.Due); off < 0 || off > time.Microsecond || try.Sent != try.Due || try.Answered != try.Due+int64(3*time.Second) {
				t.Errorf("%d: due %s, sent %s, answered %s after the beginning", i, time.Duration(try.Due-began.UnixNano()), time.Duration(try.Sent-began.UnixNano()), time.Duration(try.Answered-began.UnixNano()))
			}
		}
	})
}

// What waits for a worker counts from when it was due.
func TestWorkersWaitIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Workers{idle: 1, call: func(context.Context, Message) (string, time.Duration) {
			time.Sleep(250 * time.Millisecond)
			return invariants.Acked, 0
		}}
		r := pump(t, w, Reaction{}, 500*time.Millisecond)
		for i, want := range []time.Duration{250, 400, 550, 700} {
			if took := time.Duration(r.Tries[i].Answered - r.Tries[i].Due); took.Round(time.Microsecond) != want*time.Millisecond {
				t.Errorf("message %d took %s, want %dms", i, took, want)
			}
			if took := time.Duration(r.Tries[i].Answered - r.Tries[i].Sent); took != 250*time.Millisecond {
				t.Errorf("message %d: the call took %s", i, took)
			}
		}
	})
}

func TestReactions(t *testing.T) {
	for _, c := range []struct {
		name     string
		reaction Reaction
		answers  []string
		hint     time.Duration
		tries    int
		again    time.Duration
	}{
		{"obeys", Reaction{}, []string{"backlog"}, 700 * time.Millisecond, 2, 700 * time.Millisecond},
		{"does not listen", Reaction{After: 50 * time.Millisecond}, []string{"backlog", "backlog"}, 700 * time.Millisecond, 3, 50 * time.Millisecond},
		{"gives up", Reaction{Forget: true}, []string{"backlog"}, 700 * time.Millisecond, 1, 0},
		{"no use", Reaction{}, []string{"invalid"}, -1, 1, 0},
		{"no answer", Reaction{}, []string{invariants.NoAnswer}, 0, 2, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := pump(t, &scripted{answers: map[string][]string{"m0000000": c.answers}, hint: c.hint}, c.reaction, 150*time.Millisecond)
				if len(r.Tries) != c.tries || len(r.Messages) != 1 {
					t.Fatalf("%d tries of %d messages, want %d of one", len(r.Tries), len(r.Messages), c.tries)
				}
				for i := 1; i < c.tries; i++ {
					if again := time.Duration(r.Tries[i].Due - r.Tries[i-1].Answered); again != c.again || r.Tries[i].Sent != r.Tries[i].Due {
						t.Errorf("again after %s, want %s", again, c.again)
					}
				}
			})
		})
	}
}
