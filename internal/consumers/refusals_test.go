package consumers

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// refusing takes all but the first message, which it refuses for the given reason.
func refusing(err error) *stub {
	return &stub{answer: func(_ context.Context, batch []Delivery) []error {
		answers := make([]error, len(batch))
		for i, d := range batch {
			if d.Seq == 1 {
				answers[i] = err
			}
		}
		return answers
	}}
}

// attempts tries the first message again and again as the shaper would, with something
// in between, until it is done or was refused so many times. It returns the waits.
func attempts(t *testing.T, desk *Desk, d Delivery, most int, between func()) (waits []time.Duration, ended bool) {
	t.Helper()
	for range most {
		o := desk.Attempt(t.Context(), []Delivery{d})[0]
		if o.Action == Ack {
			return waits, true
		}
		if o.Counted {
			d.Attempt++
		}
		d.Refusals = o.Refusals
		waits = append(waits, o.Delay)
		between()
	}
	return waits, false
}

// TestRefusedAlone: a message that is refused each time, while others are taken, waits
// longer each time and ends among the dead letters.
func TestRefusedAlone(t *testing.T) {
	for name, asks := range map[string]time.Duration{"refused": 0, "asks for 5 s": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dead := &grave{}
			desk, _ := newDesk(refusing(Overloaded(asks, errors.New("429 Too Many Requests"))), dead)
			next := 1
			others := func() {
				for range 10 {
					next++
					if o := desk.Attempt(t.Context(), []Delivery{aDelivery(next)})[0]; o.Action != Ack {
						t.Fatalf("another message: %+v", o)
					}
				}
			}
			others()
			waits, ended := attempts(t, desk, aDelivery(1), 1000, others)
			// The first, 20 of its own, and 3 attempts, of which the last ends it.
			if !ended || len(waits) != 1+refusalsFree+2 {
				t.Fatalf("ended %t after %d refusals", ended, len(waits))
			}
			want := []time.Duration{asks + 1*time.Second, asks + 2*time.Second, asks + 4*time.Second, asks + 8*time.Second, asks + 16*time.Second, asks + 30*time.Second}
			if asks > 0 {
				want[0] = asks // all are held back so long, and nothing is known of it yet
			}
			if !slices.Equal(waits[:6], want) || slices.Min(waits[6:]) != asks+30*time.Second || slices.Max(waits) != asks+30*time.Second {
				t.Errorf("waits %v", waits)
			}
			if len(dead.letters) != 1 || dead.letters[0].Seq != 1 || dead.letters[0].Attempt != 3 || ClassOf(errors.New(dead.reasons[0])) != ClassAttempts {
				t.Fatalf("dead letters %v for %v", dead.letters, dead.reasons)
			}
			if why := dead.reasons[0]; !strings.Contains(why, "refused 23 times while others were delivered: 429") {
				t.Errorf("dead letter because %q", why)
			}
		})
	}
}

// TestRefusedWithOthers: what befalls others too costs nothing.
func TestRefusedWithOthers(t *testing.T) {
	refused := Overloaded(0, errors.New("503"))
	one := func(desk *Desk, d Delivery) { desk.Attempt(t.Context(), []Delivery{d}) }
	fresh := 1
	for name, test := range map[string]struct {
		between func(t *testing.T, desk *Desk)
		longest time.Duration
	}{
		"nothing else is tried":     {func(*testing.T, *Desk) {}, time.Second},
		"others are refused":        {func(_ *testing.T, desk *Desk) { fresh++; one(desk, aDelivery(-fresh)) }, time.Second},
		"others fail by themselves": {func(_ *testing.T, desk *Desk) { fresh++; one(desk, aDelivery(2000+fresh)) }, time.Second},
		"a third of them are refused": {func(_ *testing.T, desk *Desk) {
			fresh++
			one(desk, aDelivery(-fresh))
			one(desk, aDelivery(fresh))
			one(desk, aDelivery(fresh))
		}, 30 * time.Second},
		"others are second attempts": {func(_ *testing.T, desk *Desk) {
			fresh++
			d := aDelivery(fresh)
			d.Refusals.refused = true
			one(desk, d)
		}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dead := &grave{}
			desk, _ := newDesk(&stub{answer: func(_ context.Context, batch []Delivery) []error {
				switch seq := int64(batch[0].Seq); {
				case seq == 1 || seq < 0:
					return []error{refused}
				case seq > 2000:
					return []error{errors.New("bad day")}
				}
				return []error{nil}
			}}, dead)
			waits, ended := attempts(t, desk, aDelivery(1), 500, func() { test.between(t, desk) })
			if ended || len(dead.letters) > 0 {
				t.Errorf("ended after %d refusals", len(waits))
			}
			if got := slices.Max(waits); got != test.longest {
				t.Errorf("waited up to %s, want %s", got, test.longest)
			}
		})
	}
}

// TestRefusedInAnOutage: what was refused once before does not wait for longer in an
// outage, and loses no attempt however often it is the probe.
func TestRefusedInAnOutage(t *testing.T) {
	down := false
	desk, _ := newDesk(&stub{answer: func(_ context.Context, batch []Delivery) []error {
		if down || batch[0].Seq == 1 {
			return all(len(batch), Overloaded(0, errors.New("connection refused")))
		}
		return make([]error, len(batch))
	}}, &grave{})
	other := func() { desk.Attempt(t.Context(), []Delivery{aDelivery(2)}) }
	other()
	d := aDelivery(1)
	for range 3 {
		o := desk.Attempt(t.Context(), []Delivery{d})[0]
		d.Refusals = o.Refusals
		other()
	}
	down = true
	for range breakerOpens {
		other()
	}
	waits, ended := attempts(t, desk, d, 1000, other)
	if ended || slices.Max(waits) > 4*time.Second {
		t.Errorf("ended %t, waits up to %s, 4 s as before the outage", ended, slices.Max(waits))
	}
	fresh := aDelivery(3)
	waits, ended = attempts(t, desk, fresh, 1000, other)
	if ended || slices.Max(waits) > 0 {
		t.Errorf("ended %t, waits up to %s though deliveries are held back", ended, slices.Max(waits))
	}
}

// TestRefusedByChance has destinations that refuse a part of all they are sent.
func TestRefusedByChance(t *testing.T) {
	for _, part := range []float64{0.1, 0.3, 0.5, 0.9} {
		dead := &grave{}
		random := rand.New(rand.NewPCG(1, 2))
		desk, _ := newDesk(&stub{answer: func(_ context.Context, batch []Delivery) []error {
			if random.Float64() < part {
				return []error{Overloaded(0, errors.New("503"))}
			}
			return []error{nil}
		}}, dead)
		const n = 20_000
		var waiting []Delivery
		for i := 1; i <= n || len(waiting) > 0; i++ {
			if i <= n {
				waiting = append(waiting, aDelivery(i))
			}
			at := random.IntN(len(waiting))
			d := &waiting[at]
			o := desk.Attempt(t.Context(), []Delivery{*d})[0]
			if o.Counted {
				t.Fatalf("%g refused: an attempt counts after %+v", part, o.Refusals)
			}
			if d.Refusals = o.Refusals; o.Action == Ack {
				waiting = slices.Delete(waiting, at, at+1)
			}
		}
		if len(dead.letters) > 0 {
			t.Errorf("%g refused: %d dead letters", part, len(dead.letters))
		}
	}
}
