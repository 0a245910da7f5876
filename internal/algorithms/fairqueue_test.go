package algorithms

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// served is how often each flow is chosen in n turns while all have work.
func served(q *FairQueue, n int) map[uint32]int {
	counts := map[uint32]int{}
	for range n {
		f := q.Next()
		q.Serve(f, 1)
		counts[f.ID]++
	}
	return counts
}

func flows(q *FairQueue, weights ...uint32) []*Flow {
	all := make([]*Flow, len(weights))
	for i, w := range weights {
		all[i] = &Flow{ID: uint32(i)}
		all[i].SetWeight(w)
		q.Enter(all[i])
	}
	return all
}

func TestFairQueueWeights(t *testing.T) {
	for _, weights := range [][]uint32{{1, 1}, {5, 3, 2}, {1, 1000}, {7, 7, 7, 1}, {999, 1000, 1}} {
		var q FairQueue
		flows(&q, weights...)
		const n = 100_000
		counts := served(&q, n)
		var total float64
		for _, w := range weights {
			total += float64(w)
		}
		for i, w := range weights {
			want := n * float64(w) / total
			if got := float64(counts[uint32(i)]); math.Abs(got-want) > 2 {
				t.Errorf("weights %v: flow %d was served %.0f times, want %.1f", weights, i, got, want)
			}
		}
	}
}

// Costs count, not pieces: a flow of pieces of 100 is served a hundredth as often.
func TestFairQueueCosts(t *testing.T) {
	var q FairQueue
	flows(&q, 1, 1)
	var work [2]uint64
	for range 10_100 {
		f := q.Next()
		cost := uint64(1)
		if f.ID == 1 {
			cost = 100
		}
		work[f.ID] += cost
		q.Serve(f, cost)
	}
	if d := int64(work[0]) - int64(work[1]); d < -100 || d > 100 {
		t.Errorf("the flows were served %d and %d", work[0], work[1])
	}
}

// Between any two flows that have work all the time, what they are served differs by
// at most a piece of each, over every interval: the paper's theorem 1.
func TestFairQueueBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q FairQueue
		a, b := &Flow{ID: 0}, &Flow{ID: 1}
		wa, wb := rapid.Uint32Range(1, 1000).Draw(t, "weight"), rapid.Uint32Range(1, 1000).Draw(t, "weight")
		a.SetWeight(wa)
		b.SetWeight(wb)
		q.Enter(a)
		q.Enter(b)
		const most = 50
		// Others come and go.
		others := make([]*Flow, 4)
		for i := range others {
			others[i] = &Flow{ID: uint32(2 + i)}
			others[i].SetWeight(rapid.Uint32Range(1, 1000).Draw(t, "weight"))
		}
		in := map[*Flow]bool{}
		var workA, workB, highest, lowest float64 // normalised; the extremes of a-b
		for range rapid.IntRange(1, 300).Draw(t, "turns") {
			if o := others[rapid.IntRange(0, len(others)-1).Draw(t, "other")]; rapid.IntRange(0, 4).Draw(t, "moves") == 0 {
				if in[o] {
					q.Leave(o)
					q.Rest(o)
				} else {
					q.Enter(o)
				}
				in[o] = !in[o]
			}
			f := q.Next()
			cost := rapid.Uint64Range(1, most).Draw(t, "cost")
			q.Serve(f, cost)
			switch f {
			case a:
				workA += float64(cost) / float64(wa)
			case b:
				workB += float64(cost) / float64(wb)
			}
			highest, lowest = max(highest, workA-workB), min(lowest, workA-workB)
			for r := q.Rested(); r != nil; r = q.Rested() {
				if r == a || r == b || in[r] {
					t.Fatalf("flow %d has work and was given back", r.ID)
				}
			}
		}
		if bound := most/float64(wa) + most/float64(wb) + 1e-9; highest-lowest > bound+2./tagUnit {
			t.Fatalf("the flows differ by %g over an interval, at most %g is promised", highest-lowest, bound)
		}
	})
}

// A flow that comes anew, or after having been idle, waits for one piece of each other.
func TestFairQueueNewcomer(t *testing.T) {
	for _, n := range []int{1, 100, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var q FairQueue
			for i := range n {
				f := &Flow{ID: uint32(i)}
				f.SetWeight(1)
				q.Enter(f)
			}
			for range 3*n + n/2 { // in the middle of a round
				q.Serve(q.Next(), 1)
			}
			late := &Flow{ID: math.MaxUint32}
			late.SetWeight(1)
			q.Enter(late)
			before := map[uint32]int{}
			for q.Next() != late {
				f := q.Next()
				if before[f.ID]++; before[f.ID] > 1 {
					t.Fatalf("flow %d was served twice before the newcomer", f.ID)
				}
				q.Serve(f, 1)
			}
			if len(before) > n {
				t.Errorf("%d were served before it", len(before))
			}
		})
	}
}

// Whoever leaves after a costly piece does not come back as if new.
func TestFairQueueDebt(t *testing.T) {
	var q FairQueue
	flows(&q, 1)
	sly := &Flow{ID: 1}
	sly.SetWeight(1)
	work := uint64(0)
	const turns = 10_000
	in := false
	for range turns {
		if !in { // it is back at once, each time
			q.Enter(sly)
			in = true
		}
		f := q.Next()
		if f != sly {
			q.Serve(f, 1)
		} else {
			q.Serve(f, 100)
			work += 100
			q.Leave(f)
			q.Rest(f)
			in = false
		}
	}
	other := turns - work/100
	if work > other+101 {
		t.Errorf("it was served %d while the other was served %d", work, other)
	}
}

