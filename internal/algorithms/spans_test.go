package algorithms

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSpansStep(t *testing.T) {
	bounds := SpanBounds()
	if !slices.IsSorted(bounds) || bounds[0] != 10*time.Microsecond || bounds[len(bounds)-1] < 20*time.Second {
		t.Fatalf("bounds %v", bounds)
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-10, int64(time.Minute)).Draw(t, "d"))
		if rapid.Bool().Draw(t, "edge") {
			d = rapid.SampledFrom(bounds).Draw(t, "bound") + time.Duration(rapid.IntRange(-1, 1).Draw(t, "off"))
		}
		want, _ := slices.BinarySearch(bounds, d)
		var s Spans
		s.Add(d, 3)
		if c := s.Read(); c[want] != 3 || c.Total() != 3 {
			t.Fatalf("%v is not in step %d: %v", d, want, c)
		}
	})
}

func TestSpansQuantile(t *testing.T) {
	if _, ok := (SpanCounts{}).Quantile(0.5); ok {
		t.Error("a quantile of nothing")
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(1, int64(20*time.Second)), 1, 200).Draw(t, "all")
		q := rapid.SampledFrom([]float64{0, 0.5, 0.95, 0.99, 1}).Draw(t, "q")
		var s Spans
		s.Add(time.Millisecond, 7)
		before := s.Read()
		for _, d := range all {
			s.Add(time.Duration(d), 1)
		}
		slices.Sort(all)
		exact := time.Duration(all[max(0, min(len(all)-1, int(q*float64(len(all))+0.999999)-1))])
		got, ok := s.Read().Since(before).Quantile(q)
		if !ok || float64(got) > 1.415*float64(max(exact, 10*time.Microsecond)) || float64(got) < float64(exact)/1.415 && exact > 10*time.Microsecond {
			t.Fatalf("%v quantile of %v: %v, exactly %v", q, all, got, exact)
		}
	})
}
