package shaper

import (
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// oldestSteps is how many sequences are looked up with the lock held.
const oldestSteps = 4096

// oldest is when the broker stored the message with the lowest sequence, which is the
// oldest: a stream numbers in the order of time. It follows the sequences, so that each is
// looked up once, however many messages and tenants there are; more is true if it must be
// called again to come to an end.
func (x *index) oldest() (at int64, ok, more bool) {
	if x.seqs.used == 0 {
		return 0, false, false
	}
	for range oldestSteps {
		if m := x.find(x.lowest); m != nil {
			return m.at, true, false
		}
		x.lowest++
	}
	return 0, false, true
}

// Oldest is when the broker stored the oldest message of the index, in any state; ok is
// false if there is none.
func (s *Shaper) Oldest() (at time.Time, ok bool) {
	for more := true; more; {
		var ns int64
		s.mu.Lock()
		ns, ok, more = s.index.oldest()
		s.mu.Unlock()
		at = time.Unix(0, ns)
	}
	return at, ok
}

// Lateness counts how late deliveries started.
func (s *Shaper) Lateness() algorithms.SpanCounts { return s.metrics.late.Read() }

// Holding is what a tenant has in the index.
type Holding struct {
	// Messages are all of them, in any state.
	Messages int
	// Oldest is when the broker stored the oldest of those that wait or are delayed; zero
	// if all are in flight.
	Oldest time.Time
}

// Holdings are those of all tenants with messages. It costs a look at each and at the
// delayed.
func (s *Shaper) Holdings() map[string]Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := make(map[uint32]int64)
	for _, d := range s.index.delays {
		m := s.index.slab.at(d.message)
		if at, ok := oldest[m.lane]; !ok || m.at < at {
			oldest[m.lane] = m.at
		}
	}
	tenants := make(map[string]Holding, len(s.index.lanes))
	for name, l := range s.index.lanes {
		if l.messages == 0 {
			continue
		}
		at := oldest[l.flow.ID]
		if l.head != 0 {
			if first := s.index.slab.at(l.head).at; at == 0 || first < at {
				at = first
			}
		}
		h := Holding{Messages: l.messages}
		if at != 0 {
			h.Oldest = time.Unix(0, at)
		}
		tenants[name] = h
	}
	return tenants
}
