package broker

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Left is how many bytes more the broker can store for the streams of t: what is free on
// the embedded server's disk, and what the account's limits leave. It is negative if
// neither is known.
func (b *Broker) Left(ctx context.Context, js jetstream.JetStream, t Topology) int64 {
	room := int64(-1)
	if b.server != nil {
		if free, err := freeBytes(b.cfg.DataDir); err == nil {
			room = free
		}
	}
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return room
	}
	tier := tierOf(info, t)
	if most := tier.Limits.MaxStore; most > 0 {
		left := max(0, most-int64(tier.Store))
		if room < 0 || left < room {
			room = left
		}
	}
	return room
}
