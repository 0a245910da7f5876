package shaper

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is what the index should be, in the plainest form.
type model struct {
	ordered bool
	queue   map[string][]uint64 // waiting, by tenant, in the order they are taken
	delayed map[uint64]int64    // due by sequence
	flying  []uint64
	tenant  map[uint64]string
	size    map[uint64]int
	asked   map[uint64]bool
	writing map[uint64]bool
	yields  map[uint64]bool
}

func (m *model) away(tenant string) int {
	n := 0
	for _, s := range m.flying {
		if m.tenant[s] == tenant {
			n++
		}
	}
	for s := range m.delayed {
		if m.tenant[s] == tenant {
			n++
		}
	}
	return n
}

// stepIn puts a message back in front, of an ordered tenant at its place.
func (m *model) stepIn(seq uint64) {
	q := m.queue[m.tenant[seq]]
	i := 0
	if m.ordered {
		for i < len(q) && q[i] < seq {
			i++
		}
	}
	m.queue[m.tenant[seq]] = slices.Insert(q, i, seq)
}

// yield puts the first of a tenant that need not yield in front, once one came back that
// does.
func (m *model) yield(tenant string) {
	q := m.queue[tenant]
	i := slices.IndexFunc(q, func(s uint64) bool { return !m.yields[s] })
	if m.ordered || i < 0 {
		return
	}
	s := q[i]
	m.queue[tenant] = slices.Insert(slices.Delete(q, i, i+1), 0, s)
}

func (m *model) land(t *rapid.T) uint64 {
	if len(m.flying) == 0 {
		t.Skip("nothing is in flight")
	}
	i := rapid.IntRange(0, len(m.flying)-1).Draw(t, "which")
	s := m.flying[i]
	m.flying = slices.Delete(m.flying, i, i+1)
	return s
}

func TestIndex(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for _, budget := range []int64{1 << 40, 100} {
			t.Run(fmt.Sprintf("ordered=%v budget=%d", ordered, budget), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) { checkIndex(t, ordered, budget) })
			})
		}
	}
}

