package backpressure

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// store has a tenant's message stored and taken in.
func (h *hand) store(tenant string) {
	h.holds++
	n := h.Total() + 1
	h.Backlog.Enter(int64(h.now), Ask{Tenant: tenant}, 100)
	h.Confirmed(n, n)
	h.Backlog.Seen(n, tenant)
	h.Outlet(h.holds, 0, 0, 0)
}

func (h *hand) settle(tenant string, n int) {
	for range n {
		h.holds--
		h.Settled(tenant)
		h.Outlet(h.holds, 0, 0, 1)
	}
}

// publish has a tenant publish until it is refused, and counts what was admitted.
func (h *hand) publish(tenant string, most int) (admitted int) {
	for ; admitted < most; admitted++ {
		if !h.Look(int64(h.now), Ask{Tenant: tenant}).OK {
			break
		}
		h.store(tenant)
	}
	return admitted
}

var fairRules = Rules{Marks: Marks{Low: 800, High: 1000, Max: 2000}, Fair: true}

// Who filled the backlog is refused; who did not is admitted up to its weight's part of
// HIGH, and all of them together up to MAX.
func TestThoseWhoFilledItAreRefusedFirst(t *testing.T) {
	h := newHandBy(t, fairRules)
	h.SetWeights(map[string]uint32{"big": 3})
	if n := h.publish("hog", 5000); n != 1000 {
		t.Fatalf("alone a tenant got %d in", n)
	}
	if n := h.publish("quiet", 5000); n != 500 {
		t.Errorf("beside one other: %d, want half of HIGH", n)
	}
	if n := h.publish("big", 5000); n != 500 { // 3/5 of HIGH would be 600, and MAX is reached before
		t.Errorf("with a weight of 3: %d", n)
	}
	if a := h.ask("another", ""); !a.Full {
		t.Errorf("at MAX: %+v", a)
	}
	s := h.Snapshot(int64(h.now))
	if s.TenantsOverPart != 2 || len(s.OverPart) != 2 {
		t.Errorf("over their part: %+v", s.OverPart)
	}
	for _, o := range s.OverPart {
		if o.Hint < minHint || o.Tenant == "big" || o.Part != 200 {
			t.Errorf("%+v", o)
		}
	}
}

func TestPartsFollowTheWeights(t *testing.T) {
	h := newHandBy(t, fairRules)
	h.publish("hog", 1000)
	h.SetWeights(map[string]uint32{"big": 4})
	if n := h.publish("big", 5000); n != 800 {
		t.Errorf("with a weight of 4 beside one of 1: %d", n)
	}
	h.SetWeights(map[string]uint32{"hog": 4})
	if n := h.publish("big", 1); n != 0 {
		t.Error("admitted above its part by the new weights")
	}
	h.now += 2 * maxHint // what it was promised is over, which counts as held
	h.settle("big", 700) // 100 of a part of 200
	if n := h.publish("big", 5000); n != 100 {
		t.Errorf("by the new weights: %d more", n)
	}
}

func TestFairOff(t *testing.T) {
	rules := fairRules
	rules.Fair = false
	h := newHandBy(t, rules)
	h.publish("hog", 1000)
	if n := h.publish("quiet", 1); n != 0 {
		t.Error("admitted under pressure")
	}
}

// Of one that filled its part the same hysteresis holds as for all.
func TestAPartHasHysteresis(t *testing.T) {
	h := newHandBy(t, fairRules)
	h.publish("hog", 1000)
	h.publish("quiet", 500)
	h.settle("quiet", 50) // 450: between its part of LOW and that of HIGH
	if n := h.publish("quiet", 1); n != 0 {
		t.Error("admitted between its marks")
	}
	h.now += 2 * maxHint // its slot is gone
	h.settle("quiet", 100)
	if n := h.publish("quiet", 5000); n != 150 {
		t.Errorf("below its part of LOW: %d", n)
	}
}

