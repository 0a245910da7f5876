package shaper

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// once checks that each of n messages was delivered once, and none is left.
func (r *rig) once(n int) {
	r.t.Helper()
	seen := map[uint64]int{}
	for _, a := range r.destination.log() {
		seen[a.Seq]++
	}
	for seq, times := range seen {
		if times > 1 {
			r.t.Errorf("message %d was delivered %d times", seq, times)
		}
	}
	if len(seen) != n {
		r.t.Errorf("%d messages of %d were delivered", len(seen), n)
	}
	if left := r.left(); left > 0 {
		r.t.Errorf("%d messages are left in the stream", left)
	}
}

// B12: a durable that is deleted comes back by itself, and nothing is lost or
// repeated.
func TestConsumerDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 100)
		r.run(config(), nil)
		for range 3 {
			time.Sleep(1500 * time.Millisecond)
			if err := r.js.DeleteConsumer(t.Context(), streamName, consumerName); err != nil {
				t.Fatal(err)
			}
			r.publish("acme", 5)
		}
		time.Sleep(20 * time.Second)
		conforms(t, r.destination.log(), 115, config().Rate)
		r.once(115)
	})
}

// What was handed to a connection that broke stays pending on the server; the
// shaper has it handed out again.
func TestConnectionLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 100)
		var nc *nats.Conn
		r.run(config(), func(d *Deps) { nc = d.NATS })
		for range 4 {
			time.Sleep(1300 * time.Millisecond)
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
			r.publish("acme", 5)
		}
		time.Sleep(20 * time.Second)
		conforms(t, r.destination.log(), 120, config().Rate)
		r.once(120)
	})
}

// way leads to the server, unless it is barred.
type way struct {
	*server.Server
	barred atomic.Bool
}

func (w *way) InProcessConn() (net.Conn, error) {
	if w.barred.Load() {
		return nil, errors.New("barred")
	}
	return w.Server.InProcessConn()
}

// However long the broker was away, deliveries go on as soon as it is back: the pauses
// between the attempts that were in vain are not waited out.
func TestDeliveriesGoOnAtOnceAfterAnOutage(t *testing.T) {
	for _, away := range []time.Duration{700 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			r := newRig(t)
			w := &way{Server: r.server}
			nc, err := nats.Connect("", nats.InProcessServer(w), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
				nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			r.run(config(), func(d *Deps) { d.NATS = nc })
			time.Sleep(time.Second)
			w.barred.Store(true)
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(away)
			r.publish("acme", 1)
			w.barred.Store(false)
			time.Sleep(300 * time.Millisecond)
			if n := len(r.destination.log()); n != 1 {
				t.Errorf("away for %v: %d deliveries 300 ms after it was back", away, n)
			}
			time.Sleep(10 * time.Second)
			r.once(1)
		})
	}
}

// What was asked over a connection that broke before the answer is not waited for.
func TestUnansweredWhenTheConnectionBreaks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		var nc *nats.Conn
		var asked atomic.Int32
		r.run(config(), func(d *Deps) {
			nc = d.NATS
			restore := d.Restore
			d.Restore = func(ctx context.Context) error {
				if asked.Add(1) == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return restore(ctx)
			}
		})
		time.Sleep(time.Second)
		if err := r.js.DeleteConsumer(t.Context(), streamName, consumerName); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if asked.Load() != 1 {
			t.Fatalf("restored %d times", asked.Load())
		}
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		r.publish("acme", 1)
		time.Sleep(500 * time.Millisecond)
		if n := len(r.destination.log()); n != 1 {
			t.Errorf("%d deliveries 500 ms after the connection was back", n)
		}
		time.Sleep(10 * time.Second)
		r.once(1)
	})
}

func TestConnectionClosedForGood(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		var nc *nats.Conn
		s := r.run(config(), func(d *Deps) { nc = d.NATS })
		time.Sleep(time.Second)
		nc.Close()
		select {
		case <-s.ended:
			if s.result == nil {
				t.Error("Run returned nil although its connection is closed for good")
			}
		case <-time.After(10 * time.Second):
			t.Error("Run goes on without a connection")
		}
	})
}

func TestStreamDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.run(config(), nil)
		time.Sleep(time.Second)
		if err := r.js.DeleteStream(t.Context(), streamName); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.ended:
			if !errors.Is(s.result, ErrStreamGone) {
				t.Errorf("Run returned %v", s.result)
			}
		case <-time.After(15 * time.Second):
			t.Error("Run goes on without its stream")
		}
	})
}

func TestStreamReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 20)
		s := r.run(config(), nil)
		time.Sleep(time.Second)
		if err := r.js.DeleteStream(t.Context(), streamName); err != nil {
			t.Fatal(err)
		}
		r.makeStream()
		select {
		case <-s.ended:
			if !errors.Is(s.result, ErrStreamGone) {
				t.Errorf("Run returned %v", s.result)
			}
		case <-time.After(15 * time.Second):
			t.Error("Run goes on with a stream that is not its own")
		}
	})
}

// Without the lease nothing is delivered; with it again, all that waited is, in
// order and at the pace.
func TestLeaseNotValid(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 50)
		r.run(config(), nil)
		for range 3 {
			time.Sleep(time.Second)
			synctest.Wait() // what leaves at this instant has left
			r.leased.Store(false)
			before := len(r.destination.log())
			time.Sleep(time.Minute)
			if after := len(r.destination.log()); after > before {
				t.Errorf("%d deliveries began without the lease", after-before)
			}
			r.leased.Store(true)
		}
		time.Sleep(10 * time.Second)
		log := r.destination.log()
		conforms(t, log, 50, config().Rate)
		for i, a := range log {
			if a.Seq != uint64(i+1) {
				t.Fatalf("delivery %d is message %d", i, a.Seq)
			}
		}
		r.once(50)
	})
}

// Until the broker has confirmed its acknowledgement a message is in flight: were
// there more of them, a crash would repeat them.
func TestUnconfirmedIsInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 50)
		var nc *nats.Conn
		r.run(config(), func(d *Deps) {
			nc = d.NATS
			d.Outlet = outletWith(r.destination, func() {
				if len(r.destination.log()) == 10 {
					_ = nc.ForceReconnect() // the acknowledgements find no connection
				}
			})
		})
		time.Sleep(20 * time.Second)
		conforms(t, r.destination.log(), 50, config().Rate)
		r.once(50)
		if waiting, inFlight, delayed, drained := r.backlog.state(); waiting+inFlight+delayed != 0 || drained != 50 {
			t.Errorf("%d waiting, %d in flight, %d delayed, %d drained", waiting, inFlight, delayed, drained)
		}
	})
}

// Messages that somebody removed from the stream are not delivered, and not
// counted for ever.
func TestMessagesRemovedUnderUs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 100)
		s := r.run(config(), nil)
		time.Sleep(3 * time.Second)
		stream, err := r.js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(91)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		waiting, inFlight, delayed, _ := r.backlog.state()
		if sum := waiting + inFlight + delayed; sum != 0 || s.index.len() != 0 {
			t.Errorf("%d messages are still counted", sum)
		}
		if n := len(r.destination.log()); n > 90 {
			t.Errorf("%d deliveries although 60 were removed", n)
		}
	})
}

// What is kept of a message goes with it, whether this process knew it or one before.
func TestNothingIsKeptOfWhatIsRemoved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.destination.outcome = failing(9, time.Minute)
		r.publish("acme", 6)
		s := r.run(config(), nil)
		time.Sleep(5 * time.Second) // each has failed once
		stream, err := r.js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		kept := func() uint64 {
			t.Helper()
			state, err := r.js.Stream(t.Context(), "KV_FLOWGATE_STATE")
			if err != nil {
				t.Fatal(err)
			}
			return state.CachedInfo().State.Msgs - 1 // the departure
		}
		if n := kept(); n != 6 {
			t.Fatalf("%d are kept, want 6", n)
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(4)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if n := kept(); n != 3 {
			t.Errorf("%d are kept of 3 that are left", n)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.run(config(), nil)
		time.Sleep(15 * time.Second)
		if n := kept(); n != 0 {
			t.Errorf("%d are kept of messages that were removed between two lives", n)
		}
	})
}

// What comes after a purge is delivered.
func TestDeliveryGoesOnAfterAPurge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 50)
		r.run(config(), nil)
		time.Sleep(time.Second)
		stream, err := r.js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		before := len(r.destination.log())
		r.publish("globex", 10)
		time.Sleep(3 * time.Second)
		if n := len(r.destination.log()) - before; n != 10 {
			t.Errorf("%d of 10 deliveries after the purge", n)
		}
	})
}

// Stored canaries are taken away and never delivered.
func TestCanariesAreSkipped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range 3 {
			if _, err := r.js.Publish(t.Context(), subjects+".$canary", nil); err != nil {
				t.Fatal(err)
			}
			r.publish("acme", 1)
		}
		r.run(config(), nil)
		time.Sleep(2 * time.Second)
		if n := len(r.destination.log()); n != 3 {
			t.Errorf("%d deliveries, want 3", n)
		}
		if left := r.left(); left > 0 {
			t.Errorf("%d messages are left", left)
		}
		if len(r.backlog.skipped) != 3 {
			t.Errorf("%d skipped, want 3", len(r.backlog.skipped))
		}
	})
}
