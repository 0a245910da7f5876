package backpressure

import "strings"

// tenants are those with messages in the backlog, or with slots. Whoever has neither is
// not kept. Everything is O(1) a message.
//
// Forwarded messages that the outlet has not seen are counted by tenant too, and some of
// them never arrive, duplicates above all. So they are counted in two generations: once
// the outlet has seen all that the stream had when a canary confirmed the older one,
// whatever is left of that never comes and is taken off. The error is the duplicates of
// two generations; a generation lasts as long as the outlet is behind, 20 ms at least.
type tenants struct {
	high, low uint64

	named    map[string]*tenant
	numbered []*tenant
	spare    []uint32
	weights  map[string]uint32
	weight   uint64 // of those with messages
	messages uint64 // of all
	// entered are those with messages forwarded and not seen, by generation, the older
	// one first.
	entered [2][]*tenant
	over    []*tenant
	// overWeight is theirs.
	overWeight uint64
}

// tenant is one of them.
type tenant struct {
	name   string
	id     uint32
	place  int32  // in over, from 1
	held   uint64 // messages that the outlet has
	ahead  [2]uint32
	listed [2]bool // in entered
	slots  uint32
	weight uint32
	// over: it reached its part of HIGH, and is not below 0.9 of its part of LOW. open: of
	// one that is over, it was back at its part of LOW and has not reached that of HIGH.
	over, open bool
	// alone: it is the account of all, which shares with nobody.
	alone bool
	// line is the last instant that was promised to it, or at which it claimed one.
	line int64
	// own is the last instant that it was told to come back because of its own messages.
	own int64
}

// messages is how many of the backlog are its own.
func (t *tenant) messages() uint64 { return t.held + uint64(t.ahead[0]) + uint64(t.ahead[1]) }

func newTenants(high, low uint64) tenants {
	return tenants{high: high, low: low, named: map[string]*tenant{}}
}

// find is nil for a tenant without messages and slots.
func (s *tenants) find(name string) *tenant { return s.named[name] }

// of makes a tenant that is not there.
func (s *tenants) of(name string) *tenant {
	if t := s.named[name]; t != nil {
		return t
	}
	t := &tenant{name: strings.Clone(name), weight: s.weightOf(name)}
	if n := len(s.spare); n > 0 {
		t.id, s.spare = s.spare[n-1], s.spare[:n-1]
		s.numbered[t.id] = t
	} else {
		t.id = uint32(len(s.numbered))
		s.numbered = append(s.numbered, t)
	}
	s.named[t.name] = t
	return t
}

func (s *tenants) weightOf(name string) uint32 { return max(1, s.weights[name]) }

// enter counts a message forwarded.
func (s *tenants) enter(name string) *tenant {
	t := s.of(name)
	s.more(t)
	t.ahead[1]++
	if !t.listed[1] {
		t.listed[1] = true
		s.entered[1] = append(s.entered[1], t)
	}
	s.rate(t)
	return t
}

// seen counts a message that the outlet took in.
func (s *tenants) seen(name string) {
	t := s.of(name)
	switch {
	case t.ahead[0] > 0:
		t.ahead[0]--
	case t.ahead[1] > 0:
		t.ahead[1]--
	default:
		s.more(t)
	}
	t.held++
	s.rate(t)
}

// more is called before t gets a message more.
func (s *tenants) more(t *tenant) {
	if s.messages++; t.messages() == 0 {
		s.weight += uint64(t.weight)
	}
}

// settled counts a message that the outlet is done with.
func (s *tenants) settled(name string) {
	if t := s.named[name]; t != nil && t.held > 0 {
		t.held--
		s.less(t, 1)
	}
}

// less is called after t lost n messages.
func (s *tenants) less(t *tenant, n uint32) {
	if s.messages -= uint64(n); t.messages() == 0 {
		s.weight -= uint64(t.weight)
	}
	s.leave(t)
}

// unslot takes a slot off t.
func (s *tenants) unslot(t *tenant) {
	t.slots--
	s.leave(t)
}