func TestTenantMax(t *testing.T) {
	for _, fair := range []bool{false, true} {
		rules := fairRules
		rules.Fair, rules.TenantMax = fair, 100
		h := newHandBy(t, rules)
		if n := h.publish("acme", 5000); n != 100 {
			t.Fatalf("%d messages of one tenant", n)
		}
		a := h.ask("acme", "x")
		if a.OK || !a.Own || a.Full || a.Wait > maxHint {
			t.Fatalf("%+v", a)
		}
		if n := h.publish("globex", 5000); n != 100 {
			t.Errorf("%d messages of another tenant", n)
		}
		// At half of 200/s a place is free each 10 ms, one after the other.
		last := time.Duration(0)
		for range 20 {
			a := h.ask("globex", "x")
			if last != 0 && a.Wait-last != 10*time.Millisecond {
				t.Errorf("hints %v and %v", last, a.Wait)
			}
			last = a.Wait
		}
		h.settle("acme", 1)
		if n := h.publish("acme", 5); n != 1 {
			t.Errorf("with one less of its own: %d", n)
		}
		h.stalled = true
		if a := h.ask("acme", "x"); !a.Own || !a.Stalled || a.Wait > maxHint {
			t.Errorf("stalled: %+v", a)
		}
	}
}

// A tenant's count is right while what is forwarded arrives or not, and nothing is kept of
// one without messages.
func TestTenantsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHandBy(nil, fairRules)
		type message struct {
			tenant string
			seq    uint64 // 0: not stored
		}
		var sent, confirmed, seen, stored uint64
		var way []message // forwarded, in order
		held := map[string]int{}
		lost := map[string]int{} // forwarded, never to arrive, and perhaps counted
		name := func() string { return fmt.Sprint("t", rapid.IntRange(0, 5).Draw(t, "tenant")) }
		t.Repeat(map[string]func(*rapid.T){
			"forward": func(t *rapid.T) {
				m := message{tenant: name()}
				sent++
				if rapid.IntRange(0, 3).Draw(t, "duplicate") > 0 {
					stored++
					m.seq = stored
				} else {
					lost[m.tenant]++
				}
				way = append(way, m)
				h.Backlog.Enter(int64(h.now), Ask{Tenant: m.tenant}, 10)
			},
			"confirm": func(*rapid.T) {
				confirmed = sent
				h.Confirmed(sent, stored)
			},
			"see": func(*rapid.T) {
				for len(way) > 0 && way[0].seq == 0 {
					way = way[1:]
				}
				if len(way) > 0 {
					m := way[0]
					way = way[1:]
					seen = m.seq
					held[m.tenant]++
					h.Backlog.Seen(m.seq, m.tenant)
				}
			},
			"settle": func(t *rapid.T) {
				if n := name(); held[n] > 0 {
					held[n]--
					h.Settled(n)
				}
			},
			"": func(t *rapid.T) {
				if confirmed == sent && seen == stored {
					clear(lost)
				}
				coming := map[string]int{}
				for _, m := range way {
					if m.seq != 0 {
						coming[m.tenant]++
					}
				}
				var weight, messages uint64
				for i := range 6 {
					n := fmt.Sprint("t", i)
					got, want := 0, held[n]+coming[n]
					if tn := h.tenants.find(n); tn != nil {
						got = int(tn.messages())
						messages += uint64(got)
						if got > 0 {
							weight += uint64(tn.weight)
						} else if tn.slots == 0 {
							t.Fatalf("%s is kept and has nothing", n)
						}
					}
					if got < want || got > want+lost[n] {
						t.Fatalf("%s has %d messages, counted are %d; %d duplicates may be", n, want, got, lost[n])
					}
				}
				if weight != h.tenants.weight || messages != h.tenants.messages {
					t.Fatalf("sums %d and %d, want %d and %d", h.tenants.weight, h.tenants.messages, weight, messages)
				}
			},
		})
	})
}

