package shaper

import (
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
)

// The largest messages, many of them: the server does not drop the connection for what
// it has to keep for it.
func TestLargeMessages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n = 150
		body := make([]byte, 1<<20-1024)
		for range n {
			r.store("acme", body)
		}
		cfg := config()
		cfg.Rate = algorithms.Rate{N: 100, Per: time.Second}
		var nc = r.connect()
		s := r.run(cfg, func(d *Deps) { d.NATS, d.Batch = nc, 20 })
		time.Sleep(10 * time.Second)
		if got := len(r.destination.log()); got != n {
			t.Errorf("%d of %d delivered", got, n)
		}
		if again := nc.Stats().Reconnects; again > 0 {
			t.Errorf("the connection was dropped %d times", again)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.gen != 1 {
			t.Errorf("the consumer was reset %d times", s.gen)
		}
	})
}
