package backpressure

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Each signal has hysteresis of its own, is counted and logged once a change, and tells
// whoever listens.
func TestSignals(t *testing.T) {
	rules := Rules{Marks: Marks{Low: 80, High: 100, Max: 200, MaxBytes: 16 << 20}, HighAge: 10 * time.Second, HighOutage: time.Minute}
	const mib = 1 << 20
	for _, c := range []struct {
		signal                                Signal
		below, at, between, stillBetween, low func(h *hand)
		text                                  []string
	}{
		{
			Depth, holds(99), holds(100), holds(81), holds(99), holds(80),
			[]string{"signal=depth", "value=100", "high=100", "low=80", "depth=100"},
		},
		{
			Bytes, weighs(14*mib - 1), weighs(14 * mib), weighs(12 * mib), weighs(13 * mib), weighs(11 * mib),
			[]string{"signal=bytes", "value=14680064", "high=14680064"},
		},
		{
			Age, observes(Readings{Age: 10*time.Second - 1, Room: -1}), observes(Readings{Age: 10 * time.Second, Room: -1}),
			observes(Readings{Age: 9 * time.Second, Room: -1}), observes(Readings{Age: 8*time.Second + 1, Room: -1}), observes(Readings{Age: 8 * time.Second, Room: -1}),
			[]string{"signal=age", "value=10s", "high=10s", "low=8s"},
		},
		{
			Storage, observes(Readings{Room: mib + 1}), observes(Readings{Room: mib}), observes(Readings{Room: 2*mib - 1}),
			observes(Readings{Room: -1}), observes(Readings{Room: 2 * mib}),
			[]string{"signal=storage", "high=15728640", "low=14680064"},
		},
		{
			Outage, observes(Readings{Outage: time.Minute - 1, Room: -1}), observes(Readings{Outage: time.Minute, Room: -1}),
			observes(Readings{Outage: time.Second, Room: -1}), observes(Readings{Outage: 1, Room: -1}), observes(Readings{Room: -1}),
			[]string{"signal=outage", "value=1m0s", "high=1m0s"},
		},
	} {
		var log bytes.Buffer
		h := newHandBy(t, rules)
		h.log = slog.New(slog.NewTextHandler(&log, nil))
		open := func(what string, want bool) {
			t.Helper()
			h.now += 2 * maxHint // no slot is left
			if _, ok := h.look(); ok != want {
				t.Errorf("%s %s: admits %v", c.signal, what, ok)
			}
			if s := h.Snapshot(int64(h.now)); s.Pressured == want || s.Signals[c.signal].Raised == want || s.Hint > 0 == want {
				t.Errorf("%s %s: %+v", c.signal, what, s)
			}
		}
		heard := func() bool {
			select {
			case <-h.Changed():
				return true
			default:
				return false
			}
		}
		c.below(h)
		open("below its mark", true)
		if heard() || log.Len() > 0 {
			t.Errorf("%s: a change that is none: %s", c.signal, log.String())
		}
		c.at(h)
		if !heard() || heard() {
			t.Errorf("%s: the change is not told once", c.signal)
		}
		open("at its mark", false)
		c.between(h)
		open("between its marks", false)
		c.stillBetween(h)
		open("still between its marks", false)
		c.low(h)
		open("at its low mark", true)
		s := h.Snapshot(int64(h.now)).Signals[c.signal]
		if s.ToPressured != 1 || s.ToNormal != 1 || !heard() {
			t.Errorf("%s: %+v", c.signal, s)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=INFO") {
			t.Fatalf("%s: the log has\n%s", c.signal, log.String())
		}
		for _, want := range c.text {
			if !strings.Contains(lines[0], want) {
				t.Errorf("%s: %s is not in %s", c.signal, want, lines[0])
			}
		}
	}
}

func holds(n uint64) func(*hand) { return func(h *hand) { h.hold(n, 0) } }

func weighs(n uint64) func(*hand) { return func(h *hand) { h.hold(50, 0); h.Stored(50, n) } }

func observes(r Readings) func(*hand) {
	return func(h *hand) { h.hold(50, 0); h.Observe(int64(h.now), r) }
}

// A signal that is off is none, and another one that is raised keeps the pressure.
func TestSignalsTogether(t *testing.T) {
	h := newHandBy(t, Rules{Marks: Marks{Low: 80, High: 100, Max: 200, MaxBytes: 1 << 24}})
	h.Observe(int64(h.now), Readings{Age: time.Hour, Outage: time.Hour, Room: 1 << 40})
	if _, ok := h.look(); !ok {
		t.Error("a signal that is off refuses")
	}
	h.hold(100, 0)
	h.Stored(100, 15<<20)
	h.hold(50, 50)
	if _, ok := h.look(); ok {
		t.Error("admitted by the depth, in spite of the bytes")
	}
	h.Stored(50, 1<<20)
	h.now += 2 * maxHint
	if _, ok := h.look(); !ok {
		t.Error("refused with no signal raised")
	}
}

// The hints of the other signals are the time until they are back at their low marks.
func TestHintsOfOtherSignals(t *testing.T) {
	h := newHandBy(t, Rules{Marks: Marks{Low: 8000, High: 10_000, Max: 20_000, MaxBytes: 16 << 20}, HighAge: 10 * time.Second})
	h.hold(1000, 0)
	h.Observe(int64(h.now), Readings{Age: 16 * time.Second, Room: -1})
	h.wantHint(2500 * time.Millisecond) // half of them are older than 8 s
	h.Observe(int64(h.now), Readings{Room: -1})
	h.now += 2 * maxHint
	h.busySince = int64(h.now)
	h.Stored(1000, 15<<20) // 3.8 of 15 MiB have to go
	h.wantHint(1270 * time.Millisecond)
	h.Observe(int64(h.now), Readings{Room: 0})
	if a := h.Look(int64(h.now), Ask{Tenant: "new"}); a.OK || !a.Stalled || a.Wait > maxHint {
		t.Errorf("with no storage left: %+v", a)
	}
}

// While the disk has no room the snapshot tells the wait that refusals tell, which is drawn
// between half of it and all.
func TestHintWithoutRoomOnDisk(t *testing.T) {
	h := newHandBy(t, Rules{Marks: Marks{Low: 80, High: 100, Max: 200, MaxBytes: 16 << 20}})
	h.Observe(int64(h.now), Readings{Room: 0})
	for range 20 {
		h.now += time.Second
		told, ok := h.look()
		if shown := h.Snapshot(int64(h.now)).Hint; ok || told > shown || 2*told < shown {
			t.Fatalf("admitted %v, told to wait %v; shown %v", ok, told, shown)
		}
	}
}
