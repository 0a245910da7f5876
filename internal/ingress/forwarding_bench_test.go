package ingress

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/arrivals"
)

// tape records as the process does.
type tape struct{ log *arrivals.Log }

func (tape) Recording() bool { return true }

func (t tape) Arrived(at int64, tenant, topic, id string, bytes int) {
	t.log.Add(at, tenant, topic, id, bytes)
	select {
	case <-t.log.Full():
		t.log.Take(at, nil)
	default:
	}
}

// BenchmarkForward is a message's way from an unmodified client through the door and
// the embedded server to its acknowledgement, against the same while it is recorded, and
// without the door.
func BenchmarkForward(b *testing.B) {
	records := func(_ *Config, d *Deps, _ *jetstream.StreamConfig) { d.Recorder = tape{arrivals.NewLog(d.Clock())} }
	for _, to := range []struct {
		name, subject string
		changes       []change
	}{{"gateway", "ingress.acme.orders", nil}, {"recording", "ingress.acme.orders", []change{records}}, {"raw", "flowgate.backlog.acme.orders", nil}} {
		b.Run(to.name+"/async", func(b *testing.B) {
			js, err := jetstream.New(newRig(b, to.changes...).run().connect(), jetstream.WithPublishAsyncMaxPending(4000))
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 256)
			for b.Loop() {
				if _, err := js.PublishAsync(to.subject, payload, jetstream.WithStallWait(1<<40)); err != nil {
					b.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
		})
		b.Run(to.name+"/sync", func(b *testing.B) {
			js := newRig(b, to.changes...).run().producer()
			payload := make([]byte, 256)
			for b.Loop() {
				if _, err := js.Publish(b.Context(), to.subject, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
