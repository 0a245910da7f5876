package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/flowgate/flowgate/internal/bubble"
)

// TestDeskTimeout: an attempt that hangs ends at its timeout and is the message's.
func TestDeskTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := &stub{answer: func(ctx context.Context, batch []Delivery) []error {
			<-ctx.Done()
			return all(len(batch), ctx.Err())
		}}
		dead := &grave{}
		desk, reg := newDesk(dest, dead)
		began := time.Now()
		o := desk.Attempt(t.Context(), deliveries(1))[0]
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the attempt took %s, want 10s", took)
		}
		wantOutcome(t, o, Outcome{Action: Later, Delay: time.Second, Counted: true}, "deadline exceeded")
		last := aDelivery(1)
		last.Attempt = 3
		if o := desk.Attempt(t.Context(), []Delivery{last})[0]; o.Action != Ack || len(dead.letters) != 1 {
			t.Errorf("the last attempt hung: %+v, %d dead letters; the store's time is its own", o, len(dead.letters))
		}
		wantSamples(t, reg, map[string]float64{`flowgate_consumer_delivery_seconds{outcome="retry"}`: 2})
	})
}

// TestDeskStop: what our own stop cuts short goes back as it was.
func TestDeskStop(t *testing.T) {
	for name, answer := range map[string]func(error) error{
		"plain": func(err error) error { return err },
		"overloaded": func(err error) error { // a connection could not be made, for the same reason
			return Overloaded(0, fmt.Errorf("connect: %w", err))
		},
		"wrapped": func(err error) error { return fmt.Errorf("deep: %w", err) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dest := &stub{answer: func(ctx context.Context, batch []Delivery) []error {
					<-ctx.Done()
					answers := all(len(batch), answer(ctx.Err()))
					answers[0] = nil // was stored before
					return answers
				}}
				dead := &grave{}
				desk, _ := newDesk(dest, dead)
				log := &bubble.Log{}
				desk.log = log.Logger(slog.LevelInfo)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				batch := deliveries(3)
				batch[2].Attempt = 3 // even the last attempt
				outcomes := desk.Attempt(ctx, batch)
				wantOutcome(t, outcomes[0], Outcome{Action: Ack}, "")
				wantOutcome(t, outcomes[1], Outcome{Action: Later}, "context canceled")
				wantOutcome(t, outcomes[2], Outcome{Action: Later}, "context canceled")
				if len(dead.letters) != 0 {
					t.Errorf("dead letters by our own stop: %v", dead.letters)
				}
				wantState(t, desk.breaker, "closed")
				if log.String() != "" {
					t.Errorf("an ordinary stop was logged as a fault:\n%s", log)
				}
			})
		})
	}
}

// TestDeskStopWhileBurying: a dead letter that our stop cuts short is none.
func TestDeskStopWhileBurying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desk, _ := newDesk(always(Permanent(errors.New("bad"))), &grave{slow: true})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		wantOutcome(t, desk.Attempt(ctx, deliveries(1))[0], Outcome{Action: Later, Delay: 30 * time.Second}, "context canceled")
	})
}

// TestDeskOutage runs four workers against a destination that is down for ten
// minutes: what it costs is probes, and no message an attempt.
func TestDeskOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		const down = 10 * time.Minute
		dest := &stub{answer: func(_ context.Context, batch []Delivery) []error {
			time.Sleep(5 * time.Millisecond)
			if time.Since(began) < down {
				return all(len(batch), Overloaded(0, errors.New("connection refused")))
			}
			return make([]error, len(batch))
		}}
		dead := &grave{}
		desk, reg := newDesk(dest, dead)
		work := make(chan Delivery, 500)
		for _, d := range deliveries(cap(work)) {
			work <- d
		}
		var mu sync.Mutex
		counted, done := 0, 0
		var back time.Time
		var wg sync.WaitGroup
		// As the shaper does it: one goroutine asks, workers deliver.
		jobs := make(chan Delivery)
		for range 4 {
			wg.Go(func() {
				for d := range jobs {
					o := desk.Attempt(t.Context(), []Delivery{d})[0]
					mu.Lock()
					if o.Counted {
						counted++
					}
					if o.Action == Ack {
						if done++; done == 1 {
							back = time.Now()
						}
						if done == cap(work) {
							close(work)
						}
					} else {
						work <- d
					}
					mu.Unlock()
				}
			})
		}
		for d := range work {
			for {
				wait, ok := desk.Ready(time.Now())
				if ok {
					break
				}
				time.Sleep(wait)
			}
			jobs <- d
		}
		close(jobs)
		wg.Wait()
		if counted != 0 || len(dead.letters) != 0 {
			t.Errorf("the outage cost %d attempts and %d dead letters", counted, len(dead.letters))
		}
		// 5 to 8 at once, then after 1, 2, 3, 3, … s.
		if probes := len(dest.calls) - cap(work); probes < 200 || probes > 210 {
			t.Errorf("%d calls during the outage, want a probe each 3 s", probes)
		}
		if late := back.Sub(began) - down; late > 4*time.Second {
			t.Errorf("the first was delivered %s after the end of the outage", late)
		}
		wantState(t, desk.breaker, "closed")
		wantSamples(t, reg, map[string]float64{`flowgate_consumer_deliveries_total{outcome="done",tenant="acme"}`: 500, "flowgate_consumer_in_flight": 0})
	})
}

