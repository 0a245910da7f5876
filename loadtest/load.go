package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// load is messages to be published, as fast as the broker takes them, to the tenants in
// turn.
type load struct {
	prefix   string // empty: ingress
	messages int
	tenants  int // 0: 3
	size     int // bytes of each; 0: 256
}

// fill publishes over a connection of its own.
func fill(ctx context.Context, url string, l load) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return publish(ctx, js, l)
}

// publish returns when the last is acknowledged.
func publish(ctx context.Context, js jetstream.JetStream, l load) error {
	body := make([]byte, cmp.Or(l.size, 256))
	prefix, tenants := cmp.Or(l.prefix, "ingress"), cmp.Or(l.tenants, 3)
	for i := range l.messages {
		if _, err := js.PublishAsync(fmt.Sprintf("%s.tenant%d.orders", prefix, i%tenants), body, jetstream.WithStallWait(10*time.Second)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flood publishes at a rate, whatever the answers, until ctx ends; subject is that of the
// i-th message.
func flood(ctx context.Context, js jetstream.JetStream, subject func(i int) string, perSecond float64) error {
	const each = 2 * time.Millisecond
	tick := time.NewTicker(each)
	defer tick.Stop()
	start, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for want := int(time.Since(start).Seconds() * perSecond); sent < want; sent++ {
			if _, err := js.PublishAsync(subject(sent), make([]byte, 256)); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}