// leave forgets t if nothing is left of it.
func (s *tenants) leave(t *tenant) {
	if t.messages() > 0 || t.slots > 0 {
		if t.over {
			s.rate(t)
		}
		return
	}
	s.setOver(t, false)
	delete(s.named, t.name)
	s.numbered[t.id] = nil
	s.spare = append(s.spare, t.id)
	if len(s.named) == 0 {
		s.named, s.numbered, s.spare, s.over = map[string]*tenant{}, nil, nil, nil
	}
}

// turn begins a new generation: what is left of the older one never comes.
func (s *tenants) turn() {
	for _, t := range s.entered[0] {
		t.listed[0] = false
		if n := t.ahead[0]; n > 0 {
			t.ahead[0] = 0
			s.less(t, n)
		}
	}
	clear(s.entered[0])
	s.entered[0], s.entered[1] = s.entered[1], s.entered[0][:0]
	for _, t := range s.entered[0] {
		t.ahead[0], t.ahead[1] = t.ahead[1], 0
		t.listed[0], t.listed[1] = t.listed[1], false
	}
}

// none says that nothing is forwarded and not seen.
func (s *tenants) none() {
	if len(s.entered[0])+len(s.entered[1]) > 0 {
		s.turn()
		s.turn()
	}
}

// rate says whether t holds more than its part; what it was promised counts as held.
// A weight is at most 1,000 and HIGH at most 10^8: with 10^5 tenants nothing overflows.
func (s *tenants) rate(t *tenant) {
	all := s.among(t)
	held, weight := (t.messages()+uint64(t.slots))*all, uint64(t.weight)
	switch {
	case held >= s.high*weight:
		t.open = false
		s.setOver(t, true)
	case !t.over:
	case held == 0 || 10*held < 9*s.low*weight:
		s.setOver(t, false)
	case held <= s.low*weight:
		t.open = true
	}
}

// part is t's part of a number of messages.
func (s *tenants) part(t *tenant, of uint64) uint64 { return of * uint64(t.weight) / s.among(t) }

// among is the weight of those with messages, and t's.
func (s *tenants) among(t *tenant) uint64 {
	if t.alone {
		return uint64(t.weight)
	}
	if t.messages() == 0 {
		return s.weight + uint64(t.weight)
	}
	return s.weight
}

// filled reports whether t's messages are its part of HIGH.
func (s *tenants) filled(t *tenant) bool {
	return t.messages()*s.among(t) >= s.high*uint64(t.weight)
}

// shareOver is t's part of what is left to those above their part.
func (s *tenants) shareOver(t *tenant) float64 {
	all := s.overWeight
	if !t.over {
		all += uint64(t.weight)
	}
	return float64(t.weight) / float64(all)
}

func (s *tenants) setOver(t *tenant, over bool) {
	if t.over == over {
		return
	}
	if t.over = over; t.alone {
		return
	}
	if over {
		s.overWeight += uint64(t.weight)
		s.over = append(s.over, t)
		t.place = int32(len(s.over))
		return
	}
	s.overWeight -= uint64(t.weight)
	last := s.over[len(s.over)-1]
	s.over[t.place-1], last.place = last, t.place
	s.over[len(s.over)-1] = nil
	s.over = s.over[:len(s.over)-1]
}

// share is t's part of the rate among those with messages.
func (s *tenants) share(t *tenant) float64 { return float64(t.weight) / float64(s.among(t)) }

// after is an instant from one on that keeps a gap from the last of t's line.
func (t *tenant) after(from, gap int64) int64 {
	if t.line == 0 {
		return from
	}
	return max(from, t.line+gap)
}

// reweigh puts other weights in force; it costs a look at every tenant.
func (s *tenants) reweigh(w map[string]uint32) {
	s.weights, s.weight = w, 0
	for _, t := range s.named {
		if t.over {
			s.overWeight -= uint64(t.weight)
		}
		t.weight = s.weightOf(t.name)
		if t.over {
			s.overWeight += uint64(t.weight)
		}
		if t.messages() > 0 {
			s.weight += uint64(t.weight)
		}
	}
	for _, t := range s.named {
		s.rate(t)
	}
}