func checkIndex(t *rapid.T, ordered bool, budget int64) {
	x := newIndex(budget, ordered, Weights{"t1": 3})
	m := model{
		ordered: ordered, queue: map[string][]uint64{}, delayed: map[uint64]int64{},
		tenant: map[uint64]string{}, size: map[uint64]int{}, asked: map[uint64]bool{}, writing: map[uint64]bool{},
		yields: map[uint64]bool{},
	}
	var seq uint64
	var now int64 = 1
	ask := func(msg *message) bool {
		if rapid.IntRange(0, 9).Draw(t, "full") == 0 {
			return false
		}
		if msg.loaded() || m.asked[msg.seq] {
			t.Fatalf("%d is asked for again", msg.seq)
		}
		m.asked[msg.seq] = true
		return true
	}
	forget := func(s uint64) {
		delete(m.tenant, s)
		delete(m.size, s)
		delete(m.delayed, s)
		delete(m.asked, s)
		delete(m.writing, s)
		delete(m.yields, s)
	}
	write := func(msg *message) bool {
		if rapid.IntRange(0, 9).Draw(t, "full") == 0 {
			return false
		}
		if !msg.loaded() || !msg.is(careful) || m.writing[msg.seq] {
			t.Fatalf("%d is to be written down", msg.seq)
		}
		m.writing[msg.seq] = true
		return true
	}
	// takeable is what may be taken of a tenant at most.
	takeable := func(tenant string) (n int) {
		if ordered && m.away(tenant) > 0 {
			return 0
		}
		for _, s := range m.queue[tenant] {
			if !x.find(s).ready() {
				break
			}
			n++
		}
		return n
	}
	t.Repeat(map[string]func(*rapid.T){
		"add": func(t *rapid.T) {
			seq++
			tenant := fmt.Sprint("t", rapid.IntRange(0, 4).Draw(t, "tenant"))
			body := make([]byte, rapid.IntRange(1, 30).Draw(t, "size"))
			a := arrival{message: message{seq: seq, at: int64(seq), size: uint32(len(body))}, tenant: tenant, body: body}
			a.setCost(rapid.Uint64Range(1, 5).Draw(t, "cost"))
			m.tenant[seq], m.size[seq] = tenant, len(body)
			if rapid.IntRange(0, 4).Draw(t, "delayed") == 0 {
				a.due = now + rapid.Int64Range(1, 50).Draw(t, "delay")
				a.tries = 1
				m.delayed[seq] = a.due
			} else {
				m.queue[tenant] = append(m.queue[tenant], seq)
			}
			x.add(&a)
		},
		"take": func(t *rapid.T) {
			n := rapid.IntRange(1, 3).Draw(t, "batch")
			most := 0
			for _, tenant := range slices.Collect(maps.Keys(m.queue)) {
				if ordered {
					most = max(most, takeable(tenant))
				} else {
					most += takeable(tenant)
				}
			}
			cares := false // then some may have to be written down first
			for _, tenant := range slices.Collect(maps.Keys(m.queue)) {
				q := m.queue[tenant]
				cares = cares || slices.ContainsFunc(q, func(s uint64) bool { return x.find(s).is(careful) })
			}
			batch := x.take(n, write)
			if ordered && len(batch) > 0 {
				most = 0
				for _, s := range m.queue[m.tenant[batch[0].seq]] {
					if r := x.find(s); !r.ready() && r.state() == waiting {
						break
					}
					most++
				}
			}
			if want := min(n, most); len(batch) > want || len(batch) != want && !cares {
				t.Fatalf("took %d, want %d", len(batch), want)
			}
			for _, msg := range batch {
				tenant := m.tenant[msg.seq]
				if q := m.queue[tenant]; len(q) == 0 || q[0] != msg.seq || !msg.ready() {
					t.Fatalf("took %d of %s, which has %v", msg.seq, tenant, q)
				}
				if tenant != m.tenant[batch[0].seq] && ordered {
					t.Fatal("an ordered batch is of two tenants")
				}
				m.queue[tenant] = m.queue[tenant][1:]
				m.flying = append(m.flying, msg.seq)
			}
		},
		"back": func(t *rapid.T) {
			s := m.land(t)
			m.stepIn(s)
			x.back(x.find(s))
		},
		"done": func(t *rapid.T) {
			s := m.land(t)
			x.done(x.find(s))
			forget(s)
		},
		"later": func(t *rapid.T) {
			s := m.land(t)
			due := now + rapid.Int64Range(1, 50).Draw(t, "delay")
			for slices.Contains(slices.Collect(maps.Values(m.delayed)), due) {
				due++ // of equals any may be first
			}
			m.delayed[s] = due
			tried := x.tries[s]
			tried.yields = rapid.Bool().Draw(t, "yields")
			x.tries[s], m.yields[s] = tried, tried.yields
			x.later(x.find(s), due)
		},
		"time": func(t *rapid.T) {
			now += rapid.Int64Range(1, 40).Draw(t, "passes")
			var due []uint64
			for s, at := range m.delayed {
				if at <= now {
					due = append(due, s)
				}
			}
			slices.SortFunc(due, func(a, b uint64) int { return int(m.delayed[a] - m.delayed[b]) })
			for i := 1; i < len(due); i++ {
				if m.delayed[due[i]] == m.delayed[due[i-1]] && !ordered {
					now = m.delayed[due[0]] - 1 // of equals any may be first
					t.Skip("two are due at once")
				}
			}
			for _, s := range due {
				delete(m.delayed, s)
				m.stepIn(s)
			}
			for _, s := range due {
				if m.yields[s] {
					m.yield(m.tenant[s])
				}
			}
			x.promote(now)
		},
		"ahead": func(t *rapid.T) { x.ahead(rapid.IntRange(1, 20).Draw(t, "n"), ask) },
		"read": func(t *rapid.T) {
			for s := range m.asked {
				delete(m.asked, s)
				if rapid.Bool().Draw(t, "fails") {
					x.unasked(x.find(s))
				} else {
					x.load(x.find(s), make([]byte, m.size[s]))
				}
				return
			}
		},
		"written": func(t *rapid.T) {
			for s := range m.writing {
				delete(m.writing, s)
				x.written(x.find(s))
				return
			}
		},
		"gone": func(t *rapid.T) {
			for s := range m.asked {
				tenant := m.tenant[s]
				x.gone(x.find(s))
				if q := m.queue[tenant]; slices.Contains(q, s) {
					m.queue[tenant] = slices.DeleteFunc(q, func(other uint64) bool { return other == s })
					forget(s)
				} else {
					delete(m.asked, s)
				}
				return
			}
		},
		"weights": func(t *rapid.T) { x.setWeights(Weights{"t2": rapid.Uint32Range(1, 9).Draw(t, "weight")}) },
		"prune": func(t *rapid.T) {
			gone := map[uint64]bool{}
			for _, s := range slices.Sorted(maps.Keys(m.tenant)) {
				gone[s] = rapid.IntRange(0, 3).Draw(t, "gone") == 0 && !slices.Contains(m.flying, s)
			}
			want := 0
			for s := range gone {
				if gone[s] {
					want++
				}
			}
			dropped := map[uint64]bool{}
			if got := x.prune(func(msg *message) bool { return !gone[msg.seq] }, func(msg *message) { dropped[msg.seq] = true }); got != want {
				t.Fatalf("%d were pruned, want %d", got, want)
			}
			if len(dropped) != want {
				t.Fatalf("%d were heard of, want %d", len(dropped), want)
			}
			for tenant, q := range m.queue {
				m.queue[tenant] = slices.DeleteFunc(q, func(s uint64) bool { return gone[s] })
			}
			for s := range gone {
				if gone[s] {
					forget(s)
				}
			}
		},
		"oldest": func(t *rapid.T) {
			at, ok, more := x.oldest()
			if lowest := slices.Sorted(maps.Keys(m.tenant)); more || ok != (len(lowest) > 0) || ok && at != int64(lowest[0]) {
				t.Fatalf("the oldest is %d, %v, %v; there are %v", at, ok, more, lowest)
			}
		},
		"": func(t *rapid.T) { m.compare(t, x) },
	})
	// Nothing is stuck: with all bodies read everything can be taken.
	for s := range m.delayed {
		m.stepIn(s)
	}
	clear(m.delayed)
	x.promote(1 << 60)
	for _, s := range m.flying {
		x.done(x.find(s))
		forget(s)
	}
	m.flying = nil
	for range 20 * len(m.tenant) {
		for s := range m.asked {
			delete(m.asked, s)
			x.load(x.find(s), make([]byte, m.size[s]))
		}
		for s := range m.writing {
			delete(m.writing, s)
			x.written(x.find(s))
		}
		for _, msg := range x.take(1, func(msg *message) bool { m.writing[msg.seq] = true; return true }) {
			forget(msg.seq)
			x.done(msg)
		}
		x.ahead(8, func(msg *message) bool { m.asked[msg.seq] = true; return true })
	}
	if x.len() != 0 || len(m.tenant) != 0 {
		t.Fatalf("%d messages are stuck", x.len())
	}
	if len(x.lanes) != 0 || x.held != 0 || x.coming != 0 || x.unloaded != 0 || len(x.tries) != 0 || len(x.out) != 0 || x.writing != 0 {
		t.Fatalf("an empty index keeps %d tenants, %d bytes, %d coming, %d not loaded, %d tries", len(x.lanes), x.held, x.coming, x.unloaded, len(x.tries))
	}
}

