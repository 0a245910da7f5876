package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// trial makes a work queue and a bucket of random names as the gateway would, sends
// a message through, and removes both. Without the right to remove them it makes
// nothing.
func (c *check) trial(ctx context.Context) {
	id := "CHECK_" + nuid.Next()[14:]
	t := c.t
	t.Stream, t.StateBucket = t.Stream+"_"+id, t.StateBucket+"_"+id
	subject := c.t.space() + ".check." + id
	for _, right := range []string{
		"$JS.API.STREAM.DELETE." + t.Stream, "$JS.API.STREAM.DELETE.KV_" + t.StateBucket,
		"$JS.API.STREAM.CREATE." + t.Stream, "$JS.API.STREAM.CREATE.KV_" + t.StateBucket,
		subject + ".check",
	} {
		ok, err := c.tryPublish(ctx, rightTo(right))
		if err != nil {
			c.add(Finding{Name: "trial", Err: err})
			return
		}
		if !ok {
			c.add(Finding{Name: "trial", Skipped: true, Detail: "not tried: flowgate's user may not publish " + right +
				", which only this trial needs; the rights on the gateway's own names were tested one by one"})
			return
		}
	}
	if held, err := Overlapping(ctx, c.js, subject+".>"); err != nil || len(held) > 0 {
		c.add(Finding{Name: "trial", Skipped: true, Detail: fmt.Sprintf("not tried: other streams hold its subject %s.>: %v", subject, held)})
		return
	}
	t.Backlog = subject
	if c.exists {
		// What is there has set its bytes aside already; twice might be too much.
		t.MaxBytes = 1 << 20
	}
	ctx, cancel := context.WithTimeout(ctx, 4*probeTime)
	defer cancel()
	f := Finding{Name: "trial", Detail: "a stream, a consumer and a bucket of random names worked, and were removed"}
	f.Err = errors.Join(c.tryQueue(ctx, t), c.tryBucket(ctx, t))
	c.add(f)
}

func rightTo(subject string) right { return right{subject: subject, body: malformed} }

// tryQueue is a message's path: stored, handed out, handed out again after a reset,
// read by its sequence, acknowledged.
func (c *check) tryQueue(ctx context.Context, t Topology) (err error) {
	stream, err := c.js.CreateStream(ctx, t.backlog())
	if err != nil {
		return fmt.Errorf("make a stream: %w", errors.Join(explain(ctx, c.js, t, err), c.removeUnsure(ctx, t.Stream, err)))
	}
	defer func() { err = errors.Join(err, c.remove(ctx, t.Stream)) }()
	if _, err := c.js.Publish(ctx, t.Backlog+".check", []byte("x")); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	consumer, err := stream.CreateOrUpdateConsumer(ctx, t.consumer())
	if err != nil {
		return fmt.Errorf("make a consumer: %w", explain(ctx, c.js, t, err))
	}
	if _, err := consumer.Next(jetstream.FetchMaxWait(probeTime)); err != nil {
		return fmt.Errorf("pull a message: %w", err)
	}
	if _, err := stream.ResetConsumer(ctx, t.Consumer); err != nil {
		return fmt.Errorf("reset the consumer: %w", err)
	}
	again, err := consumer.Next(jetstream.FetchMaxWait(probeTime))
	if err != nil {
		return fmt.Errorf("pull a message again after the reset: %w", err)
	}
	if _, err := stream.GetMsg(ctx, 1); err != nil {
		return fmt.Errorf("read a message by its sequence: %w", err)
	}
	if err := again.DoubleAck(ctx); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}

// tryBucket is what the lease does.
func (c *check) tryBucket(ctx context.Context, t Topology) (err error) {
	kv, err := c.js.CreateKeyValue(ctx, t.bucketConfig(t.StateBucket))
	if err != nil {
		return fmt.Errorf("make a bucket: %w", errors.Join(explain(ctx, c.js, t, err), c.removeUnsure(ctx, "KV_"+t.StateBucket, err)))
	}
	defer func() { err = errors.Join(err, c.remove(ctx, "KV_"+t.StateBucket)) }()
	revision, err := kv.Create(ctx, leaseKey, nil)
	if err != nil {
		return fmt.Errorf("write to a bucket: %w", err)
	}
	if _, err := kv.Get(ctx, leaseKey); err != nil {
		return fmt.Errorf("read from a bucket: %w", err)
	}
	if _, err := kv.Update(ctx, leaseKey, nil, revision); err != nil {
		return fmt.Errorf("update a bucket: %w", err)
	}
	return nil
}

// removeUnsure removes a stream of which it is not known whether it was made: the
// answer is missing.
func (c *check) removeUnsure(ctx context.Context, stream string, err error) error {
	if _, refused := errors.AsType[*jetstream.APIError](err); refused {
		return nil
	}
	if err := c.remove(ctx, stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// remove deletes what was made for the trial, also if ctx has ended.
func (c *check) remove(ctx context.Context, stream string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime+time.Second)
	defer cancel()
	if err := c.js.DeleteStream(ctx, stream); err != nil {
		return fmt.Errorf("remove the trial's stream %s: %w; remove it with `nats stream rm %s`", stream, err, stream)
	}
	return nil
}
