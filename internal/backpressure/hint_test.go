package backpressure

import (
	"math"
	"testing"
	"time"
)

var hintMarks = Marks{Low: 800, High: 1000, Max: 2000}

func TestHintAtTheAim(t *testing.T) {
	for _, c := range []struct {
		depth uint64
		pace  float64
		want  time.Duration
	}{
		{1000, 200, time.Second},
		{1200, 200, 2 * time.Second},
		{1000, 100_000, minHint},
		{1000, math.Inf(1), minHint},
	} {
		h := newHand(t, hintMarks)
		h.pace = c.pace
		h.hold(c.depth, 0)
		h.wantHint(c.want)
	}
}

// The hint follows what the consumer really takes, from the second second on, however
// long it was idle before.
func TestHintMeasured(t *testing.T) {
	for _, before := range []struct {
		name string
		past func(*hand)
	}{
		{"fresh", func(*hand) {}},
		{"idle for an hour", func(h *hand) {
			h.hold(1000, 0)
			h.drain(20*time.Second, 200)
			h.now += time.Hour
		}},
		{"idle for two seconds", func(h *hand) {
			h.hold(400, 0)
			h.drain(2*time.Second, 200)
			h.now += 2 * time.Second
		}},
	} {
		for _, busy := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 6 * time.Second, 20 * time.Second} {
			h := newHand(t, hintMarks)
			before.past(h)
			h.hold(3000, 0)
			h.drain(busy, 50)
			over := time.Duration(h.holds-800) * time.Second
			want := min(over/50, maxHint)
			got, ok := h.look()
			if want >= maxHint*99/100 {
				if ok || got < maxHint/2 || got > maxHint {
					t.Errorf("%s, then busy for %v: hint %v beyond the horizon", before.name, busy, got)
				}
			} else if ok || math.Abs(float64(got-want)) > float64(want)/20 {
				t.Errorf("%s, then busy for %v at 50/s of 200/s: hint %v, want about %v", before.name, busy, got, want)
			}
			if stay, want := h.Stay(int64(h.now), "acme"), time.Duration(h.holds)*time.Second/50; math.Abs(float64(stay-want)) > float64(want)/20 {
				t.Errorf("%s, then busy for %v: a message stays %v, want about %v", before.name, busy, stay, want)
			}
		}
	}
}

// A consumer that catches up does not make the hint shorter than the shaper allows.
func TestHintNotFasterThanTheAim(t *testing.T) {
	h := newHand(t, hintMarks)
	h.hold(3000, 0)
	h.drain(5*time.Second, 400)
	h.pace = 100 // just lowered
	h.wantHint(time.Duration(h.holds-800) * time.Second / 100)
}

// At a slow pace the window of the measurement holds no delivery most of the time.
func TestHintAtASlowPace(t *testing.T) {
	h := newHand(t, Marks{Low: 9, High: 10, Max: 20})
	h.pace = 12.0 / 60
	h.hold(10, 0)
	for range 60 {
		h.now += time.Second
		h.hold(10, 0)
		if s := h.Snapshot(int64(h.now)); s.Hint < 4750*time.Millisecond || s.Hint > 5250*time.Millisecond {
			t.Fatalf("hint %v at 12/m, one message above LOW", s.Hint)
		}
		if stay := h.Stay(int64(h.now), "acme"); stay < 45*time.Second || stay > 55*time.Second {
			t.Fatalf("a message stays %v behind 10 at 12/m", stay)
		}
		if int(h.now.Seconds())%5 == 0 {
			h.hold(10, 1)
		}
	}
}

// Nothing is delivered although nothing stalls it: the hint is the longest.
func TestHintWithoutDeliveries(t *testing.T) {
	h := newHand(t, hintMarks)
	h.hold(1000, 0)
	h.drain(10*time.Second, 0)
	if got, ok := h.look(); ok || got < maxHint/2 || got > maxHint {
		t.Errorf("admits %v, hint %v", ok, got)
	}
}

// Who comes back after the hint finds the door open.
func TestHintKept(t *testing.T) {
	for _, pace := range []float64{1, 20, 200, 3000} {
		h := newHand(t, Marks{Low: 80, High: 100, Max: 200})
		h.pace = pace
		h.hold(100, 0)
		for i := 0; ; i++ {
			wait, ok := h.look()
			if ok {
				t.Fatal("the level fell without a wait")
			}
			h.drain(wait.Round(10*time.Millisecond)+10*time.Millisecond, pace)
			if _, ok := h.look(); !ok {
				t.Errorf("%v/s: refused again after the hint of %v, at %d", pace, wait, h.holds)
			}
			if i == 3 {
				break
			}
			h.hold(100, 0)
		}
	}
}

func TestStay(t *testing.T) {
	h := newHand(t, hintMarks)
	if d := h.Stay(int64(h.now), "acme"); d != 0 {
		t.Errorf("with nothing before it a message stays %v", d)
	}
	h.hold(300, 0)
	for range 100 {
		h.Enter(100)
	}
	if d := h.Stay(int64(h.now), "acme"); d != 2*time.Second {
		t.Errorf("behind 400 at 200/s it stays %v", d)
	}
	h.stalled = true
	if d := h.Stay(int64(h.now), "acme"); d < 100*365*24*time.Hour {
		t.Errorf("with nothing delivered it stays %v", d)
	}
	h.stalled, h.pace = false, math.Inf(1)
	if d := h.Stay(int64(h.now), "acme"); d != 0 {
		t.Errorf("at no pace it stays %v", d)
	}
}

func TestSnapshot(t *testing.T) {
	h := newHand(t, hintMarks)
	s := h.Snapshot(int64(h.now))
	if s.DrainTime != 0 || s.TimeToHigh >= 0 || s.Depth() != 0 || s.Marks != hintMarks || s.Admitted != 0 || s.Drained != 0 {
		t.Errorf("empty: %+v", s)
	}

	// 100 a second come in and 50 a second go out, for 10 s.
	for range 1000 {
		h.Enter(100)
		h.drain(10*time.Millisecond, 0)
		h.forwardAll()
		if h.Total()%2 == 0 {
			h.hold(h.holds-1, 1)
		}
	}
	s = h.Snapshot(int64(h.now))
	if s.Depth() != 500 {
		t.Fatalf("depth %d, want 500", s.Depth())
	}
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/20 {
			t.Errorf("%s = %v, want about %v", name, got, want)
		}
	}
	near("admitted", s.Admitted, 100)
	near("drained", s.Drained, 50)
	near("drain time", s.DrainTime.Seconds(), 10)
	near("time to HIGH", s.TimeToHigh.Seconds(), 10)

	h.hold(1500, 0)
	if s = h.Snapshot(int64(h.now)); s.TimeToHigh != 0 || !s.Pressured {
		t.Errorf("above HIGH and growing: %+v", s)
	}
	h.drain(10*time.Second, 100)
	s = h.Snapshot(int64(h.now))
	if s.TimeToHigh >= 0 {
		t.Errorf("shrinking, and HIGH in %v", s.TimeToHigh)
	}
	near("drain time", s.DrainTime.Seconds(), 5)
	h.stalled = true
	if s = h.Snapshot(int64(h.now)); s.DrainTime >= 0 {
		t.Errorf("stalled, and drained in %v", s.DrainTime)
	}
}

// forwardAll confirms and takes in all that was forwarded.
func (h *hand) forwardAll() {
	n := h.Total()
	h.Confirmed(n, n)
	for h.seen < n {
		h.holds++
		h.Seen(h.seen + 1)
	}
}

// Total is how many messages entered.
func (h *hand) Total() uint64 { return h.forwarded }
