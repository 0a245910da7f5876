package ingress

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

func TestCanaryAnswer(t *testing.T) {
	for body, want := range map[string]canaryAnswer{
		"":                              {kind: canaryNoStream},
		`{"stream":"FLOWGATE","seq":7}`: {lastSeq: 7, known: true},
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 42"},"stream":"S"}`:     {lastSeq: 42, known: true},
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"},"stream":"S"}`:         {},
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S"}`:   {},
		`{"error":{"code":429,"err_code":10167,"description":"too many requests"},"stream":"S","seq":0}`:   {kind: canaryUnsure},
		`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`: {kind: canaryUnsure},
		`{"error":{}}`: {kind: canaryUnsure},
		"not JSON":     {kind: canaryUnsure},
	} {
		if got := readCanary(&nats.Msg{Data: []byte(body)}, true); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	// One that is to be refused cannot be acknowledged.
	if got := readCanary(&nats.Msg{Data: []byte(`{"stream":"FLOWGATE","seq":7}`)}, false); got.kind != canaryUnsure {
		t.Errorf("an acknowledgement of a refused canary: %+v", got)
	}
}

// What does not come from our own canaries says nothing.
func TestForgedCanary(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t) // the watch does not run
		f := r.door.forward
		r.pipe.swallow.Store(true)
		if err := f.forward(&nats.Msg{Subject: "flowgate.backlog.acme.t"}, 0, 0); err != nil {
			t.Fatal(err)
		}
		for _, subject := range []string{".s.18446744073709551615", ".s.2", ".r.1", ".1", ".s.", ".s.-1", ".x.1"} {
			m := &nats.Msg{Subject: f.inbox + subject, Data: []byte(`{"stream":"FLOWGATE","seq":1}`)}
			if f.heard(m); f.settled() {
				t.Fatalf("%s confirmed a message", subject)
			}
		}
		if !under(f.inbox, "flowgate") {
			t.Errorf("the answers go to %s, which producers may name as their reply", f.inbox)
		}
	})
}

// A store that neither stores nor answers is found out, also while it refuses by the
// expected sequence; duplicates look alike and are not taken for it.
func TestStoreFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		publish := func(opts ...jetstream.PublishOpt) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := js.Publish(ctx, "ingress.acme.t", []byte("x"), opts...)
			return err
		}
		for range 3 {
			if err := publish(); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if err := publish(jetstream.WithMsgID("again")); err != nil {
					t.Fatalf("a duplicate: %v", err)
				}
				time.Sleep(7 * time.Millisecond)
			}
		}
		if r.door.Silent() || r.metric("flowgate_ingress_unconfirmed_total") > 0 {
			t.Fatal("duplicates were taken for losses")
		}
		r.pipe.lose.Store(true)
		for i := range 10 {
			began := time.Now()
			e, ok := errors.AsType[*jetstream.APIError](publish())
			if !ok || e.ErrorCode != 60505 || time.Since(began) > 2*time.Second {
				t.Fatalf("message %d: %v after %s, want overloaded within 2 s", i, e, time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !r.door.Silent() {
			t.Error("the door does not say that the broker is silent")
		}
		r.pipe.lose.Store(false)
		time.Sleep(2 * time.Second)
		if err := publish(); err != nil || r.door.Silent() {
			t.Errorf("after the fault: %v, silent %v", err, r.door.Silent())
		}
	})
}

// An answer of the new connection to a canary that left before it was noticed.
func TestCanaryAcrossConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t) // the watch does not run
		f := r.door.forward
		r.pipe.swallow.Store(true)
		if err := f.forward(&nats.Msg{Subject: "flowgate.backlog.acme.t"}, 0, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		through := &nats.Msg{Subject: f.inbox + ".s.1", Data: []byte(`{"stream":"FLOWGATE","seq":1}`)}
		r.pipe.swallow.Store(false)
		r.pipe.cut()
		time.Sleep(time.Second)
		if f.heard(through) || f.settled() {
			t.Error("it confirmed what was lost with the old connection")
		}
		f.epoch = r.forward.Stats().Reconnects
		if !f.heard(through) || !f.settled() {
			t.Error("a canary of this connection confirms nothing")
		}
	})
}

func TestCanaryOnlyUnderTraffic(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t).run()
		js := r.producer()
		if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := r.forward.Stats().OutMsgs
		if before < 2 {
			t.Fatalf("%d messages left, want the producer's and a canary", before)
		}
		time.Sleep(time.Minute)
		if after := r.forward.Stats().OutMsgs; after != before {
			t.Errorf("%d messages left without traffic", after-before)
		}
		if s := r.state(); s.LastSeq != 1 {
			t.Errorf("the stream's last sequence is %d: a canary was stored", s.LastSeq)
		}
	})
}

func TestStoredCanary(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *Config, d *Deps, _ *jetstream.StreamConfig) { d.StoredCanary = true }).run()
		js := r.producer()
		for i := range 4 {
			if _, err := js.Publish(t.Context(), "ingress.acme.t", nil, jetstream.WithMsgID([]string{"a", "b", "b", "c"}[i])); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if r.door.Silent() || r.metric("flowgate_ingress_unconfirmed_total") > 0 {
			t.Error("unconfirmed")
		}
		if n := r.metric("flowgate_ingress_unstored_total"); n != 1 {
			t.Errorf("unstored = %v, want the duplicate", n)
		}
		state := r.state()
		last := r.confirmed[len(r.confirmed)-1]
		if last != [2]uint64{4, state.LastSeq} {
			t.Errorf("confirmed last: %v, the stream's last sequence is %d", last, state.LastSeq)
		}
		canaries := 0
		for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
			if r.stored(seq).Subject == "flowgate.backlog.$canary" {
				canaries++
			}
		}
		if canaries < 4 || int(state.Msgs) != 3+canaries {
			t.Errorf("%d canaries among %d messages, want a canary after each message and 3 others", canaries, state.Msgs)
		}
		time.Sleep(time.Minute)
		if now := r.state(); now.LastSeq != state.LastSeq {
			t.Error("canaries were stored without traffic")
		}
	})
}
