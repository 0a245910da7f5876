package app

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/shaper"
)

// B02: an outage costs probes, not the messages' attempts.
func TestOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		r.sink.answers(away)
		_, js := r.client()
		r.admitted(js, "acme", 500)
		time.Sleep(10 * time.Minute)
		during := len(r.sink.log())
		if during < 200 || during > 420 {
			t.Errorf("%d attempts in 10 minutes; one each 1.5 to 3 s is wanted", during)
		}
		r.sink.answers(nil)
		time.Sleep(time.Minute)
		s := r.settled()
		log := r.sink.log()[during:]
		if n := len(delivered(log)); n != 500 || s.DeadLetters != 0 || s.Depth.Total != 0 {
			t.Errorf("%d of 500 delivered, %d dead letters, depth %d", n, s.DeadLetters, s.Depth.Total)
		}
		for _, d := range log {
			if d.Attempt != 1 {
				t.Errorf("%s has %d attempts behind it", d.ID, d.Attempt-1)
			}
		}
	})
}

// B05, B36: a message's own failures count, and the last one makes a dead letter.
func TestAttemptsEnd(t *testing.T) {
	for name, fails := range map[string]func(context.Context, consumers.Delivery) error{
		"by timeout": hangs,
		"by error":   func(context.Context, consumers.Delivery) error { return errors.New("no") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := start(t, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=3", "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_CONSUMER_TIMEOUT=1s", "FLOWGATE_CONSUMER_CONCURRENCY=20")
				r.sink.answers(fails)
				_, js := r.client()
				r.admitted(js, "acme", 100)
				time.Sleep(5 * time.Minute)
				s := r.settled()
				if s.Depth.Total != 0 || s.DeadLetters != 100 || s.Level != "normal" {
					t.Errorf("depth %d, %d dead letters, level %s", s.Depth.Total, s.DeadLetters, s.Level)
				}
				for id, n := range delivered(r.sink.log()) {
					if n != 3 {
						t.Errorf("%s was tried %d times, want 3", id, n)
					}
				}
				r.sink.answers(nil)
				r.admitted(js, "acme", 1)
			})
		})
	}
}

// B36: attempts go on where they were after a restart.
func TestAttemptsOverARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fail := func(context.Context, consumers.Delivery) error { return errors.New("no") }
		r := start(t, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=3", "FLOWGATE_CONSUMER_BACKOFF=10s")
		r.sink.answers(fail)
		_, js := r.client()
		r.admitted(js, "acme", 1)
		time.Sleep(12 * time.Second) // the first, and a second after 5 to 10 s
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		before := len(r.sink.log())
		r = startIn(t, r.dir, r.sink, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=3", "FLOWGATE_CONSUMER_BACKOFF=10s")
		time.Sleep(time.Minute)
		s := r.settled()
		if n := len(r.sink.log()); before != 2 || n != 3 || s.DeadLetters != 1 {
			t.Errorf("%d attempts, then %d in all, %d dead letters; want 2, 3, 1", before, n, s.DeadLetters)
		}
	})
}

// B37: a dead letter that cannot be written leaves the message where it is.
func TestDeadLetterStreamFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		dlq, err := r.control().Stream(t.Context(), "FLOWGATE_DLQ")
		if err != nil {
			t.Fatal(err)
		}
		cfg := dlq.CachedInfo().Config
		cfg.MaxMsgs = 1
		if _, err := r.control().UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		r.sink.answers(func(_ context.Context, d consumers.Delivery) error {
			if d.Tenant == "poison" {
				return consumers.Permanent(errors.New("bad row"))
			}
			return nil
		})
		_, js := r.client()
		r.admitted(js, "poison", 3)
		r.admitted(js, "fine", 10)
		time.Sleep(5 * time.Minute)
		s := r.settled()
		if s.DeadLetters != 1 || s.Depth.Total != 2 {
			t.Fatalf("%d dead letters, depth %d; want 1 and the 2 that found no room", s.DeadLetters, s.Depth.Total)
		}
		fine := 0
		for _, d := range r.sink.log() {
			if d.Tenant == "fine" {
				fine++
			}
		}
		if fine != 10 {
			t.Errorf("%d of 10 others were delivered", fine)
		}
		cfg.MaxMsgs = -1
		if _, err := r.control().UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if s := r.settled(); s.DeadLetters != 3 || s.Depth.Total != 0 {
			t.Errorf("with room again: %d dead letters, depth %d", s.DeadLetters, s.Depth.Total)
		}
	})
}

