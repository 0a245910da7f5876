package algorithms

import (
	"testing"

	"pgregory.net/rapid"
)

func TestHysteresisAtItsThresholds(t *testing.T) {
	h := Hysteresis{High: 100, Low: 60}
	for i, step := range []struct {
		reading            uint64
		pressured, changed bool
	}{
		{0, false, false}, {60, false, false}, {99, false, false}, // below high: as it was
		{100, true, true}, // at high: pressured
		{99, true, false}, {105, true, false}, {61, true, false},
		{60, false, true}, // at low: normal again
		{61, false, false}, {99, false, false}, {1000, true, true}, {0, false, true},
	} {
		pressured, changed := h.Update(step.reading)
		if pressured != step.pressured || changed != step.changed || h.Pressured() != pressured {
			t.Errorf("reading %d, %d: pressured %v, changed %v; want %v, %v", i, step.reading, pressured, changed, step.pressured, step.changed)
		}
	}
}

// Load that holds the depth around the high mark makes one change, not one a
// message; and whatever happened, an empty backlog is no pressure.
func TestHysteresisDoesNotFlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Uint64Range(0, 1000).Draw(t, "low")
		high := low + rapid.Uint64Range(1, 1000).Draw(t, "band")
		h := Hysteresis{High: high, Low: low}
		changes := 0
		for _, v := range rapid.SliceOf(rapid.Uint64Range(low+1, high+100)).Draw(t, "readings") {
			pressured, changed := h.Update(v)
			if changed {
				changes++
			}
			if v >= high && !pressured {
				t.Fatalf("no pressure at %d, high is %d", v, high)
			}
		}
		if changes > 1 {
			t.Fatalf("%d changes though the low mark was never reached", changes)
		}
		if pressured, _ := h.Update(low); pressured {
			t.Fatal("pressured at the low mark")
		}
		if pressured, changed := h.Update(0); pressured || changed {
			t.Fatal("pressured with nothing waiting")
		}
	})
}