// TestDeskProbesWithOneMessage: of a batch that leaves half open, one is tried.
func TestDeskProbesWithOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := always(Overloaded(0, errors.New("down")))
		desk, _ := newDesk(dest, &grave{})
		for range breakerOpens {
			desk.Attempt(t.Context(), deliveries(3))
		}
		wantState(t, desk.breaker, "open")
		for _, up := range []bool{false, true} {
			time.Sleep(3 * time.Second)
			if _, ok := desk.Ready(time.Now()); !ok {
				t.Fatal("no probe is let out")
			}
			first := Outcome{Action: Later}
			words := "down"
			if up {
				dest.answer = func(_ context.Context, batch []Delivery) []error { return all(len(batch), nil) }
				first, words = Outcome{Action: Ack}, ""
			}
			outcomes := desk.Attempt(t.Context(), deliveries(3))
			if n := len(dest.calls[len(dest.calls)-1]); n != 1 {
				t.Errorf("%d messages probe, want 1", n)
			}
			wantOutcome(t, outcomes[0], first, words)
			for _, o := range outcomes[1:] {
				wantOutcome(t, o, Outcome{Action: Later}, "not tried")
				if o.Kind != Hold {
					t.Errorf("%s for a message that was not tried", o.Kind)
				}
			}
		}
		wantState(t, desk.breaker, "closed")
	})
}

// TestDeskHangingProbe: a probe that runs into its timeout does not close the breaker.
func TestDeskHangingProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := always(Overloaded(0, errors.New("down")))
		desk, _ := newDesk(dest, &grave{})
		for range breakerOpens {
			desk.Attempt(t.Context(), deliveries(1))
		}
		dest.answer = func(ctx context.Context, batch []Delivery) []error {
			<-ctx.Done()
			return all(len(batch), ctx.Err())
		}
		time.Sleep(time.Second)
		if _, ok := desk.Ready(time.Now()); !ok {
			t.Fatal("no probe is let out")
		}
		if o := desk.Attempt(t.Context(), deliveries(1))[0]; !o.TimedOut || !o.Counted {
			t.Errorf("%+v, want an attempt that timed out", o)
		}
		wantState(t, desk.breaker, "open")
	})
}

// TestDeskWhatIsNoOutage: what the destination answers in between, or for a part of a
// batch, says that it is there. A timeout is the message's own.
func TestDeskWhatIsNoOutage(t *testing.T) {
	away, bad := Overloaded(0, errors.New("busy")), errors.New("bad row")
	for name, test := range map[string]struct {
		answers [][]error
		want    string
	}{
		"four overloads":               {[][]error{{away}, {away}, {away}, {away}}, "closed"},
		"five":                         {[][]error{{away}, {away}, {away}, {away}, {away}}, "open"},
		"with one done in between":     {[][]error{{away}, {away}, {away}, {away}, {nil}, {away}, {away}}, "closed"},
		"with a bad row in between":    {[][]error{{away}, {away}, {away}, {away}, {Permanent(bad)}, {away}, {away}}, "closed"},
		"with a failed row in between": {[][]error{{away}, {away}, {away}, {away}, {bad}, {away}, {away}}, "closed"},
		"a part of each batch":         {[][]error{{away, nil}, {away, nil}, {away, bad}, {away, nil}, {away, nil}, {nil, away}}, "closed"},
		"whole batches":                {[][]error{{away, away}, {away, Held(away)}, {away, away}, {away, away}, {away, away}}, "open"},
		"bad rows":                     {[][]error{{bad}, {bad}, {bad}, {bad}, {bad}, {bad}}, "closed"},
		"one that asks for a pause":    {[][]error{{Overloaded(time.Second, bad)}}, "open"},
		"hanging":                      {[][]error{nil, nil, nil, nil, nil, nil}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dest := &stub{}
				desk, _ := newDesk(dest, &grave{})
				for _, answers := range test.answers {
					dest.answer = func(ctx context.Context, batch []Delivery) []error {
						if answers == nil {
							<-ctx.Done()
							return all(len(batch), ctx.Err())
						}
						return answers
					}
					for i, o := range desk.Attempt(t.Context(), deliveries(max(1, len(answers)))) {
						if o.TimedOut != (answers == nil) {
							t.Errorf("message %d timed out: %t", i, o.TimedOut)
						}
					}
				}
				wantState(t, desk.breaker, test.want)
			})
		})
	}
}