// Duplicates do not pile up while the outlet is always a little behind.
func TestDuplicatesAreTakenOff(t *testing.T) {
	h := newHandBy(t, Rules{Marks: Marks{Low: 1 << 20, High: 1 << 21, Max: 1 << 22}, Fair: true})
	var sent, stored uint64
	for i := range 10_000 {
		sent++
		h.Backlog.Enter(int64(h.now), Ask{Tenant: "acme"}, 10)
		if i%2 == 0 { // each second one is a duplicate
			stored++
			if stored > 10 {
				h.Backlog.Seen(stored-10, "acme")
				h.Settled("acme")
			}
		}
		if i%20 == 0 {
			h.Confirmed(sent, stored)
		}
	}
	if n := h.tenants.find("acme").messages(); n < 10 || n > 80 {
		t.Errorf("%d messages counted, 10 are on their way", n)
	}
}

func TestNothingIsKeptOfTenantsThatAreGone(t *testing.T) {
	h := newHandBy(t, fairRules)
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	for i := range 50_000 {
		tenant := fmt.Sprint("tenant", i)
		h.store(tenant)
		h.settle(tenant, 1)
	}
	if grown := int64(heap() - before); grown > 64<<10 {
		t.Errorf("%d bytes are kept of 50,000 tenants that are gone", grown)
	}
	runtime.KeepAlive(h)
}

// A quiet tenant that comes by does not make a hog's hint longer than it takes the backlog
// to be back at LOW.
func TestHintOfAHog(t *testing.T) {
	h := newHandBy(t, fairRules)
	h.publish("hog", 1000)
	for i := range 9 {
		h.store(fmt.Sprint("quiet", i))
	}
	a := h.ask("hog", "a")
	h.near("hint", a.Wait, 209*5*time.Millisecond)
	if s := h.Snapshot(int64(h.now)); len(s.OverPart) != 1 || s.OverPart[0].Slots != 1 || s.Hint != s.OverPart[0].Hint || (s.Hint-a.Wait).Abs() > 60*time.Millisecond {
		t.Errorf("%+v", s)
	}
	// What they take from then on is theirs.
	h.now += 5 * time.Second
	for range 5 * 100 {
		if !h.Look(int64(h.now), Ask{Tenant: "quiet0"}).OK {
			break
		}
		h.store("quiet0")
		h.settle("quiet0", 1)
		h.now += 10 * time.Millisecond
	}
	h.busySince = 0
	if wait := h.ask("hog", "b").Wait; wait < 2*time.Second || wait > 2200*time.Millisecond {
		t.Errorf("with half of the rate left: %v, want 209 messages at 100/s", wait)
	}
}

// After a start with messages of nobody knows whom nobody counts as below its part.
func TestStrangersAfterAStart(t *testing.T) {
	h := newHandBy(t, fairRules)
	h.Start(fairRules.High-1, fairRules.High-1)
	for i := range 3 {
		h.publish(fmt.Sprint("tenant", i), 1)
	}
	if s := h.Snapshot(int64(h.now)); !s.Pressured {
		t.Fatalf("%+v", s)
	}
	if h.ask("newcomer", "a").OK {
		t.Error("let in while it is not known whose the backlog is")
	}
	for seq := uint64(1); seq < fairRules.High; seq++ {
		h.Backlog.Seen(seq, "hog")
	}
	if !h.ask("newcomer", "a").OK {
		t.Error("a newcomer beside a hog is refused")
	}
}

// However often a tenant asks that holds all it may, its hints stay within the time in
// which that would be gone.
func TestTenantMaxHintsAreBounded(t *testing.T) {
	rules := fairRules
	rules.TenantMax = 50
	h := newHandBy(t, rules)
	h.publish("acme", 50)
	for range 500 {
		a := h.ask("acme", "same")
		if a.OK || !a.Own {
			t.Fatalf("%+v", a)
		}
		if most := 51 * time.Second / 200; a.Wait > most+minHint {
			t.Fatalf("told to wait for %s, and all its own are gone in %s", a.Wait, most)
		}
	}
}