// B12: without its stream the gateway says so, answers every producer, and ends, so
// that whoever runs it starts it anew.
func TestStreamDeletedUnderTheGateway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		_, js := r.client()
		r.admitted(js, "acme", 1)
		if err := r.control().DeleteStream(t.Context(), "FLOWGATE"); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			began := time.Now()
			code, _ := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil)))
			if code != 60505 || time.Since(began) > 2*time.Second {
				t.Errorf("without the stream: code %d after %s", code, time.Since(began))
			}
			time.Sleep(300 * time.Millisecond)
		}
		select {
		case <-r.ended:
			if !errors.Is(r.result, shaper.ErrStreamGone) {
				t.Errorf("Run returned %v", r.result)
			}
		case <-time.After(30 * time.Second):
			t.Error("the gateway goes on")
		}
		r = startIn(t, r.dir, r.sink)
		_, js = r.client()
		r.admitted(js, "acme", 1)
	})
}

// B14: a stream that captures the ingress turns readiness red.
func TestCapturedIngress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		if _, err := r.control().CreateStream(t.Context(), jetstream.StreamConfig{Name: "THIEF", Subjects: []string{"ingress.acme.>"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * watchEvery)
		code, body := get(r, "/readyz?verbose")
		if code != 503 || !contains(body, "THIEF") {
			t.Errorf("readyz says %d\n%s", code, body)
		}
		if err := r.control().DeleteStream(t.Context(), "THIEF"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * watchEvery)
		if code, body := get(r, "/readyz?verbose"); code != 200 {
			t.Errorf("readyz says %d\n%s", code, body)
		}
	})
}

// A producer hears nothing of what the gateway is told, and cannot speak in the
// broker's place.
func TestProducersCannotListenIn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		spy, _ := r.client()
		var mu sync.Mutex
		heard := map[string]int{}
		for _, pattern := range []string{"_INBOX.>", ">", "flowgate.>", "flowgate.inbox.>", "$JS.>"} {
			_, _ = spy.Subscribe(pattern, func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				heard[m.Subject]++
			})
		}
		_ = spy.Flush()
		_, js := r.client()
		r.admitted(js, "acme", 50)
		time.Sleep(5 * time.Second)
		answers := 0
		mu.Lock()
		defer mu.Unlock()
		for subject, n := range heard {
			if !strings.HasPrefix(subject, "_INBOX.") {
				t.Errorf("the spy heard %s", subject)
			}
			answers += n
		}
		if answers > 50 { // the producer's own acknowledgements
			t.Errorf("the spy heard %d messages in inboxes while 50 were acknowledged", answers)
		}
		// Nor may it have the broker answer into the gateway's inbox.
		inbox := r.running().conns[0].NewInbox()
		for _, reply := range []string{inbox, inbox + ".s.18446744073709551615", "flowgate.inbox.x"} {
			if err := spy.PublishRequest("ingress.acme.orders", reply, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if _, body := get(r, "/metrics"); !contains(body, "flowgate_ingress_muted_total 3\n") {
			t.Error("replies into the gateway's inbox were not muted")
		}
		r.admitted(js, "acme", 5)
	})
}

// Without its stream of dead letters a gateway makes it again, and others are served
// at full pace meanwhile.
func TestDeadLetterStreamDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_CONSUMER_BACKOFF_MAX=5s")
		r.sink.answers(func(_ context.Context, d consumers.Delivery) error {
			if d.Tenant == "poison" {
				return consumers.Permanent(errors.New("bad row"))
			}
			return nil
		})
		if err := r.control().DeleteStream(t.Context(), "FLOWGATE_DLQ"); err != nil {
			t.Fatal(err)
		}
		_, js := r.client()
		r.admitted(js, "poison", 100)
		r.admitted(js, "fine", 500)
		time.Sleep(3500 * time.Millisecond)
		fine := 0
		for _, d := range r.sink.log() {
			if d.Tenant == "fine" {
				fine++
			}
		}
		if fine != 500 {
			t.Errorf("%d of 500 others were delivered in 3.5 s at 200/s", fine)
		}
		time.Sleep(time.Minute)
		if s := r.settled(); s.DeadLetters != 100 || s.Depth.Total != 0 {
			t.Errorf("%d dead letters, depth %d; want 100 and none", s.DeadLetters, s.Depth.Total)
		}
	})
}
