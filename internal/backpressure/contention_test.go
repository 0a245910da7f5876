package backpressure

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The front door, its canary, the outlet and who looks on, all at once.
func TestContention(t *testing.T) {
	const n = 20_000
	start := time.Now()
	b := New(Rules{Marks: Marks{Low: 800, High: 1000, Max: 2000}}, Deps{
		Clock:   func() int64 { return int64(time.Since(start)) },
		Rate:    func() float64 { return 1e6 },
		Stalled: func() (int64, bool) { return 0, false },
		Logger:  slog.New(slog.DiscardHandler),
	})
	now := b.deps.Clock
	var forwarded, stored atomic.Uint64
	var deepest atomic.Uint64
	done := make(chan struct{})
	var wg, readers sync.WaitGroup
	wg.Go(func() {
		for forwarded.Load() < n {
			if b.Look(now(), Ask{Tenant: "acme"}).OK {
				forwarded.Add(1)
				if forwarded.Load()%10 != 0 { // each tenth is a duplicate
					stored.Add(1)
				}
				b.Enter(now(), Ask{Tenant: "acme"}, 100)
			}
			// The canary: of what was forwarded, all went through.
			if f := forwarded.Load(); f%50 == 0 {
				b.Confirmed(f, stored.Load())
			}
		}
		b.Confirmed(n, stored.Load())
	})
	wg.Go(func() {
		var seen, finished uint64
		for finished < n-n/10 {
			for last := stored.Load(); seen < last; {
				seen++
				b.Seen(seen, "acme")
			}
			batch := min(seen-finished, 100)
			finished += batch
			for range batch {
				b.Settled("acme")
			}
			b.Outlet(seen-finished, 0, 0, batch)
		}
	})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				s := b.Snapshot(now())
				b.Stay(now(), "acme")
				for d := s.Depth(); ; {
					was := deepest.Load()
					if d <= was || deepest.CompareAndSwap(was, d) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()
	if s := b.Snapshot(now()); s.Depth() != 0 || s.Pressured {
		t.Errorf("with all delivered: %+v", s)
	}
	if d := deepest.Load(); d > 1001 {
		t.Errorf("the depth was %d, HIGH is 1000", d)
	}
}

var again = Ask{Tenant: "acme", ID: "1"}

func newBenchmark(fair bool) *Backlog {
	return New(Rules{Marks: Marks{Low: 1 << 40, High: 1 << 41, Max: 1 << 42}, Fair: fair}, Deps{
		Clock:   func() int64 { return 1 },
		Rate:    func() float64 { return 200 },
		Stalled: func() (int64, bool) { return 0, false },
		Logger:  slog.New(slog.DiscardHandler),
	})
}

// BenchmarkAdmit is what backpressure adds to a message that is admitted.
func BenchmarkAdmit(b *testing.B) {
	backlog := newBenchmark(true)
	b.ReportAllocs()
	for b.Loop() {
		if backlog.Look(1, again).OK {
			backlog.Enter(1, again, 100)
		}
	}
}

// BenchmarkMessage is what it adds to a message on its whole way.
func BenchmarkMessage(b *testing.B) {
	backlog := newBenchmark(true)
	backlog.Enter(1, again, 100) // one is always there
	b.ReportAllocs()
	for seq := uint64(1); b.Loop(); seq++ {
		if backlog.Look(1, again).OK {
			backlog.Enter(1, again, 100)
		}
		backlog.Seen(seq, again.Tenant)
		backlog.Outlet(1, 0, 0, 0)
		backlog.Settled(again.Tenant)
		backlog.Outlet(0, 0, 0, 1)
	}
}

// saturated is a backlog at HIGH with 10,000 slots, of 1,000 tenants, and the one who asks
// above its part.
func saturated(fair bool) *Backlog {
	b := New(Rules{Marks: Marks{Low: 80_000, High: 100_000, Max: 200_000}, Fair: fair}, Deps{
		Clock:   func() int64 { return 1 },
		Rate:    func() float64 { return 1000 },
		Stalled: func() (int64, bool) { return 0, false },
		Logger:  slog.New(slog.DiscardHandler),
	})
	for i := range uint64(100_000) {
		ask := Ask{Tenant: "acme"}
		if i%100 == 0 {
			ask.Tenant = strconv.FormatUint(i/100, 10)
		}
		b.Enter(1, ask, 100)
		b.Seen(i+1, ask.Tenant)
	}
	b.Confirmed(100_000, 100_000)
	b.Outlet(100_000, 0, 0, 0)
	for i := range 10_000 {
		b.Look(1, Ask{Tenant: "acme", ID: strconv.Itoa(i)})
	}
	return b
}

// BenchmarkRefuse is a refusal of one that has its slot already, with its hint;
// BenchmarkPromise one that gets a slot, and lets it go.
func BenchmarkRefuse(b *testing.B) {
	for _, fair := range []bool{false, true} {
		b.Run("fair="+strconv.FormatBool(fair), func(b *testing.B) {
			backlog := saturated(fair)
			b.ReportAllocs()
			for b.Loop() {
				if backlog.Look(1, again).OK {
					b.Fatal("admitted")
				}
			}
		})
	}
}

func BenchmarkPromise(b *testing.B) {
	backlog := saturated(true)
	b.ReportAllocs()
	now := int64(1)
	for b.Loop() {
		if a := backlog.Look(now, Ask{Tenant: "acme"}); a.OK {
			b.Fatal("admitted")
		}
		now += int64(time.Millisecond) / 2 // they expire as they are made
	}
}

func TestNoAllocations(t *testing.T) {
	backlog := newBenchmark(true)
	if n := testing.AllocsPerRun(1000, func() { backlog.Look(1, again); backlog.Enter(1, again, 100) }); n != 0 {
		t.Errorf("an admission allocates %v times", n)
	}
	for _, fair := range []bool{false, true} {
		backlog = saturated(fair)
		if n := testing.AllocsPerRun(1000, func() {
			if backlog.Look(1, again).OK {
				t.Fatal("admitted")
			}
		}); n != 0 {
			t.Errorf("fair %v: a refusal allocates %v times", fair, n)
		}
	}
}
