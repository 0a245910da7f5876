package shaper

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/bubble"
)

// TestPullerReadsOn: however small what is asked for at once, what waits is read without
// a pause.
func TestPullerReadsOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 4000)
		for _, ask := range []int{1, 2, 8, 64} {
			if _, err := r.js.ResetConsumer(t.Context(), streamName, consumerName); err != nil {
				t.Fatal(err)
			}
			p, err := newPuller(r.connect(), streamName, consumerName, ask, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for n := range 4000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if _, err := p.next(ctx); err != nil {
					t.Fatalf("asked for %d: after %d messages: %v", ask, n, err)
				}
				cancel()
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("asked for %d: %s", ask, took)
			}
			p.stop()
		}
	})
}

// TestPullerTakesTheOversized: messages that no request has room for are read too.
func TestPullerTakesTheOversized(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 100)
		p, err := newPuller(r.connect(), streamName, consumerName, 8, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		p.bytes = 10
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for n := range 100 {
			if _, err := p.next(ctx); err != nil {
				t.Fatalf("after %d messages: %v", n, err)
			}
		}
	})
}

// TestPullerOutlivesItsRequests: a message that comes long after it was asked for, and
// some after it, come at once.
func TestPullerOutlivesItsRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		p, err := newPuller(r.connect(), streamName, consumerName, 8, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		var published sync.WaitGroup
		published.Go(func() {
			for range 5 {
				time.Sleep(17 * time.Minute)
				r.publish("acme", 12)
			}
		})
		defer published.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		for n := range 60 {
			m, err := p.next(ctx)
			if err != nil {
				t.Fatalf("after %d messages: %v", n, err)
			}
			meta, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			if late := time.Since(meta.Timestamp); late > time.Second {
				t.Errorf("message %d came %s after it was stored", n, late)
			}
		}
	})
}

// TestPullerTells what is wrong.
func TestPullerTells(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		nc := r.connect()
		read := func(consumer string) (time.Duration, error) {
			ctx, stop := context.WithCancelCause(t.Context())
			p, err := newPuller(nc, streamName, consumer, 8, stop)
			if err != nil {
				t.Fatal(err)
			}
			defer p.stop()
			began := time.Now()
			_, err = p.next(ctx)
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return time.Since(began), err
		}
		if took, err := read("nobody"); !errors.Is(err, nats.ErrNoResponders) || took > time.Second {
			t.Errorf("a consumer that is not there: %v after %s", err, took)
		}
		if _, err := nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT."+streamName+".mute", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		if took, err := read("mute"); !errors.Is(err, errSilent) || took != 2*pullHeartbeat {
			t.Errorf("a broker that is silent: %v after %s", err, took)
		}
		go func() {
			time.Sleep(time.Minute)
			_ = r.js.DeleteConsumer(t.Context(), streamName, consumerName)
		}()
		if took, err := read(consumerName); err == nil || !strings.Contains(err.Error(), "Consumer Deleted") || took < time.Minute {
			t.Errorf("a consumer that was deleted: %v after %s", err, took)
		}
	})
}