// compare holds the index against the model.
func (m *model) compare(t *rapid.T, x *index) {
	waiting, unloaded, held, coming := 0, 0, int64(0), int64(0)
	for _, q := range m.queue {
		for _, s := range q {
			waiting++
			if !x.find(s).loaded() {
				unloaded++
			}
		}
	}
	for s := range m.tenant {
		msg := x.find(s)
		if msg == nil || msg.seq != s || int(msg.size) != m.size[s] {
			t.Fatalf("message %d is %v", s, msg)
		}
		if msg.loaded() {
			held += int64(msg.size)
		}
		if msg.is(loading) != (m.asked[s] || m.writing[s]) {
			t.Fatalf("message %d is being read: %v", s, msg.is(loading))
		}
		if m.asked[s] {
			coming += int64(msg.size)
		}
	}
	if x.waiting != waiting || len(x.delays) != len(m.delayed) || x.flying != len(m.flying) || x.len() != len(m.tenant) {
		t.Fatalf("index has %d waiting, %d delayed, %d in flight of %d; want %d, %d, %d of %d",
			x.waiting, len(x.delays), x.flying, x.len(), waiting, len(m.delayed), len(m.flying), len(m.tenant))
	}
	if x.writing != len(m.writing) {
		t.Fatalf("%d are being written, want %d", x.writing, len(m.writing))
	}
	if x.held != held || x.coming != coming || x.unloaded != unloaded {
		t.Fatalf("%d bytes held, %d coming, %d not loaded; want %d, %d, %d", x.held, x.coming, x.unloaded, held, coming, unloaded)
	}
	messages := map[string]int{}
	for _, tenant := range m.tenant {
		messages[tenant]++
	}
	for tenant, l := range x.lanes {
		if l.messages != messages[tenant] || l.away != m.away(tenant) {
			t.Fatalf("%s has %d messages, %d away; want %d, %d", tenant, l.messages, l.away, messages[tenant], m.away(tenant))
		}
		if l.messages == 0 && !x.fair.Rest(&l.flow) {
			t.Fatalf("%s has no messages and no debt and is kept", tenant)
		}
	}
	for tenant, n := range messages {
		if x.lanes[tenant] == nil {
			t.Fatalf("%s has %d messages and no lane", tenant, n)
		}
	}
}

