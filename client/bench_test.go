package client_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/client"
	"github.com/flowgate/flowgate/internal/bubble"
)

// BenchmarkPublish compares the client with the plain one on a stream that takes all.
func BenchmarkPublish(b *testing.B) {
	s := bubble.Server(b)
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1024))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"ingress.>"}, Storage: jetstream.MemoryStorage, MaxMsgs: 100}); err != nil {
		b.Fatal(err)
	}
	msg := func() *nats.Msg { return &nats.Msg{Subject: "ingress.acme.orders", Data: make([]byte, 256)} }
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if _, err := js.PublishMsgAsync(msg()); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
	})
	b.Run("client", func(b *testing.B) {
		c, err := client.New(js, client.Config{})
		if err != nil {
			b.Fatal(err)
		}
		var last *client.Future
		for b.Loop() {
			last = c.PublishMsgAsync(b.Context(), msg())
		}
		if _, err := last.Result(); err != nil {
			b.Error(err)
		}
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
}
