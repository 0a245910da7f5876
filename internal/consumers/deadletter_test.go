package consumers

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// dlq is a dead-letter stream in a broker of its own.
func dlq(t *testing.T, change func(*jetstream.StreamConfig)) (*DeadLetters, jetstream.Stream) {
	t.Helper()
	s := bubble.Server(t)
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{
		Name: "FLOWGATE_DLQ", Subjects: []string{"flowgate.dlq.>"}, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	stream, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return NewDeadLetters(js, "flowgate.dlq", "FLOWGATE@i1"), stream
}

// put writes a dead letter.
func put(t *testing.T, l *DeadLetters, d Delivery, reason error) {
	t.Helper()
	if err := l.Put(t.Context(), d, reason); err != nil {
		t.Fatal(err)
	}
}

func letter(t *testing.T, s jetstream.Stream, seq uint64) *jetstream.RawStreamMsg {
	t.Helper()
	m, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func letters(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func TestDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, stream := dlq(t, nil)
		d := aDelivery(7)
		d.ID, d.Attempt, d.Payload = "acme/order-7", 5, []byte("\x00\xff body")
		d.Headers = map[string][]string{
			"Content-Type": {"text/plain"}, "Many": {"a", "b"}, "traceparent": {"00-1-2-03"},
			// The producer's own Nats-* would drive this stream, whatever their case.
			"Nats-Msg-Id": {"order-7"}, "Nats-Expected-Stream": {"FLOWGATE"}, "nats-ttl": {"1s"}, "NATS-ROLLUP": {"all"}, "Nats-Schedule": {"@every 1s"}, "Nats-": {"x"},
			// And it may not pass for us.
			"Flowgate-Error": {"nothing"}, "Flowgate-Id": {"globex/1", "globex/2"}, "Flowgate-Deadline": {"2026-11-12T13:14:16Z"},
		}
		put(t, l, d, errors.New("postgres: ERROR: bad row\r\nDETAIL: \x00\xff"))
		m := letter(t, stream, 1)
		if m.Subject != "flowgate.dlq.acme.orders.new" || !bytes.Equal(m.Data, d.Payload) {
			t.Errorf("dead letter at %s with %q", m.Subject, m.Data)
		}
		if diff := cmp.Diff(nats.Header{
			"Content-Type": {"text/plain"}, "Many": {"a", "b"}, "traceparent": {"00-1-2-03"}, "Flowgate-Deadline": {"2026-11-12T13:14:16Z"},
			"Flowgate-Id": {"acme/order-7"}, "Flowgate-Tenant": {"acme"}, "Flowgate-Topic": {"orders.new"}, "Flowgate-Seq": {"7"}, "Flowgate-Attempts": {"5"},
			"Flowgate-Admitted-At": {"2026-11-12T13:14:15.161718Z"}, "Flowgate-Error": {"postgres: ERROR: bad row  DETAIL:  \uFFFD"}, "Flowgate-Error-Class": {"attempts"},
			"Nats-Msg-Id": {"FLOWGATE@i1/7"},
		}, m.Header); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"order-7"}, d.Headers["Nats-Msg-Id"]); diff != "" {
			t.Errorf("the delivery's own headers were changed:\n%s", diff)
		}

		bare := aDelivery(8)
		bare.Topic, bare.Payload = "", nil
		put(t, l, bare, ErrExpired)
		m = letter(t, stream, 2)
		if m.Subject != "flowgate.dlq.acme" || len(m.Data) != 0 || !strings.Contains(m.Header.Get("Flowgate-Error"), "expired") {
			t.Errorf("dead letter without topic and body: %s %v %q", m.Subject, m.Header, m.Data)
		}

		long := aDelivery(9)
		put(t, l, long, errors.New(strings.Repeat("é", 100_000)))
		reason := letter(t, stream, 3).Header.Get("Flowgate-Error")
		if len(reason) > 1024 || len(reason) < 1000 || strings.Trim(reason, "é") != "" {
			t.Errorf("a long reason became %d bytes, ending in %q", len(reason), reason[len(reason)-5:])
		}
	})
}

func TestDeadLetterRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, stream := dlq(t, nil)
		d := aDelivery(7)
		put(t, l, d, errors.New("first"))
		time.Sleep(time.Minute)
		d.Attempt++
		put(t, l, d, errors.New("again")) // after a crash before the message's own ack
		if n := letters(t, stream); n != 1 {
			t.Errorf("%d dead letters of one message, want 1", n)
		}

		// Another message with the same id of its producer is another dead letter, and
		// so is one with the same sequence in a stream that was made anew.
		twin := aDelivery(7)
		twin.Seq = 8
		put(t, l, twin, errors.New("twin"))
		put(t, NewDeadLetters(l.js, "flowgate.dlq", "FLOWGATE@i2"), d, errors.New("anew"))
		if n := letters(t, stream); n != 3 {
			t.Errorf("%d dead letters of three messages, want 3", n)
		}
	})
}

func TestDeadLetterStreamFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, stream := dlq(t, func(c *jetstream.StreamConfig) { c.MaxBytes = 64 << 10 })
		big := aDelivery(1)
		big.Payload = make([]byte, 40<<10)
		put(t, l, big, errors.New("bad"))
		next := aDelivery(2)
		next.Payload = big.Payload
		err := l.Put(t.Context(), next, errors.New("bad"))
		wantError(t, err, "full", "FLOWGATE_DLQ_MAX_BYTES")
		if e, ok := errors.AsType[*jetstream.APIError](err); !ok || e.ErrorCode != 10077 {
			t.Errorf("the error does not tell the broker's: %v", err)
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, l, next, errors.New("bad"))
	})
}

// TestDeadLetterNotWritten: whatever keeps the broker from saying that it has it is
// an error.
func TestDeadLetterNotWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, stream := dlq(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
		large := aDelivery(1)
		large.Payload = make([]byte, 1990) // fits, but for what is added
		wantError(t, l.Put(t.Context(), large, errors.New("bad")), "flowgate.dlq.acme.orders.new", "maximum")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantError(t, l.Put(ctx, aDelivery(2), errors.New("bad")), "context canceled")
		if n := letters(t, stream); n > 1 {
			t.Errorf("%d dead letters", n)
		}

		if err := l.js.DeleteStream(t.Context(), "FLOWGATE_DLQ"); err != nil {
			t.Fatal(err)
		}
		wantError(t, l.Put(t.Context(), aDelivery(3), errors.New("bad")), "flowgate.dlq.acme.orders.new", "no response")
	})
}

// TestDeskOnTheBroker sees messages to their end: the desk with the real store.
func TestDeskOnTheBroker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, stream := dlq(t, func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 })
		desk, _ := newDesk(always(errors.New("no luck")), l)
		for n := 1; n <= 2; n++ {
			d := aDelivery(n)
			for ; d.Attempt < 3; d.Attempt++ {
				if o := desk.Attempt(t.Context(), []Delivery{d})[0]; o.Action != Later || !o.Counted {
					t.Fatalf("attempt %d: %+v", d.Attempt, o)
				}
			}
			if n == 2 { // no room for another: it stays, however often
				for range 3 {
					wantOutcome(t, desk.Attempt(t.Context(), []Delivery{d})[0], Outcome{Action: Later, Delay: 30 * time.Second}, "FLOWGATE_DLQ_MAX_BYTES")
				}
				if err := stream.Purge(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			wantOutcome(t, desk.Attempt(t.Context(), []Delivery{d})[0], Outcome{Action: Ack}, "no luck")
			m, err := stream.GetLastMsgForSubject(t.Context(), "flowgate.dlq.acme.orders.new")
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Header.Get("Flowgate-Seq") + " after " + m.Header.Get("Flowgate-Attempts"); got != []string{"", "1 after 3", "2 after 3"}[n] {
				t.Errorf("dead letter %s", got)
			}
		}
	})
}
