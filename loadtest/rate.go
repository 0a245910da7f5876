package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/consumers"
)

// recorder notes each delivery's departure and its own time of receipt.
type recorder struct {
	mu       sync.Mutex
	released []algorithms.Departure
	received []algorithms.Departure
}

func (r *recorder) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range batch {
		r.released = append(r.released, algorithms.Departure{At: d.ReleasedAt.UnixNano(), N: 1})
		r.received = append(r.received, algorithms.Departure{At: now, N: 1})
	}
	return make([]error, len(batch))
}

// begin forgets what there was and makes room for so many, since growing takes so long
// that the deliveries would wait for it.
func (r *recorder) begin(room int) {
	released, received := make([]algorithms.Departure, 0, room), make([]algorithms.Departure, 0, room)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released, r.received = released, received
}

func (r *recorder) Close() error { return nil }

const tolerance = 5 * time.Millisecond // the default

// measureRate delivers for half a minute from a backlog that stands at 10,000: as many
// come as leave.
func measureRate(ctx context.Context, short bool) ([]figure, error) {
	var figures []figure
	for _, perSecond := range []uint64{10, 100, 1000, 10_000} {
		length := 30 * time.Second
		if perSecond < 100 {
			length = 2 * time.Minute // one delivery is a thousandth
		}
		if short {
			length = 2 * time.Second
		}
		f, err := measureOneRate(ctx, perSecond, length)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func measureOneRate(ctx context.Context, perSecond uint64, length time.Duration) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	rec := &recorder{}
	const standing = 10_000 // the default's HIGH
	g, err := startGateway(ctx, dir, rec, fmt.Sprintf("FLOWGATE_SHAPER_RATE=%d/s", perSecond),
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=20000")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	if err := fill(ctx, g.url, load{messages: standing}); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	toppedUp := make(chan error, 1)
	go func() { toppedUp <- topUp(running, g.url, perSecond) }()
	defer func() { stop(); err = errors.Join(err, <-toppedUp) }()
	rec.begin(int(float64(perSecond)*length.Seconds()*1.1) + 100)
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	rec.mu.Lock()
	released, received := slices.Clone(rec.released), slices.Clone(rec.received)
	rec.mu.Unlock()
	rate := algorithms.Rate{N: perSecond, Per: time.Second}
	promise := algorithms.CheckRate(released, rate, tolerance)
	seen := algorithms.CheckRate(received, rate, tolerance)
	span := time.Duration(released[len(released)-1].At - released[0].At).Seconds()
	name := fmt.Sprintf("%d/s for %s: ", perSecond, length)
	return []figure{
		{name + "achieved", float64(len(released)-1) / span / float64(perSecond) * 100, "%", 99.5, 0},
		{name + "fullest window against what is allowed, departures", float64(promise.Count) - promise.Allowed, "deliveries over", 0, 1e-6},
		{name + "the same by the receiver's clock", float64(seen.Count) - seen.Allowed, "deliveries over", 0, 0},
	}, nil
}

// topUp publishes as many messages as are delivered.
func topUp(ctx context.Context, url string, perSecond uint64) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return flood(ctx, js, func(i int) string { return fmt.Sprintf("ingress.tenant%d.orders", i%3) }, float64(perSecond))
}
