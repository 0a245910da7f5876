package backpressure

import (
	"log/slog"
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

func newBenchmark() *Backlog {
	return New(Rules{Marks: Marks{Low: 1 << 40, High: 1 << 41, Max: 1 << 42}, Fair: true}, Deps{
		Clock:   func() int64 { return 1 },
		Rate:    func() float64 { return 200 },
		Stalled: func() (int64, bool) { return 0, false },
		Logger:  slog.New(slog.DiscardHandler),
	})
}

// BenchmarkAdmit is what backpressure adds to a message that is admitted.
func BenchmarkAdmit(b *testing.B) {
	backlog := newBenchmark()
	b.ReportAllocs()
	for b.Loop() {
		if backlog.Look(1, again).OK {
			backlog.Enter(1, again, 100)
		}
	}
}

// BenchmarkRefuse is a refusal, with its hint.
func BenchmarkRefuse(b *testing.B) {
	backlog := newBenchmark()
	backlog.Outlet(1<<41, 0, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		if backlog.Look(1, again).OK {
			b.Fatal("admitted")
		}
	}
}

func TestNoAllocations(t *testing.T) {
	backlog := newBenchmark()
	if n := testing.AllocsPerRun(1000, func() { backlog.Look(1, again); backlog.Enter(1, again, 100) }); n != 0 {
		t.Errorf("an admission allocates %v times", n)
	}
	backlog.Outlet(1<<41, 0, 0, 0)
	if n := testing.AllocsPerRun(1000, func() { backlog.Look(1, again) }); n != 0 {
		t.Errorf("a refusal allocates %v times", n)
	}
}
