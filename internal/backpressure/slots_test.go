package backpressure

import (
	"fmt"
	"testing"
	"time"
)

var slotRules = Rules{Marks: Marks{Low: 800, High: 1000, Max: 2000}}

func (h *hand) ask(tenant, id string) Answer {
	return h.Look(int64(h.now), Ask{Tenant: tenant, ID: id})
}

// refused asks for a message that must be refused, and gives its hint.
func (h *hand) refused(id string) time.Duration {
	h.t.Helper()
	a := h.ask("acme", id)
	if a.OK {
		h.t.Fatalf("%s is admitted at %d", id, h.depth())
	}
	return a.Wait
}

// admit asks for a message that must be admitted, and counts it.
func (h *hand) admit(id string) {
	h.t.Helper()
	if a := h.ask("acme", id); !a.OK {
		h.t.Fatalf("%s is refused at %d for %v", id, h.depth(), a.Wait)
	}
	h.holds++
	n := h.Total() + 1
	h.Backlog.Enter(int64(h.now), Ask{Tenant: "acme", ID: id}, 100)
	h.Confirmed(n, n)
	h.Seen(n)
	h.Outlet(h.holds, 0, 0, 0)
}

// near reports a duration that is more than a hundredth or 2 ms off.
func (h *hand) near(what string, got, want time.Duration) {
	h.t.Helper()
	if (got - want).Abs() > max(want/100, 2*time.Millisecond) {
		h.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func both(t *testing.T, test func(t *testing.T, rules Rules)) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair %v", fair), func(t *testing.T) {
			rules := slotRules
			rules.Fair = fair
			test(t, rules)
		})
	}
}

// fill has acme hold n messages.
func (h *hand) fill(n uint64) {
	for h.depth() < n {
		h.holds++
		seq := h.Total() + 1
		h.Enter(100)
		h.Confirmed(seq, seq)
		h.Seen(seq)
		h.Outlet(h.holds, 0, 0, 0)
	}
}

// drain is hand's, for acme.
func (h *hand) drainAcme(d time.Duration, perSecond float64) {
	was := h.holds
	h.drain(d, perSecond)
	for range was - h.holds {
		h.Settled("acme")
	}
	h.Outlet(h.holds, 0, 0, 0)
}

// Each of the refused has a slot of its own, 1/rate apart, from when LOW is reached.
func TestSlotsAreApart(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		for i := range 50 {
			h.near("hint", h.refused(fmt.Sprint(i)), time.Second+time.Duration(i)*5*time.Millisecond)
		}
		// Asking again early gets the same slot.
		h.drainAcme(500*time.Millisecond, 200)
		for i := range 50 {
			h.near("the same slot", h.refused(fmt.Sprint(i)), 500*time.Millisecond+time.Duration(i)*5*time.Millisecond)
		}
		h.near("a newcomer", h.refused("new"), 500*time.Millisecond+50*5*time.Millisecond)
	})
}

// A promise is kept at its time and not before; who comes for the first time meanwhile
// waits in line.
func TestPromiseIsKept(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		h.refused("a")
		h.refused("b")
		h.drainAcme(990*time.Millisecond, 200)
		h.refused("a")
		h.drainAcme(10*time.Millisecond, 200)
		h.now += time.Millisecond
		if h.Snapshot(int64(h.now)).Pressured {
			t.Fatal("at LOW the level is not normal")
		}
		h.near("a first try at LOW, with promises outstanding", h.refused("c"), minHint)
		h.admit("a")
		if a := h.ask("acme", "a"); a.OK {
			t.Error("a slot was good for two messages")
		}
		h.now += grace - 100*time.Millisecond
		h.admit("b") // late, within the grace
	})
}

// A promise that would take the depth past HIGH is put off.
func TestPromiseYieldsAtHigh(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		wait := h.refused("a")
		h.now += wait + time.Millisecond // nothing was delivered
		h.Outlet(h.holds, 0, 0, 0)
		if again := h.refused("a"); again < minHint {
			t.Errorf("put off for %v", again)
		}
	})
}

// Without ids a due credit of the tenant lets a retry in.
func TestPromiseWithoutAnID(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		for range 3 {
			h.refused("")
		}
		h.drainAcme(980*time.Millisecond, 200)
		h.refused("") // the first is not due; this is the fourth
		h.drainAcme(30*time.Millisecond, 200)
		for range 3 {
			h.admit("")
		}
		h.refused("")
	})
}

// Slots that nobody claims are forgotten and idle nobody.
func TestUnclaimedSlots(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		for i := range 500 {
			h.refused(fmt.Sprint(i))
		}
		h.drainAcme(1200*time.Millisecond, 200)
		h.refused("new") // at 760
		h.drainAcme(250*time.Millisecond, 200)
		h.admit("newer") // below 0.9 of LOW
		h.now += 10 * time.Second
		if s := h.Snapshot(int64(h.now)); s.Slots != 0 || s.Hint != 0 {
			t.Errorf("%d slots, hint %v", s.Slots, s.Hint)
		}
	})
}

// Beyond the horizon hints are spread, and nothing is promised or kept.
func TestBeyondTheHorizon(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		for i := range 11_800 { // 200 a second for 59 s
			h.refused(fmt.Sprint(i))
		}
		kept := h.slots.live
		seen := map[time.Duration]bool{}
		low, high := maxHint, time.Duration(0)
		for i := range 1000 {
			wait := h.refused(fmt.Sprint("late ", i))
			seen[wait] = true
			low, high = min(low, wait), max(high, wait)
		}
		if len(seen) < 990 || low > 31*time.Second || low < maxHint/2 || high < 59*time.Second || high > maxHint {
			t.Errorf("%d different hints from %v to %v", len(seen), low, high)
		}
		if h.slots.live > kept+100 {
			t.Errorf("%d slots, before %d", h.slots.live, kept)
		}
	})
}