// A message whose body is not in memory keeps its turn and lets others pass.
func TestIndexOverBudget(t *testing.T) {
	x := newIndex(8, false, nil)
	for i, tenant := range []string{"a", "b", "a", "b"} {
		x.add(&arrival{message: message{seq: uint64(i + 1), size: 4}, tenant: tenant, body: []byte("abcd")})
	}
	one := func() uint64 {
		if b := x.take(1, nil); len(b) > 0 {
			return b[0].seq
		}
		return 0
	}
	if got := one(); got != 1 {
		t.Fatalf("took %d, want the one in memory", got)
	}
	if got := one(); got != 0 {
		t.Fatalf("took %d, whose body is not in memory", got)
	}
	var asked []uint64
	x.budget = 1000
	x.ahead(2, func(m *message) bool { asked = append(asked, m.seq); return true })
	if slices.Sort(asked); !slices.Equal(asked, []uint64{2, 3}) {
		t.Fatalf("asked for %v, want 2 and 3: next in turn", asked)
	}
	x.load(x.find(3), []byte("efgh"))
	if got := one(); got != 3 || string(x.find(3).packed()) != "efgh" {
		t.Fatalf("took %d, want 3", got)
	}
	x.load(x.find(2), []byte("ijkl"))
	if got := one(); got != 2 {
		t.Fatalf("took %d, want 2: it kept its turn", got)
	}
}

// What is read ahead stays within its part of the budget, however large the messages.
func TestIndexReadsAheadWithinTheBudget(t *testing.T) {
	const size, budget = 1 << 10, 64 << 10
	x := newIndex(budget, false, nil)
	for i := range 1000 {
		x.add(&arrival{message: message{seq: uint64(i + 1), size: size}, tenant: fmt.Sprint(i % 3), body: make([]byte, size)})
	}
	for range 1000 {
		x.ahead(500, func(m *message) bool { return true })
		if x.held+x.coming > budget {
			t.Fatalf("%d bytes are held and %d are coming; the budget is %d", x.held, x.coming, budget)
		}
		for seq := range uint64(1001) {
			if m := x.find(seq); m != nil && m.is(loading) {
				x.load(m, make([]byte, size))
			}
		}
		for _, m := range x.take(1, nil) {
			x.done(m)
		}
	}
	if x.len() != 0 {
		t.Errorf("%d are left", x.len())
	}
}

// A million waiting messages take at most 64 bytes each beside their payloads.
func TestIndexIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 100 MB")
	}
	for _, n := range []int{1_000_000, 920_000, 460_000} { // full, just grown, in between
		before := heapInUse()
		x := newIndex(0, false, nil)
		body := []byte("a")
		for i := range n {
			x.add(&arrival{message: message{seq: uint64(i + 1), at: 1, size: 1}, tenant: tenants[i%len(tenants)], body: body})
		}
		each := float64(heapInUse()-before) / float64(n)
		t.Logf("%d messages: %.1f bytes each", n, each)
		if each > 64 {
			t.Errorf("%d messages take %.1f bytes each, at most 64", n, each)
		}
		runtime.KeepAlive(x)
	}
}

var tenants = func() (names []string) {
	for i := range 100 {
		names = append(names, fmt.Sprint("tenant", i))
	}
	return names
}()

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The table finds what is in it, whatever came and went.
func TestSeqTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s slab
		var table seqTable
		in := map[uint64]ref{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			seq := rapid.Uint64Range(1, 200).Draw(t, "seq") * rapid.SampledFrom([]uint64{1, 64, 1 << 40}).Draw(t, "spread")
			r, there := in[seq]
			if got := table.find(&s, seq); got != r {
				t.Fatalf("%d is at %d, want %d", seq, got, r)
			}
			if there {
				table.remove(&s, seq)
				s.give(r)
				delete(in, seq)
				continue
			}
			r, m := s.take()
			m.seq = seq
			table.add(&s, r)
			in[seq] = r
		}
		for seq, r := range in {
			if got := table.find(&s, seq); got != r {
				t.Fatalf("%d is at %d, want %d", seq, got, r)
			}
		}
	})
}

// A slab gives memory back that nobody uses.
func TestSlabShrinks(t *testing.T) {
	var s slab
	var all []ref
	for range 10 * chunkSize {
		r, _ := s.take()
		all = append(all, r)
	}
	for _, r := range all {
		s.give(r)
	}
	chunks := 0
	for _, c := range s.chunks {
		if c.messages != nil {
			chunks++
		}
	}
	if chunks > 1 {
		t.Errorf("an empty slab keeps %d chunks", chunks)
	}
	seen := map[ref]bool{}
	for range 10 * chunkSize {
		r, m := s.take()
		if seen[r] || m.seq != 0 {
			t.Fatalf("%d was given twice or is not fresh", r)
		}
		seen[r] = true
	}
}

func BenchmarkIndex(b *testing.B) {
	for _, tenants := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			x := newIndex(1<<40, false, nil)
			for i := range 4 * tenants {
				x.add(&arrival{message: message{seq: uint64(i + 1)}, tenant: fmt.Sprint("t", i%tenants), body: []byte("a")})
			}
			b.ReportAllocs()
			for b.Loop() {
				m := x.take(1, nil)[0]
				x.later(m, 1)
				x.promote(1)
			}
		})
	}
}
