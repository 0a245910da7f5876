package backpressure

import (
	"log/slog"
	"math"
	"testing"
	"time"
)

// hand is a backlog whose clock, pace and outlet a test holds in its hand.
type hand struct {
	*Backlog
	t       testing.TB
	now     time.Duration
	pace    float64
	stalled bool
	until   time.Duration // the end of the stall, if it is known
	holds   uint64        // messages waiting in the outlet
}

func newHand(t testing.TB, marks Marks) *hand { return newHandBy(t, Rules{Marks: marks}) }

func newHandBy(t testing.TB, rules Rules) *hand {
	h := &hand{t: t, now: time.Hour, pace: 200}
	h.Backlog = New(rules, Deps{
		Clock:   func() int64 { return int64(h.now) },
		Rate:    func() float64 { return h.pace },
		Stalled: func() (int64, bool) { return int64(h.until), h.stalled },
		Logger:  slog.New(slog.DiscardHandler),
	})
	return h
}

// Enter counts a message that was admitted now.
func (h *hand) Enter(bytes int) { h.Backlog.Enter(int64(h.now), acme, bytes) }

// acme has no ids.
var acme = Ask{Tenant: "acme"}

// Seen counts a message of acme.
func (h *hand) Seen(seq uint64) { h.Backlog.Seen(seq, acme.Tenant) }

// hold has the outlet hold n messages, of which so many were just finished.
func (h *hand) hold(n, finished uint64) {
	h.holds = n
	h.Outlet(n, 0, 0, finished)
}

// drain lets time pass in steps while the outlet finishes so many a second.
func (h *hand) drain(d time.Duration, perSecond float64) {
	const step = 10 * time.Millisecond
	due := 0.0
	for end := h.now + d; h.now < end; {
		h.now += step
		due += perSecond * step.Seconds()
		n := min(uint64(due), h.holds)
		due -= float64(n)
		h.hold(h.holds-n, n)
	}
}

func (h *hand) depth() uint64 { return h.Snapshot(int64(h.now)).Depth() }

func (h *hand) wantDepth(n uint64) {
	h.t.Helper()
	if d := h.depth(); d != n {
		h.t.Errorf("depth %d, want %d", d, n)
	}
}

// look asks for admission now.
func (h *hand) look() (time.Duration, bool) {
	a := h.Look(int64(h.now), acme)
	return a.Wait, a.OK
}

// wantHint checks that a message is refused with a hint within a twentieth of want.
func (h *hand) wantHint(want time.Duration) {
	h.t.Helper()
	got, ok := h.look()
	if ok {
		h.t.Fatal("admitted")
	}
	if math.Abs(float64(got-want)) > float64(want)/20 {
		h.t.Errorf("hint %v, want about %v", got, want)
	}
}
