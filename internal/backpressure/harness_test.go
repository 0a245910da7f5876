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
	holds   uint64 // messages waiting in the outlet
}

func newHand(t testing.TB, marks Marks) *hand {
	h := &hand{t: t, now: time.Hour, pace: 200}
	h.Backlog = New(marks, Deps{
		Clock:   func() int64 { return int64(h.now) },
		Rate:    func() float64 { return h.pace },
		Stalled: func() bool { return h.stalled },
		Logger:  slog.New(slog.DiscardHandler),
	})
	return h
}

// Enter counts a message that was admitted now.
func (h *hand) Enter(bytes int) { h.Backlog.Enter(int64(h.now), bytes) }

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
	wait, ok, _ := h.Look(int64(h.now))
	return wait, ok
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
