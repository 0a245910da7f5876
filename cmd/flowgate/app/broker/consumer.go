package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lookConsumers: the work queue has one consumer, ours.
func (p *plan) lookConsumers(ctx context.Context, js jetstream.JetStream) ([]Difference, error) {
	if p.backlog.have == nil {
		return nil, nil
	}
	t := p.topology
	stream, err := js.Stream(ctx, t.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		p.backlog.have = nil // deleted since the look
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", t.Stream, err)
	}
	var list []Difference
	infos := stream.ListConsumers(ctx)
	for info := range infos.Info() {
		if info.Name == t.Consumer {
			p.consumer = info
			list = append(list, compareConsumer(t.Stream, t.consumer(), info.Config)...)
			continue
		}
		list = append(list, Difference{"stream " + t.Stream, "consumers", t.Consumer + " and no other", info.Name, "it would take messages away"})
	}
	if err := infos.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", t.Stream, err)
	}
	return list, nil
}

// EnsureConsumer makes the durable if it is gone, or brings it in line; what cannot
// be changed is a MismatchError.
func EnsureConsumer(ctx context.Context, js jetstream.JetStream, t Topology) error {
	var have *jetstream.ConsumerInfo
	c, err := js.Consumer(ctx, t.Stream, t.Consumer)
	switch {
	case err == nil:
		have = c.CachedInfo()
		if list := compareConsumer(t.Stream, t.consumer(), have.Config); len(list) > 0 {
			return &MismatchError{list}
		}
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return &MismatchError{[]Difference{{fmt.Sprintf("consumer %s of stream %s", t.Consumer, t.Stream), "deliver_subject", "none: a pull consumer", "set", ""}}}
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("consumer %s of stream %s: %w", t.Consumer, t.Stream, err)
	}
	_, err = ensureConsumer(ctx, js, t, have)
	return err
}

// RenewConsumer makes the durable anew: the pull requests of a predecessor that hangs go
// with the old one, and would take messages otherwise. Who may not delete it works with
// it as it is.
func RenewConsumer(ctx context.Context, js jetstream.JetStream, t Topology) error {
	bounded, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	// A failure shows when it is made.
	_ = js.DeleteConsumer(bounded, t.Stream, t.Consumer)
	return EnsureConsumer(ctx, js, t)
}

// deleteTimeout bounds the wait for an answer that a missing right never lets come.
const deleteTimeout = 2 * time.Second

// ensureConsumer makes the durable, or updates have with our settings and leaves
// what else it has alone: metadata, sampling, a pause.
func ensureConsumer(ctx context.Context, js jetstream.JetStream, t Topology, have *jetstream.ConsumerInfo) (jetstream.Consumer, error) {
	want := t.consumer()
	if have != nil {
		m := have.Config
		m.Description = want.Description
		m.AckWait, m.MaxAckPending, m.MaxDeliver, m.BackOff = want.AckWait, want.MaxAckPending, want.MaxDeliver, nil
		m.HeadersOnly, m.InactiveThreshold = false, 0
		m.MaxRequestBatch, m.MaxRequestExpires, m.MaxRequestMaxBytes = 0, 0, 0
		m.MemoryStorage = want.MemoryStorage
		if reflect.DeepEqual(m, have.Config) {
			c, err := js.Consumer(ctx, t.Stream, t.Consumer)
			if err != nil {
				return nil, fmt.Errorf("consumer %s of stream %s: %w", t.Consumer, t.Stream, err)
			}
			return c, nil
		}
		want = m
		if have.Config.MemoryStorage != m.MemoryStorage {
			// It cannot be changed, but made anew; the messages stay. Who may not delete it
			// works with it as it is.
			bounded, cancel := context.WithTimeout(ctx, deleteTimeout)
			err := js.DeleteConsumer(bounded, t.Stream, t.Consumer)
			cancel()
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				want.MemoryStorage = have.Config.MemoryStorage
			}
		}
	}
	c, err := js.CreateOrUpdateConsumer(ctx, t.Stream, want)
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", t.Consumer, t.Stream, explain(ctx, js, t, err))
	}
	return c, nil
}