// A flow is kept only while it has a debt: when nobody else has work there is none.
func TestFairQueueForgets(t *testing.T) {
	var q FairQueue
	all := flows(&q, 1, 1, 1)
	for _, f := range all {
		q.Serve(f, 10)
	}
	q.Leave(all[0])
	if !q.Rest(all[0]) {
		t.Error("a debt was forgotten while others have work")
	}
	for q.Next().start.before(all[0].finish) {
		q.Serve(q.Next(), 10)
	}
	q.Serve(q.Next(), 10)
	if q.Rested() != all[0] || q.Rested() != nil {
		t.Error("the debt is over and the flow was not given back")
	}
	q.Leave(all[1])
	q.Leave(all[2])
	if q.Rest(all[1]) || q.Rest(all[2]) {
		t.Error("without anybody there is no debt")
	}
}

// What the queue tells of the turns to come is what comes.
func TestFairQueueAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q FairQueue
		pieces := map[uint32][]uint64{}
		for i := range rapid.IntRange(1, 12).Draw(t, "flows") {
			f := &Flow{ID: uint32(i)}
			f.SetWeight(rapid.Uint32Range(1, 5).Draw(t, "weight"))
			pieces[f.ID] = rapid.SliceOfN(rapid.Uint64Range(1, 9), 1, 6).Draw(t, "costs")
			q.Enter(f)
		}
		type one struct {
			flow uint32
			n    int
		}
		n := rapid.IntRange(1, 30).Draw(t, "n")
		var told []one
		q.Ahead(func(f *Flow, i int) (uint64, bool) {
			if i >= len(pieces[f.ID]) {
				return 0, false
			}
			return pieces[f.ID][i], true
		}, func(f *Flow, i int) bool {
			told = append(told, one{f.ID, i})
			return len(told) < n
		})
		next := map[uint32]int{}
		start := map[one]tag{}
		var came []tag
		for range told {
			f := q.Next()
			at := one{f.ID, next[f.ID]}
			start[at] = f.start
			came = append(came, f.start)
			q.Serve(f, pieces[f.ID][next[f.ID]])
			if next[f.ID]++; next[f.ID] == len(pieces[f.ID]) {
				q.Leave(f)
			}
		}
		for i, o := range told { // equal tags may come in another order
			if at, ok := start[o]; ok && at != came[i] {
				t.Fatalf("turn %d was told to be flow %d's piece %d", i, o.flow, o.n)
			}
		}
	})
}

// Kubernetes' cases for fair queueing (KEP-1040), with the outlet's rate in place of
// its seats: flows that want the same get the same; one that wants less than its part
// gets all it wants, and the rest share what is left.
func TestFairQueueMaxMin(t *testing.T) {
	for name, test := range map[string]struct {
		weights []uint32
		demand  []float64 // of the outlet's rate, each
		want    []float64
	}{
		"equal":             {[]uint32{1, 1, 1}, []float64{1, 1, 1}, []float64{1. / 3, 1. / 3, 1. / 3}},
		"one modest":        {[]uint32{1, 1}, []float64{.2, 1}, []float64{.2, .8}},
		"two modest":        {[]uint32{1, 1, 1, 1}, []float64{.1, .2, 1, 1}, []float64{.1, .2, .35, .35}},
		"one greedy":        {[]uint32{1, 1}, []float64{.4, 30}, []float64{.4, .6}},
		"room for all":      {[]uint32{1, 1, 1}, []float64{.2, .3, .1}, []float64{.2, .3, .1}},
		"by weight":         {[]uint32{5, 3, 2}, []float64{1, 1, 1}, []float64{.5, .3, .2}},
		"modest and weight": {[]uint32{5, 3, 2}, []float64{.1, 1, 1}, []float64{.1, .54, .36}},
		"alone":             {[]uint32{1}, []float64{3}, []float64{1}},
	} {
		var q FairQueue
		const slots = 50_000
		random := rand.New(rand.NewPCG(1, 2))
		all := make([]*Flow, len(test.weights))
		waiting, got := make([]int, len(all)), make([]float64, len(all))
		for i, w := range test.weights {
			all[i] = &Flow{ID: uint32(i)}
			all[i].SetWeight(w)
		}
		for range slots {
			for i, d := range test.demand {
				n := int(d)
				if random.Float64() < d-float64(n) {
					n++
				}
				if n > 0 && waiting[i] == 0 {
					q.Enter(all[i])
				}
				waiting[i] += n
			}
			f := q.Next()
			if f == nil {
				continue
			}
			q.Serve(f, 1)
			got[f.ID]++
			if waiting[f.ID]--; waiting[f.ID] == 0 {
				q.Leave(f)
				q.Rest(f)
			}
			for q.Rested() != nil {
			}
		}
		for i := range all {
			if share := got[i] / slots; math.Abs(share-test.want[i]) > .01 {
				t.Errorf("%s: flow %d got %.3f of the outlet, want %.3f", name, i, share, test.want[i])
			}
		}
	}
}

// Tags wrap, and nobody notices.
func TestFairQueueWraps(t *testing.T) {
	q := FairQueue{virtual: math.MaxUint64 - 5*tagUnit, newest: math.MaxUint64 - 5*tagUnit}
	flows(&q, 1, 2)
	if counts := served(&q, 3000); counts[0] != 1000 || counts[1] != 2000 {
		t.Errorf("over the wrap the flows were served %v", counts)
	}
}

func BenchmarkFairQueue(b *testing.B) {
	for _, n := range []int{1, 100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var q FairQueue
			for i := range n {
				f := &Flow{ID: uint32(i)}
				f.SetWeight(uint32(1 + i%7))
				q.Enter(f)
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Serve(q.Next(), 1)
			}
		})
	}
}
