package backpressure

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// promised is a slot of the model.
type promised struct {
	key   uint64
	owner uint32
	at    int64
}

// calendarModel is the calendar as a list, in the order in which slots were made.
type calendarModel struct {
	calendar
	slots []promised
	now   int64
	last  map[uint32]int64 // of an owner without keys
}

func (m *calendarModel) find(key uint64, owner uint32) int {
	return slices.IndexFunc(m.slots, func(p promised) bool {
		return key != 0 && p.key == key || key == 0 && p.key == 0 && p.owner == owner
	})
}

func TestCalendarModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &calendarModel{now: int64(time.Hour), last: map[uint32]int64{}}
		key := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(1, 40), rapid.Map(rapid.Uint64Range(1, 8), func(n uint64) uint64 { return n << 40 }))
		owner := rapid.Uint32Range(0, 5)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 50).Draw(t, "times") {
					if _, ok := m.expired(m.now); ok {
						t.Fatal("time stood still, and a slot expired")
					}
					k, o := key.Draw(t, "key"), owner.Draw(t, "owner")
					at := m.now + rapid.Int64Range(0, int64(maxHint)).Draw(t, "ahead")
					if k != 0 && m.find(k, o) >= 0 {
						continue
					}
					if k == 0 {
						at = max(at, m.last[o])
						m.last[o] = at
					}
					if r := m.add(k, o, at); m.at(r) != at {
						t.Fatalf("a slot at %d is at %d", at, m.at(r))
					}
					m.slots = append(m.slots, promised{k, o, at})
				}
			},
			"remove": func(t *rapid.T) {
				k, o := key.Draw(t, "key"), owner.Draw(t, "owner")
				if i := m.find(k, o); i >= 0 {
					m.remove(m.calendar.find(k, o))
					m.slots = slices.Delete(m.slots, i, i+1)
				}
			},
			"take the last back": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				m.expired(m.now)
				m.remove(m.add(0, o, max(m.now+int64(maxHint), m.last[o])))
			},
			"time": func(t *rapid.T) {
				m.now += rapid.OneOf(rapid.Int64Range(0, int64(2*time.Second)), rapid.Int64Range(0, int64(200*time.Second))).Draw(t, "ns")
				for {
					o, ok := m.expired(m.now)
					if !ok {
						break
					}
					// Some slot of that owner whose time has passed.
					i := slices.IndexFunc(m.slots, func(p promised) bool { return p.owner == o && p.at < m.now && m.calendar.find(p.key, o) == 0 })
					if i < 0 {
						i = slices.IndexFunc(m.slots, func(p promised) bool { return p.owner == o && p.at < m.now && p.key == 0 })
					}
					if i < 0 {
						t.Fatalf("a slot of %d was forgotten before its time", o)
					}
					m.slots = slices.Delete(m.slots, i, i+1)
				}
				for _, p := range m.slots {
					if p.at < m.now-spoke {
						t.Fatalf("a slot is kept %v past its time", time.Duration(m.now-p.at))
					}
				}
			},
			"": func(t *rapid.T) {
				if m.live != len(m.slots) {
					t.Fatalf("%d slots, want %d", m.live, len(m.slots))
				}
				for _, p := range m.slots {
					r := m.calendar.find(p.key, p.owner)
					if want := m.slots[m.find(p.key, p.owner)].at; r == 0 || m.at(r) != want {
						t.Fatalf("slot %+v is not found at %d", p, want)
					}
				}
				for k := range uint64(41) {
					if r := m.calendar.find(k, 0); r != 0 && m.find(k, 0) < 0 {
						t.Fatalf("key %d is found and has no slot", k)
					}
				}
			},
		})
	})
}

// A slot is small, and an empty calendar nothing.
func TestCalendarMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	const n = 1 << 17
	c := &calendar{}
	before := heap()
	for i := range uint64(n) {
		c.add(i*0x9E3779B97F4A7C15+1, 0, int64(time.Hour)+int64(i))
	}
	each := float64(heap()-before) / n
	t.Logf("%.1f bytes a slot", each)
	if each > 80 {
		t.Errorf("%.1f bytes a slot", each)
	}
	for i := range uint64(n) {
		c.remove(c.find(i*0x9E3779B97F4A7C15+1, 0))
	}
	if cap(c.slab)+len(c.table)+cap(c.credits) != 0 {
		t.Errorf("an empty calendar holds room for %d slots", cap(c.slab))
	}
	runtime.KeepAlive(c)
}

// Finding, taking and giving again of slots allocate nothing.
func TestCalendarAllocatesNothing(t *testing.T) {
	c := &calendar{}
	for i := range uint64(100) {
		c.add(i+1, 0, int64(time.Hour))
		c.add(0, 1, int64(time.Hour))
	}
	if n := testing.AllocsPerRun(1000, func() {
		c.remove(c.find(7, 0))
		c.add(7, 0, int64(time.Hour))
		c.remove(c.find(0, 1))
		c.add(0, 1, int64(time.Hour))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCalendar is a promise made and kept among 10,000.
func BenchmarkCalendar(b *testing.B) {
	c := &calendar{}
	key := func(i uint64) uint64 { return i*0x9E3779B97F4A7C15 | 1 }
	for i := range uint64(10_000) {
		c.add(key(i), 0, int64(time.Hour))
	}
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		c.remove(c.find(key(i), 0))
		c.add(key(i+10_000), 0, int64(time.Hour))
	}
}