// Whose line is much longer than the others' is told to look in when all who wait may be
// through. If others went on meanwhile it waits for its slot, which is kept; if they did
// not, it is let in and nothing idles. Without an id it is told its slot.
func TestLookingInBeforeTheSlot(t *testing.T) {
	const others = 9
	for _, ended := range []bool{true, false} {
		h := newHandBy(t, fairRules)
		for i := range others {
			h.publish(fmt.Sprint("other", i), 100)
		}
		h.fill(1000) // 100 of each, and 200 a second: each has 20 a second
		for i := range others {
			h.ask(fmt.Sprint("other", i), "0")
		}
		var last Answer
		for i := range 200 {
			last = h.ask("acme", fmt.Sprint(i))
		}
		// 280 above 0.9 of LOW and 209 slots are gone in 2.45 s; its 200 slots reach to 11 s.
		h.near("told to look in", last.Wait, 2445*time.Millisecond)
		if last.OK || last.Kept {
			t.Fatalf("%+v", last)
		}
		if a := h.ask("acme", ""); a.Wait < 10*time.Second || !a.Kept {
			t.Errorf("without an id: %+v", a)
		}
		if a := h.ask("acme", "0"); a.Wait > time.Second+time.Millisecond || !a.Kept {
			t.Errorf("the first of the line: %+v", a)
		}
		h.now += last.Wait
		if ended {
			for i := range others {
				h.settle(fmt.Sprint("other", i), 40)
			}
			h.admit("199")
			continue
		}
		again := h.ask("acme", "199")
		if again.OK {
			t.Fatal("let in before others who went on")
		}
		for ; !again.Kept; again = h.ask("acme", "199") {
			h.now += again.Wait
		}
		h.near("its slot", h.now+again.Wait-time.Hour, 1000*time.Millisecond+199*50*time.Millisecond)
		for i := range others {
			h.settle(fmt.Sprint("other", i), 1) // there is room for it, and no more
		}
		h.now += again.Wait
		h.admit("199")
	}
}

// A message that its limits hold back longer than the slot takes none.
func TestLimitsThatWaitLonger(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		for least, slots := range map[time.Duration]int{-1: 0, 2 * time.Second: 0, 100 * time.Millisecond: 1} {
			before := h.slots.live
			a := h.Look(int64(h.now), Ask{Tenant: "acme", ID: least.String(), Least: least})
			h.near("hint", a.Wait, time.Second)
			if h.slots.live-before != slots {
				t.Errorf("limits wait %v: %d slots", least, h.slots.live-before)
			}
		}
	})
}

// What is refused in name only leaves no promise, and the next hint is as if it had not been.
func TestShadowTakesNoSlot(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		for i := range 20 {
			for _, id := range []string{"", fmt.Sprint(i)} {
				a := h.ask("acme", id)
				if a.OK {
					t.Fatal("not refused in name")
				}
				if a.Wait > 1300*time.Millisecond {
					t.Errorf("message %d: hint %v", i, a.Wait)
				}
				h.Backlog.Enter(int64(h.now), Ask{Tenant: "acme", ID: id}, 100)
			}
		}
		if h.slots.live != 0 {
			t.Errorf("%d slots", h.slots.live)
		}
	})
}

// While nobody knows how long nothing is delivered, the hint is as long again as it has
// lasted, says that it is a guess, and promises nothing.
func TestHintWhileStalled(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		h.stalled = true
		for _, c := range []struct{ lasted, least, most time.Duration }{
			{0, 1400 * time.Millisecond, 3 * time.Second},
			{10 * time.Second, 10 * time.Second, 21 * time.Second},
			{time.Minute, 30 * time.Second, maxHint},
			{time.Hour, 30 * time.Second, maxHint},
		} {
			h.now = time.Hour + c.lasted
			for i := range 20 {
				a := h.ask("acme", fmt.Sprint(i))
				if a.OK || !a.Stalled || a.Kept || a.Wait < c.least || a.Wait > c.most {
					t.Errorf("after %v: %+v", c.lasted, a)
				}
			}
		}
		h.pace = 0
		if a := h.ask("acme", "x"); a.OK || a.Wait > maxHint || !a.Stalled {
			t.Errorf("at no pace: %+v", a)
		}
	})
}

// A pause whose end is known is part of the hint, and the promise is kept after it.
func TestHintAcrossAPause(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		h.stalled, h.until = true, h.now+20*time.Second
		h.near("hint", h.refused("a"), 21*time.Second)
		if stay := h.Stay(int64(h.now), "acme"); stay != 25*time.Second {
			t.Errorf("a message stays %v", stay)
		}
		h.now += 20 * time.Second
		h.stalled, h.until = false, 0
		h.Observe(int64(h.now), Readings{Room: -1})
		h.near("the same slot", h.refused("a"), time.Second)
		h.drainAcme(time.Second, 200)
		h.admit("a")
	})
}

// At MAX all are refused, whoever they are and whatever they were promised, with a hint.
func TestAtMax(t *testing.T) {
	both(t, func(t *testing.T, rules Rules) {
		h := newHandBy(t, rules)
		h.fill(1000)
		wait := h.refused("a")
		h.fill(2000)
		h.now += wait
		for _, tenant := range []string{"acme", "globex"} {
			if a := h.ask(tenant, "a"); a.OK || !a.Full || a.Wait < minHint || a.Wait > maxHint {
				t.Errorf("%s at MAX: %+v", tenant, a)
			}
		}
		if wait, full := h.Full(int64(h.now)); !full || wait < minHint || wait > maxHint {
			t.Errorf("full %v, %v", full, wait)
		}
	})
}