// TestDeskUnready gives the probe's claim back when there was nothing to deliver.
func TestDeskUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dest := always(Overloaded(0, errors.New("down")))
		desk, _ := newDesk(dest, &grave{})
		for range breakerOpens {
			desk.Attempt(t.Context(), deliveries(1))
		}
		time.Sleep(time.Second)
		claim := func(want bool) {
			t.Helper()
			if _, ok := desk.Ready(time.Now()); ok != want {
				t.Fatalf("ready: %t, want %t", ok, want)
			}
		}
		claim(true)
		claim(false)
		desk.Unready()
		claim(true)
		late := aDelivery(1)
		late.Deadline = late.ReleasedAt.Add(-1)
		desk.Attempt(t.Context(), []Delivery{late}) // the destination was not asked
		if got := desk.BreakerState(); got != BreakerHalfOpen {
			t.Errorf("the breaker is %s, want half_open", got)
		}
		claim(true)
		dest.answer = func(context.Context, []Delivery) []error { return []error{errors.New("bad row")} }
		desk.Attempt(t.Context(), deliveries(1)) // it answers: it is there
		if got := desk.BreakerState(); got != BreakerClosed {
			t.Errorf("the breaker is %s, want closed", got)
		}
	})
}

func TestDeskMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		dest := &stub{}
		label := func(tenant string) string {
			if tenant == "acme" {
				return tenant
			}
			return "other"
		}
		dead := &grave{}
		desk := NewDesk(testConfig(), dest, dead, label, reg, quiet())
		newConflicts(reg, quiet())
		inFlight := 0.0
		answer := func(answers ...error) {
			dest.answer = func(context.Context, []Delivery) []error {
				inFlight = max(inFlight, sample(t, reg, "flowgate_consumer_in_flight"))
				return answers
			}
			batch := deliveries(len(answers))
			batch[0].Tenant = "stranger"
			desk.Attempt(t.Context(), batch)
		}
		bad := errors.New("bad")
		answer(nil, nil, bad)
		answer(Permanent(bad), Permanent(bad))
		dead.fail = bad
		answer(Permanent(bad))
		wantSamples(t, reg, map[string]float64{`flowgate_consumer_breaker_state{state="closed"}`: 1, `flowgate_consumer_breaker_state{state="open"}`: 0})
		answer(Overloaded(time.Second, bad), nil)
		if inFlight != 3 {
			t.Errorf("at most %v were in flight, want 3", inFlight)
		}
		wantSamples(t, reg, map[string]float64{
			`flowgate_consumer_deliveries_total{outcome="done",tenant="acme"}`:           2,
			`flowgate_consumer_deliveries_total{outcome="done",tenant="other"}`:          1,
			`flowgate_consumer_deliveries_total{outcome="retried",tenant="acme"}`:        1,
			`flowgate_consumer_deliveries_total{outcome="retried",tenant="other"}`:       2,
			`flowgate_consumer_deliveries_total{outcome="dead_lettered",tenant="acme"}`:  1,
			`flowgate_consumer_deliveries_total{outcome="dead_lettered",tenant="other"}`: 1,
			`flowgate_consumer_delivery_seconds{outcome="done"}`:                         3,
			`flowgate_consumer_delivery_seconds{outcome="retry"}`:                        1,
			`flowgate_consumer_delivery_seconds{outcome="reject"}`:                       3,
			`flowgate_consumer_delivery_seconds{outcome="overload"}`:                     1,
			`flowgate_consumer_errors_total{class="retry"}`:                              1,
			`flowgate_consumer_errors_total{class="reject"}`:                             3,
			`flowgate_consumer_errors_total{class="overload"}`:                           1,
			`flowgate_consumer_queue_seconds`:                                            5,
			`flowgate_consumer_in_flight`:                                                0,
			`flowgate_dead_letters_total{tenant="acme"}`:                                 1,
			`flowgate_dead_letters_total{tenant="other"}`:                                1,
			`flowgate_dead_letters_unwritten_total`:                                      1,
			`flowgate_consumer_breaker_state{state="closed"}`:                            0,
			`flowgate_consumer_breaker_state{state="open"}`:                              1,
			`flowgate_consumer_breaker_state{state="half_open"}`:                         0,
		})
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "flowgate_") || f.GetHelp() == "" {
				t.Errorf("metric %s, help %q", f.GetName(), f.GetHelp())
			}
		}
	})
}
