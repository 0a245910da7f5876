package ingress

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// outcomes waits for all futures and counts them: stored, or the code of the error.
func outcomes(t *testing.T, js jetstream.JetStream, futures []jetstream.PubAckFuture) map[string]int {
	t.Helper()
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d producers have no answer after a minute", js.PublishAsyncPending(), len(futures))
	}
	got := map[string]int{}
	for _, f := range futures {
		select {
		case <-f.Ok():
			got["stored"]++
		case err := <-f.Err():
			if e, ok := err.(*jetstream.APIError); ok {
				got[fmt.Sprint(e.ErrorCode)]++
			} else {
				got[err.Error()]++
			}
		}
	}
	return got
}

func publishAsync(t *testing.T, js jetstream.JetStream, n int) []jetstream.PubAckFuture {
	t.Helper()
	futures := make([]jetstream.PubAckFuture, n)
	for i := range futures {
		f, err := js.PublishAsync(fmt.Sprintf("ingress.t%d.t", i%3), fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		futures[i] = f
	}
	return futures
}

// answeredBy is within what time every producer has its answer.
const answeredBy = 2 * time.Second

func TestStreamDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		if got := outcomes(t, js, publishAsync(t, js, 50)); got["stored"] != 50 {
			t.Fatal(got)
		}
		time.Sleep(time.Second)
		if err := r.gateway.DeleteStream(t.Context(), "FLOWGATE"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		got := outcomes(t, js, publishAsync(t, js, 200))
		// The broker tells the canary that nobody listens: no need to wait.
		if d := time.Since(start); got["60505"] != 200 || d > answeredBy/4 {
			t.Errorf("the stream gone: %v after %v; want 200 times overloaded within %v", got, d, answeredBy/4)
		}
		if !r.door.Silent() {
			t.Error("the door does not know that the broker is silent")
		}
		start = time.Now()
		e := wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 503, 60505)
		if d := time.Since(start); d > 0 {
			t.Errorf("a new message was refused only after %v", d)
		}
		if !strings.HasSuffix(e.Description, "; retry_after_ms=1000") {
			t.Errorf("no hint in %q", e.Description)
		}
		if n := r.metric("flowgate_ingress_unconfirmed_total"); n != 200 {
			t.Errorf("unconfirmed = %v, want 200", n)
		}

		r.createStream()
		time.Sleep(time.Second) // the hint
		if ack, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil || ack.Sequence == 0 {
			t.Errorf("with the stream there again: %+v, %v", ack, err)
		}
		if r.door.Silent() {
			t.Error("still silent")
		}
	})
}

func TestStreamFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *Config, _ *Deps, s *jetstream.StreamConfig) { s.MaxMsgs = 5 }).run()
		js := r.producer()
		for range 5 {
			if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		for range 3 {
			wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 503, 10077)
		}
		time.Sleep(5 * time.Second)
		if r.door.Silent() || r.metric("flowgate_ingress_unconfirmed_total") > 0 {
			t.Error("a full stream was taken for a silent broker")
		}
		if n := r.metric("flowgate_ingress_unstored_total"); n != 3 {
			t.Errorf("unstored = %v, want 3", n)
		}
		s, err := r.gateway.Stream(t.Context(), "FLOWGATE")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteMsg(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
			t.Errorf("with room again: %v", err)
		}
	})
}

// The connection is up and nothing comes back.
func TestBrokerSilent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		r.pipe.swallow.Store(true)
		start := time.Now()
		got := outcomes(t, js, publishAsync(t, js, 20))
		if d := time.Since(start); got["60505"] != 20 || d > answeredBy || d < time.Second {
			t.Errorf("%v after %v", got, d)
		}
		start = time.Now()
		wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 503, 60505)
		if d := time.Since(start); d > 0 {
			t.Errorf("a new message was refused only after %v", d)
		}
		taken := len(r.limits.costs())
		if taken != 20 {
			t.Errorf("%d messages cost their limits, want the 20 forwarded", taken)
		}
		r.pipe.swallow.Store(false)
		time.Sleep(time.Second)
		if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
			t.Errorf("with the broker there again: %v", err)
		}
	})
}

// What went by a connection that broke is not confirmed by a canary on the next.
func TestForwardingConnectionBreaks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		r.pipe.swallow.Store(true)
		futures := publishAsync(t, js, 20)
		synctest.Wait() // all are on the way, and lost
		start := time.Now()
		r.pipe.swallow.Store(false)
		r.pipe.cut()
		if got := outcomes(t, js, futures); got["60505"] != 20 {
			t.Errorf("lost with the connection: %v", got)
		}
		if d := time.Since(start); d > answeredBy {
			t.Errorf("answered after %v", d)
		}
		time.Sleep(time.Second)
		if n := r.forward.Stats().Reconnects; n != 1 {
			t.Fatalf("reconnected %d times", n)
		}
		if got := outcomes(t, js, publishAsync(t, js, 20)); got["stored"] != 20 {
			t.Errorf("on the new connection: %v", got)
		}
	})
}

// While there is no connection, what is refused costs nothing.
func TestNoForwardingConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		r.pipe.cut()
		synctest.Wait()
		start := time.Now()
		wantNAK(t, second(js.Publish(t.Context(), "ingress.acme.t", nil)), 503, 60505)
		if d := time.Since(start); d > 0 || len(r.limits.costs()) > 0 || r.space.entered.Load() > 0 {
			t.Errorf("refused after %v at a cost of %v", d, r.limits.costs())
		}
	})
}

// A broker that confirms nothing cannot make the gateway hold more than its ring.
func TestUnconfirmedBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t) // the watch does not run: nothing is ever confirmed
		f := r.door.forward
		for i := range ringSize {
			if err := f.forward(&nats.Msg{Subject: "void"}, 0, 0); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if err := f.forward(&nats.Msg{Subject: "void"}, 0, 0); err == nil {
			t.Error("one more than the ring holds was taken")
		}
		v := r.door.door.decide(incoming{msg: &nats.Msg{Subject: "ingress.acme.t", Reply: "_INBOX.1"}}, 0, time.Now)
		if v.refused == nil || v.refused.Reason != Overloaded || v.refused.Wait <= 0 {
			t.Errorf("the door says %+v", v.refused)
		}
		if len(r.limits.costs()) > 0 {
			t.Error("the refused message cost its limits")
		}
	})
}

// The forwarding connection hangs in the middle of a write. Not in a bubble: the
// client library waits for its mutex then, and a bubble's clock would stand still.
func TestForwardingHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 2 s of real time")
	}
	r := newRig(t).run()
	js := r.producer()
	r.pipe.block.Store(true)
	defer close(r.pipe.release)
	start := time.Now()
	futures := publishAsync(t, js, 20)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for i, f := range futures {
		select {
		case <-ctx.Done():
			t.Fatalf("producer %d has no answer after %v", i, time.Since(start))
		case ack := <-f.Ok():
			t.Fatalf("producer %d: %+v", i, ack)
		case err := <-f.Err():
			wantNAK(t, err, 503, 60505)
		}
	}
}
