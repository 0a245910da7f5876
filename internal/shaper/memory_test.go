package shaper

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

// Payloads over the budget are read again when due, and are the right ones.
func TestPayloadsOverTheBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n, size = 120, 64 << 10 // 7.5 MiB against 1 MiB
		body := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, size) }
		for i := range n {
			r.store(fmt.Sprint("tenant", i%3), body(i))
		}
		s := r.run(config(), nil)
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		held, unloaded := s.index.held, s.index.unloaded
		s.mu.Unlock()
		if held > 2<<20 || unloaded == 0 {
			t.Errorf("%d bytes are held and %d messages are not; the budget is 1 MiB", held, unloaded)
		}
		time.Sleep(20 * time.Second)
		log := r.destination.log()
		conforms(t, log, n, config().Rate)
		for _, a := range log {
			if want := body(int(a.Seq) - 1); !bytes.Equal(a.Payload, want) {
				t.Errorf("message %d has another payload", a.Seq)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.index.held != 0 || s.index.unloaded != 0 {
			t.Errorf("with an empty index %d bytes are counted as held and %d messages as not", s.index.held, s.index.unloaded)
		}
	})
}
