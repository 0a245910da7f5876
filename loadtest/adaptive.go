package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/consumers"
)

// modelled is a consumer whose capacity is known. It takes time, or refuses, and
// notes what was delivered.
type modelled struct {
	answer func(ctx context.Context, now time.Time) error

	mu       sync.Mutex
	released []algorithms.Departure
	done     []time.Time
}

func (m *modelled) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	answers := make([]error, len(batch))
	for i, d := range batch {
		answers[i] = m.answer(ctx, time.Now())
		m.mu.Lock()
		m.released = append(m.released, algorithms.Departure{At: d.ReleasedAt.UnixNano(), N: 1})
		if answers[i] == nil {
			m.done = append(m.done, time.Now())
		}
		m.mu.Unlock()
	}
	return answers
}

func (m *modelled) Close() error { return nil }

// between is what was delivered a second in a span of time.
func (m *modelled) between(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, at := range m.done {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return float64(n) / to.Sub(from).Seconds()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kneeAt works on so many at once, each for the same time; the others queue. It does
// so by its own clock: that a machine wakes it late does not lessen its capacity.
func kneeAt(n int, each time.Duration) func(context.Context, time.Time) error {
	var mu sync.Mutex
	free := make([]time.Time, n)
	return func(ctx context.Context, now time.Time) error {
		mu.Lock()
		first := 0
		for i := range free {
			if free[i].Before(free[first]) {
				first = i
			}
		}
		if free[first].Before(now) {
			free[first] = now
		}
		free[first] = free[first].Add(each)
		ends := free[first]
		mu.Unlock()
		return pause(ctx, time.Until(ends))
	}
}

// overRefused refuses what is over a rate a second, with a burst.
func overRefused(perSecond, burst float64) func(context.Context, time.Time) error {
	var mu sync.Mutex
	tokens, last := burst, time.Now()
	return func(ctx context.Context, now time.Time) error {
		mu.Lock()
		tokens, last = min(burst, tokens+now.Sub(last).Seconds()*perSecond), now
		refused := tokens < 1
		if !refused {
			tokens--
		}
		mu.Unlock()
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
		if refused {
			return consumers.Overloaded(0, errors.New("503 Service Unavailable"))
		}
		return nil
	}
}

// ceiling is the configured rate, above what each consumer but the first can do.
var ceiling = algorithms.Rate{N: 300, Per: time.Second}

// adaptiveTimes are how long a consumer has to settle, how long what it does is
// measured, how long it is away and how long it has to recover.
type adaptiveTimes struct{ settle, length, away, recovery time.Duration }

// measureAdaptive delivers to consumers of known capacity at an adaptive rate, and has
// one of them be away.
func measureAdaptive(ctx context.Context, short bool) ([]figure, error) {
	t := adaptiveTimes{settle: 15 * time.Second, length: 30 * time.Second, away: 30 * time.Second, recovery: 10 * time.Second}
	if short {
		t = adaptiveTimes{500 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond}
	}
	var figures []figure
	for _, c := range []struct {
		name     string
		answer   func(context.Context, time.Time) error
		capacity float64
		goes     bool // away for a time
	}{
		{"constant latency of 20 ms, ", func(ctx context.Context, _ time.Time) error { return pause(ctx, 20*time.Millisecond) }, 300, false},
		{"a knee at 10 in flight, ", kneeAt(10, 50*time.Millisecond), 200, false},
		{"503 over 100/s, ", overRefused(100, 5), 100, false},
		{fmt.Sprintf("away for %s, ", t.away), kneeAt(10, 50*time.Millisecond), 200, true},
	} {
		times := t
		if !c.goes {
			times.away = 0
		}
		f, err := measureOneAdaptive(ctx, c.name, &modelled{answer: c.answer}, c.capacity, times)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func measureOneAdaptive(ctx context.Context, name string, m *modelled, capacity float64, t adaptiveTimes) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	answer := m.answer
	var gone, back time.Time // the outage; set before anything is delivered
	m.answer = func(ctx context.Context, now time.Time) error {
		if now.After(gone) && now.Before(back) {
			return consumers.Overloaded(0, errors.New("connection refused"))
		}
		return answer(ctx, now)
	}
	began := time.Now().Add(time.Second) // to start and to fill take less, or are part of the settling
	if t.away > 0 {
		gone = began.Add(t.settle + t.length)
		back = gone.Add(t.away)
	}
	g, err := startGateway(ctx, dir, m, "FLOWGATE_SHAPER_ADAPTIVE=on", "FLOWGATE_SHAPER_RATE="+ceiling.String(),
		"FLOWGATE_CONSUMER_CONCURRENCY=50", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=40000")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	total := 2*time.Second + t.settle + t.length
	if t.away > 0 {
		total += t.away + t.recovery + t.length
	}
	if err := fill(ctx, g.url, load{messages: int(total.Seconds() * capacity * 1.2)}); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Until(began.Add(t.settle+t.length))); err != nil {
		return nil, err
	}
	percent := func(from time.Time) float64 { return m.between(from, from.Add(t.length)) / capacity * 100 }
	figures = append(figures, figure{what: name + "delivered of its capacity", value: percent(began.Add(t.settle)), unit: "%", least: 90, most: 105})
	if t.away > 0 {
		if err := pause(ctx, time.Until(back.Add(t.recovery+t.length))); err != nil {
			return nil, err
		}
		took := time.Duration(0)
		for took < t.recovery+t.length && m.between(back.Add(took), back.Add(took+time.Second)) < 0.9*capacity {
			took += 100 * time.Millisecond
		}
		figures = append(figures,
			figure{what: name + "at 90 % of its capacity again after", value: took.Seconds(), unit: "s", most: t.recovery.Seconds()},
			figure{what: name + "then delivered of its capacity", value: percent(back.Add(t.recovery)), unit: "%", least: 90, most: 105})
	}
	m.mu.Lock()
	released := slices.Clone(m.released)
	m.mu.Unlock()
	promise := algorithms.CheckRate(released, ceiling, tolerance)
	return append(figures, figure{what: name + "fullest window against what " + ceiling.String() + " allows", value: float64(promise.Count) - promise.Allowed, unit: "deliveries over", most: 1e-6}), nil
}
