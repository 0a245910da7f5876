package arrivals

import (
	"cmp"
	"container/heap"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Schedule draws the arrivals of the first so long, in order of time. It costs a few
// words a group and a name a tenant, and O(log groups) an arrival.
func (p Pattern) Schedule(length time.Duration) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		coming := make(sources, 0, len(p.Groups))
		for i, g := range p.Groups {
			if s := newSource(g, rand.New(rand.NewPCG(p.Seed, uint64(i)))); s.more {
				s.place = i
				coming = append(coming, s)
			}
		}
		heap.Init(&coming)
		for len(coming) > 0 && coming[0].at < length {
			next := coming[0]
			if !yield(next.arrival()) {
				return
			}
			if next.advance(); next.more {
				heap.Fix(&coming, 0)
			} else {
				heap.Pop(&coming)
			}
		}
	}
}

// sources is a heap: the next to arrive first, of several at an instant the one that is
// written first.
type sources []*source

func (s sources) Len() int { return len(s) }
func (s sources) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].place < s[j].place
}
func (s sources) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *sources) Push(x any)   { *s = append(*s, x.(*source)) }
func (s *sources) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// source draws one group's arrivals.
type source struct {
	Group
	place  int // of the group
	random *rand.Rand
	names  []string
	phase  int
	began  time.Duration // of the phase
	into   float64       // seconds since then of the last arrival drawn by rate
	burst  int           // left of the phase's
	at     time.Duration // the next arrival
	more   bool
}

func newSource(g Group, random *rand.Rand) *source {
	s := &source{Group: g, random: random, more: true}
	s.Topic, s.Bytes = cmp.Or(g.Topic, "orders"), cmp.Or(g.Bytes, 256)
	s.names = []string{g.Tenant}
	if g.Tenants > 1 {
		s.names = make([]string, g.Tenants)
		for i := range s.names {
			s.names[i] = g.Tenant + strconv.Itoa(i+1)
		}
	}
	s.burst = g.Phases[0].Burst
	s.advance()
	return s
}

func (s *source) arrival() Arrival {
	return Arrival{s.at, s.names[s.random.IntN(len(s.names))], s.Topic, s.Bytes}
}

// advance finds the next arrival: what is left of a burst, or the instant at which the
// rate's integral has grown by one, or by what is drawn of the exponential distribution.
func (s *source) advance() {
	if s.takeBurst() {
		return
	}
	want := 1.0
	if s.Spacing != Even {
		want = s.random.ExpFloat64()
	}
	for idle := 0; idle <= len(s.Phases); {
		f := s.Phases[s.phase]
		into, left := f.after(s.into, want)
		if left == 0 {
			s.into = into
			s.at = s.began + time.Duration(into*float64(time.Second))
			return
		}
		idle++
		if left < want {
			idle = 0
		}
		want = left
		if s.phase++; s.phase == len(s.Phases) {
			if !s.Repeat {
				break
			}
			s.phase = 0
		}
		s.began, s.into = s.began+f.For, 0
		if s.burst = s.Phases[s.phase].Burst; s.takeBurst() {
			return
		}
	}
	s.more = false // or nothing comes in any phase
}

func (s *source) takeBurst() bool {
	if s.burst == 0 {
		return false
	}
	s.burst--
	s.at = s.began
	return true
}

// after gives the second of the phase at which so many messages more have come than at
// the second from, or how many of them are left for the next phase.
func (f Phase) after(from, want float64) (at, left float64) {
	length := f.For.Seconds()
	slope := (f.To - f.From) / length
	rate := f.From + slope*from
	rest := (rate + f.To) / 2 * (length - from)
	if rest < want || rest == 0 {
		return 0, want - max(rest, 0)
	}
	// The integral of a line: rate·x + slope/2·x² = want, in the form that loses no digits.
	x := 2 * want / (rate + math.Sqrt(max(0, rate*rate+2*slope*want)))
	return min(from+x, length), 0
}
