package consumers

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/bubble"
)

// BenchmarkGraveyard is what a look at 50,000 dead letters costs, and a replay.
func BenchmarkGraveyard(b *testing.B) {
	s := bubble.Server(b)
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		b.Fatal(err)
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "FLOWGATE_DLQ", Subjects: []string{"flowgate.dlq.>"}, AllowDirect: true},
		{Name: "FLOWGATE", Subjects: []string{"flowgate.backlog.>"}, AllowDirect: true},
	} {
		if _, err := js.CreateStream(b.Context(), cfg); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 50_000 {
		tenant := "acme"
		if i%1000 == 0 {
			tenant = "rare"
		}
		h := nats.Header{}
		h.Set(IDHeader, fmt.Sprintf("%s/%d", tenant, i))
		h.Set(nats.MsgIdHdr, fmt.Sprintf("FLOWGATE@i1/%d", i))
		h.Set(classHeader, string(ClassPermanent))
		h.Set(errorHeader, "no such column")
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: "flowgate.dlq." + tenant + ".orders", Header: h, Data: make([]byte, 1024)}); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	y := NewGraveyard(GraveyardDeps{
		JS: js, Stream: "FLOWGATE_DLQ", Subjects: "flowgate.dlq", BacklogStream: "FLOWGATE", Backlog: "flowgate.backlog",
		Room: func() bool { return true }, Replayed: func(uint64, int) {}, Registerer: prometheus.NewRegistry(),
	})
	list := func(f DeadLetterFilter, newest bool) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for next := &f; next != nil; {
					p, err := y.List(b.Context(), *next, newest, 100)
					if err != nil {
						b.Fatal(err)
					}
					if next = p.Next; len(p.Letters) > 0 {
						break
					}
				}
			}
		}
	}
	b.Run("newest", list(DeadLetterFilter{}, true))
	b.Run("oldest", list(DeadLetterFilter{}, false))
	b.Run("rare tenant", list(DeadLetterFilter{Tenant: "rare"}, true))
	b.Run("none of a class", list(DeadLetterFilter{Class: ClassCrashed}, true))
	seq := uint64(0)
	b.Run("replay", func(b *testing.B) {
		for b.Loop() {
			seq++
			if _, err := y.Replay(b.Context(), seq); errors.Is(err, ErrNoDeadLetter) {
				b.Skip("no more")
			} else if err != nil {
				b.Fatal(err)
			}
		}
	})
}
