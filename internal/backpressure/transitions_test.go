package backpressure

import (
	"slices"
	"testing"
	"time"
)

// Changes are told with their instant, reading and mark; the level is pressured since the
// first signal of those that hold it.
func TestTransitions(t *testing.T) {
	h := newHandBy(t, Rules{Marks: Marks{Low: 80, High: 100, Max: 200, MaxBytes: 16 << 20}, HighAge: 10 * time.Second})
	since := func(want time.Duration) {
		t.Helper()
		if got := h.Snapshot(int64(h.now)).Since; got != int64(want) {
			t.Errorf("pressured since %v, want %v", time.Duration(got), want)
		}
	}
	if totals, list := h.Totals(0); totals.Transitions != 0 || list != nil {
		t.Errorf("at the start %+v %+v", totals, list)
	}
	since(0)
	h.now++
	h.hold(103, 0)
	up := h.now
	h.now += time.Second
	h.Observe(int64(h.now), Readings{Age: 11 * time.Second, Room: -1})
	since(up)
	if depth, raised := h.Pressure(); depth != 103 || !slices.Equal(raised.Names(), []string{"depth", "age"}) {
		t.Errorf("%d %v", depth, raised.Names())
	}
	h.now += time.Second
	h.hold(79, 24)
	since(up)
	first, list := h.Totals(0)
	want := []Transition{
		{At: int64(up), Signal: Depth, Raised: true, Value: 103, Bound: 100},
		{At: int64(up + time.Second), Signal: Age, Raised: true, Value: uint64(11 * time.Second), Bound: uint64(10 * time.Second)},
		{At: int64(up + 2*time.Second), Signal: Depth, Value: 79, Bound: 80},
	}
	if first.Transitions != 3 || !slices.Equal(list, want) {
		t.Errorf("%+v\n%+v, want\n%+v", first, list, want)
	}
	h.Observe(int64(h.now), Readings{Age: time.Second, Room: -1})
	since(0)
	if totals, list := h.Totals(first.Transitions); totals.Transitions != 4 || len(list) != 1 || list[0].Signal != Age || list[0].Raised {
		t.Errorf("%+v %+v", totals, list)
	}
	for range 100 {
		h.now++
		h.hold(100, 0)
		h.hold(80, 0)
	}
	totals, list := h.Totals(4)
	if totals.Transitions != 204 || len(list) != keptTransitions || list[len(list)-1].At != int64(h.now) || list[len(list)-1].Raised {
		t.Errorf("%+v and %d of them", totals, len(list))
	}
}
