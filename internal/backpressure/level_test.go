package backpressure

import (
	"testing"
	"time"
)

// Each admission is decided on the depth that the one before left: a burst between
// two looks of anyone else's cannot slip past.
func TestBurstStopsAtHigh(t *testing.T) {
	h := newHand(t, Marks{Low: 80, High: 100, Max: 200})
	admitted := 0
	for range 50_000 {
		if _, ok := h.look(); ok {
			h.Enter(100)
			admitted++
		}
	}
	if admitted != 100 {
		t.Errorf("admitted %d of a burst, want 100", admitted)
	}
	h.wantDepth(100)
}

func TestHysteresis(t *testing.T) {
	h := newHand(t, Marks{Low: 80, High: 100, Max: 200})
	for _, step := range []struct {
		depth uint64
		open  bool
	}{
		{0, true},
		{79, true},
		{99, true},
		{100, false}, // at HIGH
		{99, false},
		{81, false},
		{80, true}, // at LOW
		{81, true},
		{99, true}, // nobody has a place any more
		{250, false},
		{81, false},
		{0, true},
	} {
		h.hold(step.depth, 0)
		h.now += maxHint + grace + time.Second // no slot is left
		if _, ok := h.look(); ok != step.open {
			t.Errorf("at %d: admits %v, want %v", step.depth, ok, step.open)
		}
	}
	s := h.Snapshot(int64(h.now))
	if s.Signals[Depth].ToPressured != 2 || s.Signals[Depth].ToNormal != 2 || s.Pressured {
		t.Errorf("%d times pressured, %d times normal, now %v; want 2, 2, false", s.Signals[Depth].ToPressured, s.Signals[Depth].ToNormal, s.Pressured)
	}
}

// A load that stays around HIGH changes the level once, not with every message.
func TestNoFlapping(t *testing.T) {
	h := newHand(t, Marks{Low: 60, High: 100, Max: 200})
	for i := range 10_000 {
		h.hold(uint64(95+i%11), 0)
	}
	if s := h.Snapshot(int64(h.now)); s.Signals[Depth].ToPressured != 1 || s.Signals[Depth].ToNormal != 0 {
		t.Errorf("%d times pressured, %d times normal", s.Signals[Depth].ToPressured, s.Signals[Depth].ToNormal)
	}
}

func TestEmptyBacklogIsNeverPressured(t *testing.T) {
	for high := range uint64(5) {
		h := newHand(t, Marks{Low: 0, High: high + 1, Max: high + 1})
		h.hold(high+1, 0)
		if _, ok := h.look(); ok {
			t.Errorf("HIGH=%d: admits at HIGH", high+1)
		}
		h.hold(0, high+1)
		if _, ok := h.look(); !ok {
			t.Errorf("HIGH=%d: refuses with nothing in the backlog", high+1)
		}
	}
}

func TestMaxWithoutPressure(t *testing.T) {
	h := newHand(t, Marks{Low: 80, High: 100, Max: 50})
	h.hold(49, 0)
	if _, ok := h.look(); !ok {
		t.Error("refused below MAX")
	}
	h.hold(50, 0)
	if wait, ok := h.look(); ok || wait != minHint {
		t.Errorf("at MAX: admits %v, hint %v", ok, wait)
	}
	if h.Snapshot(int64(h.now)).Pressured {
		t.Error("MAX alone changed the level")
	}
}

// What is in flight and what waits for a retry holds its place.
func TestDepthCountsAllStates(t *testing.T) {
	h := newHand(t, Marks{Low: 8, High: 10, Max: 20})
	h.Outlet(2, 3, 4, 0)
	h.wantDepth(9)
	if _, ok := h.look(); !ok {
		t.Error("refused at 9")
	}
	h.Enter(100)
	if _, ok := h.look(); ok {
		t.Error("admitted at 10")
	}
	s := h.Snapshot(int64(h.now))
	if s.Waiting != 3 || s.Unseen != 1 || s.InFlight != 3 || s.Delayed != 4 {
		t.Errorf("%+v", s)
	}
}

// A message's way, step by step, with the depth a user would see after each.
func TestDepthFormula(t *testing.T) {
	h := newHand(t, Marks{Low: 80, High: 100, Max: 200})
	for range 5 {
		h.Enter(100)
	}
	h.wantDepth(5)
	h.Seen(1) // before any confirmation
	h.Seen(2)
	h.wantDepth(5)
	h.Confirmed(5, 3) // two of them were duplicates
	h.wantDepth(3)
	h.Seen(3)
	h.wantDepth(3)
	h.Outlet(2, 0, 0, 1)
	h.wantDepth(2)
	h.Confirmed(5, 3) // nothing new
	h.wantDepth(2)
	h.Confirmed(3, 2) // one that comes late says nothing
	h.wantDepth(2)
	h.Outlet(0, 0, 0, 2)
	h.wantDepth(0)
	h.Seen(4) // the outlet is faster than the front door's count
	h.wantDepth(1)
	h.Enter(100)
	h.wantDepth(1)
	h.Skipped(5) // a canary
	h.Confirmed(6, 5)
	h.Outlet(0, 0, 0, 1)
	h.wantDepth(0)
}

// A gateway that starts on a stream with messages is as full as the stream.
func TestStartWithMessages(t *testing.T) {
	h := newHand(t, Marks{Low: 80, High: 100, Max: 200})
	h.Start(5000, 120) // most of what there was is delivered
	h.wantDepth(120)
	if _, ok := h.look(); ok {
		t.Error("admits, with 120 messages in the stream")
	}
	for i := range uint64(120) {
		h.Seen(4000 + i)
		h.wantDepth(120)
	}
	h.hold(80, 40)
	h.wantDepth(80)
	h.now += maxHint // nobody came for the slot
	if _, ok := h.look(); !ok {
		t.Error("refuses at LOW")
	}
	h.Enter(100)
	h.wantDepth(81)
	h.Confirmed(1, 5001)
	h.wantDepth(81)
	h.Seen(5001)
	h.wantDepth(81)
}

// Messages that were deleted before the outlet saw them are gone once it has seen all
// that is there.
func TestDeletedUnseen(t *testing.T) {
	h := newHand(t, Marks{Low: 80, High: 100, Max: 200})
	h.Start(50, 50)
	for seq := range uint64(10) {
		h.Seen(seq + 1)
	}
	h.Enter(100)
	h.Enter(100)
	h.Confirmed(2, 52)
	h.wantDepth(52)
	h.CaughtUp(52) // purged: 11 to 52 are no more
	h.wantDepth(10)
	h.Enter(100)
	h.Confirmed(3, 53)
	h.wantDepth(11)
}
