package algorithms

import "container/heap"

// FairQueue chooses whose turn it is among flows that share one outlet, each by its
// weight: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Served work
// of cost c moves a flow's tag on by c/weight, and the smallest tag is served next:
//
//	start  = max(virtual time, the flow's last finish)
//	finish = start + cost/weight
//	virtual time = the start of what is being served
//
// So over any time in which two flows have work, what they are served differs from
// their weights by at most one piece of work each; a flow that comes anew waits
// behind at most one piece of each other; having been idle earns nothing; and a flow
// that leaves after costly work and comes back finds its debt still there. Nothing
// needs to be known of the outlet's rate.
//
// Entering, serving and leaving cost O(log flows with work). A flow without work is
// kept only while it has a debt; Rested gives it back when that is over.
//
// It is not safe for concurrent use. The zero FairQueue is empty.
type FairQueue struct {
	virtual tag
	newest  tag // the largest finish
	order   uint64
	active  byStart
	resting byStart // where a flow has its finish, since it was served last
}

// Flow is one of them. The caller keeps it at its address while the queue knows it.
type Flow struct {
	// ID is the caller's name for it.
	ID uint32

	weight uint32
	// part is what finish lacks, in 1/weight of a tag's unit: nothing drifts.
	part   uint32
	start  tag
	finish tag
	order  uint64 // among equal tags: who came first
	place  int    // in the heap it is in, from 1; 0: in none
	rests  bool
	served bool // finish has a meaning
}

// tag is an instant of virtual time. It wraps; those that are compared lie within
// two pieces of work of each other.
type tag uint64

func (t tag) before(other tag) bool { return int64(t-other) < 0 }

func (t tag) latest(other tag) tag {
	if t.before(other) {
		return other
	}
	return t
}

// tagUnit is cost 1 at weight 1: a piece of work at the largest weight moves a flow on,
// and tags of flows that had no work for 2^33 pieces of the largest cost still compare.
const tagUnit = MaxWeight

// MaxCost and MaxWeight bound the cost of one piece of work and a flow's weight.
const (
	MaxCost   = 1 << 20
	MaxWeight = 1000
)

// SetWeight sets a flow's weight, 1 to MaxWeight, for what is served from now on.
func (f *Flow) SetWeight(weight uint32) {
	if weight = min(max(1, weight), MaxWeight); weight != f.weight {
		f.weight, f.part = weight, 0
	}
}

// Enter says that f, which is not among those with work, has some.
func (q *FairQueue) Enter(f *Flow) {
	q.rise(f)
	f.start = q.virtual
	if f.served {
		f.start = f.start.latest(f.finish)
	}
	q.push(f)
}

// Rejoin is Enter for a flow that the caller took out in spite of its work: it keeps
// the turn that it had.
func (q *FairQueue) Rejoin(f *Flow) {
	q.rise(f)
	q.push(f)
}

// rise ends a flow's rest.
func (q *FairQueue) rise(f *Flow) {
	if f.rests {
		heap.Remove(&q.resting, f.place-1)
		f.rests = false
	}
}

func (q *FairQueue) push(f *Flow) {
	q.order++
	f.order = q.order
	heap.Push(&q.active, f)
}

// Next is the flow whose turn it is; nil if none has work.
func (q *FairQueue) Next() *Flow {
	if len(q.active) == 0 {
		return nil
	}
	return q.active[0]
}

// Len is how many flows have work.
func (q *FairQueue) Len() int { return len(q.active) }

// Serve charges f, which has work and keeps it, for work of a cost from 1 to MaxCost,
// and gives it its next turn.
func (q *FairQueue) Serve(f *Flow, cost uint64) {
	q.virtual = q.virtual.latest(f.start)
	total := cost*tagUnit + uint64(f.part)
	weight := uint64(max(1, f.weight))
	f.finish = f.start + tag(total/weight)
	f.part = uint32(total % weight)
	f.start, f.served = f.finish, true
	q.newest = q.newest.latest(f.finish)
	q.order++
	f.order = q.order
	heap.Fix(&q.active, f.place-1)
}

// Leave says that f has no work any more, or none that can be served now.
func (q *FairQueue) Leave(f *Flow) {
	heap.Remove(&q.active, f.place-1)
	if len(q.active) == 0 {
		q.virtual = q.newest // nobody is left to whom a debt could be
	}
}

// Rest has the queue keep f, which has no work, while it has a debt; false: it has
// none, and the caller may forget it.
func (q *FairQueue) Rest(f *Flow) bool {
	if f.rests {
		return true
	}
	if !f.served || !q.virtual.before(f.finish) {
		return false
	}
	f.rests, f.start = true, f.finish
	heap.Push(&q.resting, f)
	return true
}

// Rested gives back a resting flow whose debt is over, which the caller may forget;
// nil if there is none.
func (q *FairQueue) Rested() *Flow {
	if len(q.resting) == 0 || q.virtual.before(q.resting[0].finish) {
		return nil
	}
	f := heap.Pop(&q.resting).(*Flow)
	f.rests = false
	return f
}

// Ahead calls f with flows in the order of their turns as they would come if each had
// work enough, until it returns false: what leaves next can be made ready. cost is
// what the flow's n-th piece from now would be charged; ok is false if there is none.
// It costs O(n log n) for n calls.
func (q *FairQueue) Ahead(cost func(f *Flow, n int) (uint64, bool), f func(f *Flow, n int) bool) {
	if len(q.active) == 0 {
		return
	}
	turns := turnHeap{{at: q.active[0].start, order: q.active[0].order, place: 0}}
	for len(turns) > 0 {
		t := heap.Pop(&turns).(turn)
		flow := q.active[t.place]
		c, ok := cost(flow, t.n)
		if !ok {
			continue
		}
		if !f(flow, t.n) {
			return
		}
		if t.n == 0 { // the flows below it in the heap come no sooner than it does
			for _, child := range [2]int{2*t.place + 1, 2*t.place + 2} {
				if child < len(q.active) {
					heap.Push(&turns, turn{at: q.active[child].start, order: q.active[child].order, place: child})
				}
			}
		}
		heap.Push(&turns, turn{at: t.at + tag(c*tagUnit/uint64(max(1, flow.weight))), order: t.order, place: t.place, n: t.n + 1})
	}
}

// turn is a flow's n-th from now.
type turn struct {
	at    tag
	order uint64
	place int
	n     int
}

type turnHeap []turn

func (h turnHeap) Len() int { return len(h) }
func (h turnHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at.before(h[j].at)
	}
	return h[i].order < h[j].order
}
func (h turnHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *turnHeap) Push(x any)   { *h = append(*h, x.(turn)) }
func (h *turnHeap) Pop() any {
	t := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return t
}

type byStart []*Flow

func (h byStart) Len() int { return len(h) }
func (h byStart) Less(i, j int) bool {
	if h[i].start != h[j].start {
		return h[i].start.before(h[j].start)
	}
	return h[i].order < h[j].order
}
func (h byStart) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}
func (h *byStart) Push(x any) {
	f := x.(*Flow)
	*h = append(*h, f)
	f.place = len(*h)
}
func (h *byStart) Pop() any {
	f := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	f.place = 0
	return f
}
