package shaper

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is what the index should be, in the plainest form: every message with its
// state, and the tenants' turns.
type model struct {
	waiting map[string][]uint64 // by tenant, in the order they are served
	turns   []string            // tenants with waiting messages, next first
	delayed map[uint64]int64    // due by sequence
	flying  []uint64
	tenant  map[uint64]string
}

func (m *model) wait(seq uint64, front bool) {
	t := m.tenant[seq]
	if len(m.waiting[t]) == 0 {
		m.turns = append(m.turns, t)
	}
	if front {
		m.waiting[t] = append([]uint64{seq}, m.waiting[t]...)
	} else {
		m.waiting[t] = append(m.waiting[t], seq)
	}
}

// take is the next in turn; 0 if none waits.
func (m *model) take() uint64 {
	if len(m.turns) == 0 {
		return 0
	}
	t := m.turns[0]
	m.turns = m.turns[1:]
	seq := m.waiting[t][0]
	if m.waiting[t] = m.waiting[t][1:]; len(m.waiting[t]) > 0 {
		m.turns = append(m.turns, t)
	}
	m.flying = append(m.flying, seq)
	return seq
}

func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex(1 << 40)
		m := model{waiting: map[string][]uint64{}, delayed: map[uint64]int64{}, tenant: map[uint64]string{}}
		var seq uint64
		var now int64 = 1
		land := func(t *rapid.T) *message {
			if len(m.flying) == 0 {
				t.Skip("nothing is in flight")
			}
			i := rapid.IntRange(0, len(m.flying)-1).Draw(t, "which")
			s := m.flying[i]
			m.flying = append(m.flying[:i:i], m.flying[i+1:]...)
			return x.bySeq[s]
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				seq++
				tenant := fmt.Sprint("t", rapid.IntRange(0, 4).Draw(t, "tenant"))
				msg := &message{seq: seq, topic: "x", at: int64(seq)}
				msg.setBody([]byte("abc"), 0)
				m.tenant[seq] = tenant
				if rapid.Bool().Draw(t, "delayed") {
					msg.due = now + rapid.Int64Range(1, 50).Draw(t, "delay")
					m.delayed[seq] = msg.due
				} else {
					m.wait(seq, false)
				}
				x.add(msg, tenant)
			},
			"take": func(t *rapid.T) {
				want, got := m.take(), uint64(0)
				if msg := x.take(); msg != nil {
					got = msg.seq
				}
				if got != want {
					t.Fatalf("took %d, want %d", got, want)
				}
			},
			"take and put back": func(t *rapid.T) {
				var taken []*message
				for range rapid.IntRange(1, 3).Draw(t, "batch") {
					if msg := x.take(); msg != nil {
						taken = append(taken, msg)
					}
				}
				for _, msg := range slices.Backward(taken) {
					x.putBack(msg)
				}
				if len(taken) > 0 && (x.first != taken[0].lane || x.first.head != taken[0]) {
					t.Fatalf("%d is not next again", taken[0].seq)
				}
			},
			"done": func(t *rapid.T) {
				msg := land(t)
				delete(m.tenant, msg.seq)
				x.done(msg)
			},
			"later": func(t *rapid.T) {
				msg := land(t)
				due := now + rapid.Int64Range(1, 50).Draw(t, "delay")
				m.delayed[msg.seq] = due
				x.later(msg, due)
			},
			"time": func(t *rapid.T) {
				now += rapid.Int64Range(1, 40).Draw(t, "passes")
				// By due time, then the newer first, since each steps in at the front.
				for {
					var next uint64
					for s, due := range m.delayed {
						if due <= now && (next == 0 || due < m.delayed[next] || due == m.delayed[next] && s > next) {
							next = s
						}
					}
					if next == 0 {
						break
					}
					delete(m.delayed, next)
					m.wait(next, true)
				}
				x.promote(now)
			},
			"prune": func(t *rapid.T) {
				gone := map[uint64]bool{}
				for s := range m.tenant {
					gone[s] = rapid.IntRange(0, 3).Draw(t, "gone") == 0
				}
				for _, s := range m.flying {
					gone[s] = false
				}
				x.prune(func(msg *message) bool { return !gone[msg.seq] })
				turns := m.turns
				m.turns = nil
				for _, tenant := range turns {
					var kept []uint64
					for _, s := range m.waiting[tenant] {
						if !gone[s] {
							kept = append(kept, s)
						}
					}
					if m.waiting[tenant] = kept; len(kept) > 0 {
						m.turns = append(m.turns, tenant)
					}
				}
				for s := range gone {
					if gone[s] {
						delete(m.delayed, s)
						delete(m.tenant, s)
					}
				}
			},
			"": func(t *rapid.T) {
				waiting := 0
				for _, seqs := range m.waiting {
					waiting += len(seqs)
				}
				if x.nWaiting != waiting || len(x.delays) != len(m.delayed) || x.nInFlight != len(m.flying) || x.len() != len(m.tenant) {
					t.Fatalf("index has %d waiting, %d delayed, %d in flight of %d; want %d, %d, %d of %d",
						x.nWaiting, len(x.delays), x.nInFlight, x.len(), waiting, len(m.delayed), len(m.flying), len(m.tenant))
				}
				if x.held != int64(3*len(m.tenant)) || x.unloaded != 0 {
					t.Fatalf("%d bytes held, %d not loaded", x.held, x.unloaded)
				}
				tenants := map[string]bool{}
				for _, tenant := range m.tenant {
					tenants[tenant] = true
				}
				if len(x.lanes) != len(tenants) {
					t.Fatalf("%d tenants are kept, %d have messages", len(x.lanes), len(tenants))
				}
			},
		})
	})
}

// A message whose body is not in memory keeps its turn and lets others pass.
func TestIndexOverBudget(t *testing.T) {
	x := newIndex(4)
	for i, tenant := range []string{"a", "b", "a", "b"} {
		m := &message{seq: uint64(i + 1)}
		m.setBody([]byte("abcd"), 0)
		x.add(m, tenant)
	}
	if m := x.take(); m == nil || m.seq != 1 {
		t.Fatalf("took %v, want the one in memory", m)
	}
	if m := x.take(); m != nil {
		t.Fatalf("took %d, whose body is not in memory", m.seq)
	}
	var asked []uint64
	x.unloadedAhead(2, func(m *message) { asked = append(asked, m.seq) })
	if len(asked) != 2 || asked[0] != 2 || asked[1] != 3 {
		t.Fatalf("asked for %v, want 2 and 3: next in turn", asked)
	}
	x.load(x.bySeq[3], []byte("efgh"), 0)
	if m := x.take(); m == nil || m.seq != 3 || string(m.body) != "efgh" {
		t.Fatalf("took %v, want 3", m)
	}
	x.load(x.bySeq[2], []byte("ijkl"), 0)
	if m := x.take(); m == nil || m.seq != 2 {
		t.Fatalf("took %v, want 2: it kept its turn", m)
	}
}

func BenchmarkIndex(b *testing.B) {
	for _, tenants := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			x := newIndex(1 << 40)
			for i := range 4 * tenants {
				m := &message{seq: uint64(i)}
				m.setBody(nil, 0)
				x.add(m, fmt.Sprint("t", i%tenants))
			}
			b.ReportAllocs()
			for b.Loop() {
				m := x.take()
				x.later(m, 1)
				x.promote(1)
			}
		})
	}
}
