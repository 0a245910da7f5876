package backpressure

import (
	"flag"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// stream is a simple model of what lies between the front door and the outlet: the
// broker's input, the stream, and the canary's answers on their way back.
type stream struct {
	input    []op // published, in order, and not yet worked off
	lastSeq  uint64
	messages []stored   // in the stream and not handed out
	answers  []answered // of canaries
	sent     uint64     // messages published

	waiting, inFlight, delayed uint64 // at the outlet
}

// op is a publish: of a message that is stored, of one that is not (a duplicate, or
// refused by the stream), or of a canary, which may be stored.
type op struct {
	canary, store bool
	mark          uint64 // of a canary: the messages before it
}

type stored struct {
	seq    uint64
	canary bool
}

type answered struct{ mark, lastSeq uint64 }

// work has the stream work off its oldest input.
func (s *stream) work() {
	o := s.input[0]
	s.input = s.input[1:]
	if o.store {
		s.lastSeq++
		s.messages = append(s.messages, stored{s.lastSeq, o.canary})
	}
	if o.canary {
		s.answers = append(s.answers, answered{o.mark, s.lastSeq})
	}
}

// held is how many messages there really are: in the outlet, in the stream, and on
// the way into it.
func (s *stream) held() uint64 {
	n := s.waiting + s.inFlight + s.delayed
	for _, m := range s.messages {
		if !m.canary {
			n++
		}
	}
	for _, o := range s.input {
		if o.store && !o.canary {
			n++
		}
	}
	return n
}

// machine drives a stream and a Backlog together.
type machine struct {
	stream
	h *hand

	storedCanaries bool
	entering       bool     // published, and Enter not yet called
	unstored       []uint64 // numbers of messages not stored, since the last confirmation heard
	canariesSeen   []uint64 // sequences of stored canaries seen, since then
	ghosts         uint64   // deleted unseen, since the outlet caught up
	begun          uint64   // messages there were at the start
	slack          uint64   // by how much the depth was ever too low
	untold         []uint64 // sequences stored beside the door, Replayed not yet called
	replayed       uint64   // all of them
	doubled        uint64   // number of a message that Replayed may have counted before its Enter
}

func (m *machine) outlet(finished uint64) { m.h.Outlet(m.waiting, m.inFlight, m.delayed, finished) }

func (m *machine) publish(t *rapid.T) {
	m.enter()
	if _, ok := m.h.look(); !ok {
		return
	}
	o := op{store: rapid.IntRange(0, 3).Draw(t, "kind") > 0}
	m.input = append(m.input, o)
	m.sent++
	if !o.store {
		m.unstored = append(m.unstored, m.sent)
	}
	m.entering = true
}

// enter counts what was published last; the broker may have been quicker.
func (m *machine) enter() {
	if m.entering {
		m.h.Enter(100)
		m.entering = false
	}
}

func (m *machine) canary() {
	m.input = append(m.input, op{canary: true, store: m.storedCanaries, mark: m.sent})
}

func (m *machine) hear() {
	a := m.answers[0]
	m.answers = m.answers[1:]
	m.h.Confirmed(a.mark, a.lastSeq)
	m.unstored = slices.DeleteFunc(m.unstored, func(n uint64) bool { return n <= a.mark })
	m.canariesSeen = slices.DeleteFunc(m.canariesSeen, func(seq uint64) bool { return seq <= a.lastSeq })
	if a.mark >= m.doubled {
		m.doubled = 0
	}
}

// read hands the oldest message out.
func (m *machine) read() {
	next := m.messages[0]
	m.messages = m.messages[1:]
	if next.canary {
		m.h.Skipped(next.seq)
		m.canariesSeen = append(m.canariesSeen, next.seq)
		return
	}
	m.waiting++
	m.h.Seen(next.seq)
}

// replay stores a message beside the door, and tells of it at once or later.
func (m *machine) replay(at bool) {
	m.lastSeq++
	m.replayed++
	m.messages = append(m.messages, stored{m.lastSeq, false})
	if m.untold = append(m.untold, m.lastSeq); at {
		m.tell()
	}
}

func (m *machine) tell() {
	for _, seq := range m.untold {
		m.h.Replayed(seq, 100)
	}
	if m.untold = nil; m.entering {
		m.doubled = m.sent
	}
}

// caughtUp is what the outlet tells when it has been handed all there is.
func (m *machine) caughtUp() {
	if len(m.messages) == 0 {
		m.h.CaughtUp(m.lastSeq)
	}
}

// settle lets everything that is under way arrive.
func (m *machine) settle() {
	m.enter()
	m.tell()
	m.canary()
	for len(m.input) > 0 {
		m.work()
	}
	for len(m.answers) > 0 {
		m.hear()
	}
	for len(m.messages) > 0 {
		m.read()
	}
	m.caughtUp()
	m.ghosts = 0
}

// check holds the counted depth against the real one. It may be too high by what the
// stream did not store since the last confirmation, and by what was deleted before it
// was seen, and by the stored canaries not yet seen; too low by the message that is
// just being published, by what was replayed and not told of, and by the stored
// canaries that were seen and not heard.
func (m *machine) check(t *rapid.T) {
	depth, held := m.h.depth(), m.held()
	low, most := uint64(len(m.canariesSeen)+len(m.untold)), uint64(len(m.unstored))+m.ghosts
	if m.doubled > 0 {
		most++
	}
	for _, s := range m.messages {
		if s.canary {
			most++
		}
	}
	if m.entering {
		low++
	}
	m.slack = max(m.slack, low)
	if depth+low < held {
		t.Fatalf("depth %d is below the real %d, by more than %d", depth, held, low)
	}
	if depth > held+most {
		t.Fatalf("depth %d is above the real %d, by more than %d", depth, held, most)
	}
	marks, s := m.h.rules.Marks, m.h.Snapshot(int64(m.h.now))
	if depth >= marks.High && !s.Pressured || depth <= marks.Low && s.Pressured {
		t.Fatalf("pressured is %v at %d of %+v", s.Pressured, depth, marks)
	}
	if bound := max(marks.High, m.begun) + m.slack + m.replayed; held > bound {
		t.Fatalf("holds %d, more than %d", held, bound)
	}
	wait, ok := m.h.look()
	if ok && depth >= marks.High || !ok && !s.Pressured && s.Slots == 0 && (depth <= marks.Low || depth+1 < marks.High) {
		t.Fatalf("pressured is %v with %d slots, and admits %v at %d", s.Pressured, s.Slots, ok, depth)
	}
	if !ok && (wait < minHint || wait > maxHint) {
		t.Fatalf("hint %v", wait)
	}
}

func TestDepthModel(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("5000") // they take no time
	}
	rapid.Check(t, func(t *rapid.T) {
		high := rapid.Uint64Range(1, 30).Draw(t, "high")
		marks := Marks{Low: rapid.Uint64Range(0, high-1).Draw(t, "low"), High: high, Max: 2 * high}
		m := &machine{h: newHand(nil, marks), storedCanaries: rapid.Bool().Draw(t, "stored canaries")}
		if rapid.Bool().Draw(t, "restart") {
			// Messages of before, with gaps where others were acknowledged.
			m.lastSeq = rapid.Uint64Range(1, 60).Draw(t, "last sequence")
			for seq := uint64(1); seq <= m.lastSeq; seq++ {
				if rapid.Bool().Draw(t, "there") {
					m.messages = append(m.messages, stored{seq, false})
				}
			}
			m.begun = uint64(len(m.messages))
			m.h.Start(m.lastSeq, m.begun)
		}
		m.check(t)
		deleting := rapid.Bool().Draw(t, "deleting")
		t.Repeat(map[string]func(*rapid.T){
			"publish": m.publish,
			"enter":   func(*rapid.T) { m.enter() },
			"canary":  func(*rapid.T) { m.canary() },
			"work": func(t *rapid.T) {
				if len(m.input) > 0 {
					m.work()
				}
			},
			"hear": func(t *rapid.T) {
				if len(m.answers) > 0 {
					m.hear()
				}
			},
			"answer lost": func(t *rapid.T) {
				if len(m.answers) > 0 {
					m.answers = m.answers[1:]
				}
			},
			"read": func(t *rapid.T) {
				if len(m.messages) > 0 {
					m.read()
				}
			},
			"start delivery": func(t *rapid.T) {
				if m.waiting > 0 {
					m.waiting, m.inFlight = m.waiting-1, m.inFlight+1
					m.outlet(0)
				}
			},
			"done": func(t *rapid.T) {
				if m.inFlight > 0 {
					m.inFlight--
					m.h.Settled(acme.Tenant)
					m.outlet(1)
				}
			},
			"retry later": func(t *rapid.T) {
				if m.inFlight > 0 {
					m.inFlight, m.delayed = m.inFlight-1, m.delayed+1
					m.outlet(0)
				}
			},
			"retry due": func(t *rapid.T) {
				if m.delayed > 0 {
					m.delayed, m.waiting = m.delayed-1, m.waiting+1
					m.outlet(0)
				}
			},
			"replay": func(t *rapid.T) { m.replay(rapid.Bool().Draw(t, "told at once")) },
			"tell":   func(*rapid.T) { m.tell() },
			"delete unseen": func(t *rapid.T) {
				if !deleting || len(m.messages) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.messages)-1).Draw(t, "which")
				if !m.messages[i].canary {
					m.messages = append(m.messages[:i:i], m.messages[i+1:]...)
					m.ghosts++
				}
			},
			"time": func(t *rapid.T) {
				m.h.now += time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond
			},
			"settle": func(t *rapid.T) {
				m.settle()
				if depth, held := m.h.depth(), m.held(); depth != held {
					t.Fatalf("at rest the depth is %d, and there are %d messages", depth, held)
				} else if own := m.h.tenants.messages; own != held {
					t.Fatalf("at rest the tenants have %d messages, and there are %d", own, held)
				}
			},
			"": m.check,
		})
	})
}
