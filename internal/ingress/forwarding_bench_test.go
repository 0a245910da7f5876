package ingress

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkForward is a message's way from an unmodified client through the door and
// the embedded server to its acknowledgement, against the same without the door.
func BenchmarkForward(b *testing.B) {
	for _, to := range []struct{ name, subject string }{{"gateway", "ingress.acme.orders"}, {"raw", "flowgate.backlog.acme.orders"}} {
		b.Run(to.name+"/async", func(b *testing.B) {
			js, err := jetstream.New(newRig(b).run().connect(), jetstream.WithPublishAsyncMaxPending(4000))
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
			js := newRig(b).run().producer()
			payload := make([]byte, 256)
			for b.Loop() {
				if _, err := js.Publish(b.Context(), to.subject, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
