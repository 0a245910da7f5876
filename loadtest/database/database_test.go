package database

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowgate/flowgate/internal/fragile"
)

func TestDoTakesAsLongAsTheModelSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(fragile.Config{Latency: 10 * time.Millisecond, Knee: 2, CrashAt: 5, Recovery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		run := func(n int) (took time.Duration, failed int) {
			began := time.Now()
			var mu sync.Mutex
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					if err := d.Do(t.Context()); err != nil {
						mu.Lock()
						defer mu.Unlock()
						failed++
					}
				})
			}
			all.Wait()
			return time.Since(began), failed
		}
		for _, c := range []struct {
			n      int
			took   time.Duration
			failed int
		}{{1, 10 * time.Millisecond, 0}, {2, 10 * time.Millisecond, 0}, {4, 20 * time.Millisecond, 0}, {5, 0, 5}, {3, 0, 3}} {
			if took, failed := run(c.n); took != c.took || failed != c.failed {
				t.Errorf("%d at once: %s, %d failed; want %s, %d", c.n, took, failed, c.took, c.failed)
			}
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond)
		defer cancel()
		if err := d.Do(ctx); !errors.Is(err, context.DeadlineExceeded) || d.Health().InFlight != 0 {
			t.Errorf("given up: %v, %+v", err, d.Health())
		}
		d.Halt()
		if err := d.Do(t.Context()); !errors.Is(err, fragile.ErrDown) {
			t.Errorf("halted: %v", err)
		}
		d.Return()
		if err := d.Do(t.Context()); err != nil {
			t.Errorf("returned: %v", err)
		}
	})
}
