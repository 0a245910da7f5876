package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

// publish stores n messages in the backlog.
func publish(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for range n {
		if _, err := js.Publish(t.Context(), subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// wantFull checks that the broker refuses one more message.
func wantFull(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.Publish(t.Context(), subject, []byte("x"))
	if e, ok := errors.AsType[*jetstream.APIError](err); !ok || e.Code != 503 || e.ErrorCode != 10077 {
		t.Errorf("a message above the bound: %v, want 503 and 10077", err)
	}
}

func TestTheBrokerHoldsTheBounds(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := testTopology()
	top.MaxMsgs = 3
	a := ensured(t, js, top)
	for i, want := range []bool{false, true} {
		ack, err := js.Publish(t.Context(), subject, []byte("x"), jetstream.WithMsgID("acme/1"))
		if err != nil || ack.Duplicate != want {
			t.Errorf("message %d with one id: %+v, %v", i, ack, err)
		}
	}
	publish(t, js, 2)
	wantFull(t, js)
	m, err := a.Consumer.Next(jetstream.FetchMaxWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	wantFull(t, js) // what is handed out still counts
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, js, 1)
	wantFull(t, js)
}

// Limits below what is stored drop nothing: the broker refuses more until enough is
// delivered.
func TestLimitsBelowWhatIsStored(t *testing.T) {
	const stored = 200
	for _, tc := range []struct {
		name  string
		given func(*jetstream.StreamConfig)
		lower func(*Topology)
	}{
		{"messages", func(*jetstream.StreamConfig) {}, func(top *Topology) { top.MaxMsgs = 20 }},
		{"bytes", func(*jetstream.StreamConfig) {}, func(top *Topology) { top.MaxBytes = 1000 }},
		{"both", func(*jetstream.StreamConfig) {}, func(top *Topology) { top.MaxMsgs, top.MaxBytes = 20, 1000 }},
		// Limits that are enforced before it is made to keep what it has would drop 180.
		{"of a stream that dropped old ones", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, func(top *Topology) { top.MaxMsgs = 20 }},
		{"of a stream that counts by subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 1000, true }, func(top *Topology) { top.MaxMsgs = 20 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			b, err := Start(t.Context(), cfg, quiet())
			if err != nil {
				t.Fatal(err)
			}
			_, js := gateway(t, b)
			top := testTopology()
			c := top.backlog()
			tc.given(&c)
			if _, err := js.CreateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			publish(t, js, stored)
			tc.lower(&top)
			if a := ensured(t, js, top); a.Messages != stored {
				t.Fatalf("%d of %d messages are left", a.Messages, stored)
			}
			wantFull(t, js)
			// Nor does the server drop any when it reads its store again.
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, js = gateway(t, start(t, cfg))
			a := ensured(t, js, top)
			if a.Messages != stored {
				t.Fatalf("%d of %d messages are left after a restart", a.Messages, stored)
			}
			wantFull(t, js)
			batch, err := a.Consumer.Fetch(stored, jetstream.FetchMaxWait(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			var seqs []uint64
			for m := range batch.Messages() {
				meta, err := m.Metadata()
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, meta.Sequence.Stream)
				if len(seqs) == stored-20 {
					wantFull(t, js) // 21 are left
				}
				if err := m.DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			want := make([]uint64, stored)
			for i := range want {
				want[i] = uint64(i) + 1
			}
			if diff := cmp.Diff(want, seqs); diff != "" {
				t.Errorf("delivered (-want +got):\n%s", diff)
			}
			publish(t, js, 1)
			// Raised again, it takes more.
			top.MaxMsgs, top.MaxBytes = stored, 1<<20
			ensured(t, js, top)
			publish(t, js, 50)
		})
	}
}
