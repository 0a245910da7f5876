package algorithms

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// consumer says how long a delivery takes that comes at an instant,
// and whether it is refused. It is asked in the order of time.
type consumer interface {
	deliver(now int64) (took int64, refused bool)
}

// constant takes the same time for each, with some jitter.
type constant struct {
	takes  time.Duration
	random *rand.Rand
}

func (c *constant) deliver(int64) (int64, bool) {
	return int64(float64(c.takes) * (0.8 + 0.4*c.random.Float64())), false
}

// knee works on so many at once, each for the same time; the others queue.
type knee struct {
	takes  time.Duration
	random *rand.Rand
	free   []int64 // when each of them is
}

func (k *knee) deliver(now int64) (int64, bool) {
	first := 0
	for i, at := range k.free {
		if at < k.free[first] {
			first = i
		}
	}
	k.free[first] = max(now, k.free[first]) + int64(float64(k.takes)*(0.8+0.4*k.random.Float64()))
	return k.free[first] - now, false
}

// thrashing takes longer the more it has in flight, beyond so many by the square: its
// throughput falls.
type thrashing struct {
	takes time.Duration
	most  int
	ends  []int64
}

func (c *thrashing) deliver(now int64) (int64, bool) {
	c.ends = slices.DeleteFunc(c.ends, func(at int64) bool { return at <= now })
	over := max(1, float64(len(c.ends)+1)/float64(c.most))
	took := int64(float64(c.takes) * over * over)
	c.ends = append(c.ends, now+took)
	return took, false
}

// metered refuses what is over its rate, which a test may change.
type metered struct {
	perSecond, burst float64
	tokens           float64
	at               int64
}

func (m *metered) deliver(now int64) (int64, bool) {
	m.tokens = min(m.burst, m.tokens+float64(now-m.at)/1e9*m.perSecond)
	m.at = now
	if m.tokens < 1 {
		return int64(2 * time.Millisecond), true
	}
	m.tokens--
	return int64(5 * time.Millisecond), false
}

// away refuses everything for a time; else it is another.
type away struct {
	consumer
	from, until int64
}

func (a *away) deliver(now int64) (int64, bool) {
	if now >= a.from && now < a.until {
		return int64(time.Millisecond), true
	}
	return a.consumer.deliver(now)
}

// ending is a delivery under way.
type ending struct {
	at, started int64
	refused     bool
}

type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// breaker opens after five refusals in a row, for 200 ms and twice as long each time
// up to 3 s, and lets one delivery out after that.
type breaker struct {
	inRow int
	wait  time.Duration
	until int64
}

func (b *breaker) probing(underway int) bool { return b.inRow >= 5 && underway > 0 }

func (b *breaker) record(now int64, refused bool) {
	if !refused {
		*b = breaker{}
	} else if b.inRow++; b.inRow >= 5 {
		b.wait = min(max(2*b.wait, 200*time.Millisecond), 3*time.Second)
		b.until = now + int64(b.wait)
	}
}

// outlet is a shaper in virtual time: an adaptive rate, its departure clock, so many
// in flight at most, and a backlog that never ends unless arrivals says when.
type outlet struct {
	rate        *AdaptiveRate
	clock       *DepartureClock
	consumer    consumer
	concurrency int
	arrivals    func(now int64) (next int64) // the earliest start; nil: at once
	breaker     *breaker                     // nil: none

	now        int64
	underway   endings
	waited     bool
	departures []Departure
	done       []int64 // when each was delivered
	refused    int
	lowered    []int64
	rates      func(now int64, perSecond float64) // called after each answer
}

// run goes on until the given instant.
func (o *outlet) run(until time.Duration) {
	for o.now < int64(until) {
		next := int64(until)
		if len(o.underway) > 0 {
			next = min(next, o.underway[0].at)
		}
		if len(o.underway) < o.concurrency && (o.breaker == nil || !o.breaker.probing(len(o.underway))) {
			at := o.now
			if o.arrivals != nil {
				at = max(at, o.arrivals(o.now))
			}
			if o.breaker != nil {
				at = max(at, o.breaker.until)
			}
			if at > o.now {
				o.waited = false
			} else if wait := o.clock.Wait(o.now); wait > 0 {
				at, o.waited = o.now+int64(wait), true
			} else {
				o.depart()
				continue
			}
			next = min(next, at)
		} else {
			o.waited = false
		}
		o.now = next
		for len(o.underway) > 0 && o.underway[0].at <= o.now {
			o.answer(heap.Pop(&o.underway).(ending))
		}
	}
}

func (o *outlet) depart() {
	o.rate.Depart(o.now, 1, o.waited)
	o.clock.Depart(o.now, 1)
	o.departures = append(o.departures, Departure{At: o.now, N: 1})
	took, refused := o.consumer.deliver(o.now)
	heap.Push(&o.underway, ending{o.now + took, o.now, refused})
	o.follow()
}

func (o *outlet) answer(e ending) {
	s := Answer{Started: e.started, Took: e.at - e.started}
	if e.refused {
		o.refused++
		s.Trouble = RateOverload
	} else {
		o.done = append(o.done, o.now)
		s.Done = 1
	}
	if o.breaker != nil {
		o.breaker.record(o.now, e.refused)
	}
	if o.rate.Observe(o.now, s) {
		o.lowered = append(o.lowered, o.now)
	}
	o.follow()
}

func (o *outlet) follow() {
	if err := o.clock.SetRate(o.rate.Rate()); err != nil {
		panic(err)
	}
	if o.rates != nil {
		o.rates(o.now, o.rate.Rate().PerSecond())
	}
}

// delivered is the rate of what was delivered in a span of time.
func (o *outlet) delivered(from, to time.Duration) float64 {
	n := 0
	for _, at := range o.done {
		if at >= int64(from) && at < int64(to) {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}
