package shaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/units"
)

// modelled is a consumer of a known capacity that notes what it was given.
type modelled struct {
	judge func(now time.Time, d consumers.Delivery) error

	mu   sync.Mutex
	log  []attempt
	done []time.Time
}

func (m *modelled) Deliver(_ context.Context, batch []consumers.Delivery) []error {
	answers := make([]error, len(batch))
	for i, d := range batch {
		now := time.Now()
		answers[i] = m.judge(now, d)
		m.mu.Lock()
		m.log = append(m.log, attempt{d, now})
		if answers[i] == nil {
			m.done = append(m.done, time.Now())
		}
		m.mu.Unlock()
	}
	return answers
}

func (m *modelled) Close() error { return nil }

func (m *modelled) attempts() []attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// between is how many were delivered a second in a span of time.
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

type noGrave struct{}

func (noGrave) Put(context.Context, consumers.Delivery, error) error { return nil }

// runAdaptive runs a shaper with a desk before the consumer, at 200/s at most.
func (r *rig) runAdaptive(m *modelled, concurrency int, log *slog.Logger, reg *prometheus.Registry) (*running, *consumers.Desk) {
	cfg := config()
	cfg.Adaptive, cfg.Rate, cfg.RateMin = true, algorithms.Rate{N: 200, Per: time.Second}, algorithms.Rate{N: 1, Per: time.Minute}
	cfg.TargetLatency, cfg.Memory = 100*time.Millisecond, 64*units.MiB
	desk := consumers.NewDesk(consumers.Config{
		Concurrency: concurrency, Timeout: 10 * time.Second, MaxAttempts: 5,
		Backoff: 200 * time.Millisecond, BackoffMax: 30 * time.Second, Batch: 1,
	}, m, noGrave{}, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	s := r.run(cfg, func(d *Deps) {
		d.Outlet, d.Concurrency, d.Registerer = desk, concurrency, reg
		if log != nil {
			d.Logger = log
		}
	})
	return s, desk
}

func sleeping(d time.Duration) func(time.Time, consumers.Delivery) error {
	return func(time.Time, consumers.Delivery) error { time.Sleep(d); return nil }
}

// kneeAt works on so many at once.
func kneeAt(n int, each time.Duration) func(time.Time, consumers.Delivery) error {
	places := make(chan struct{}, n)
	return func(time.Time, consumers.Delivery) error {
		places <- struct{}{}
		time.Sleep(each)
		<-places
		return nil
	}
}

// overRefused refuses what is over a rate a second.
func overRefused(perSecond, burst float64, asks time.Duration) func(time.Time, consumers.Delivery) error {
	var mu sync.Mutex
	tokens, last := burst, time.Now()
	return func(now time.Time, _ consumers.Delivery) error {
		mu.Lock()
		tokens, last = min(burst, tokens+now.Sub(last).Seconds()*perSecond), now
		ok := tokens >= 1
		if ok {
			tokens--
		}
		mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		if !ok {
			return consumers.Overloaded(asks, errors.New("503"))
		}
		return nil
	}
}

// TestAdaptiveSettles: 90 to 105 % of what the consumer can do, never over the
// configured rate, and after an outage of 30 s again within 10 s.
func TestAdaptiveSettles(t *testing.T) {
	for name, test := range map[string]struct {
		judge       func() func(time.Time, consumers.Delivery) error
		concurrency int
		capacity    float64
	}{
		"constant latency":       {func() func(time.Time, consumers.Delivery) error { return sleeping(20 * time.Millisecond) }, 16, 200},
		"few in flight":          {func() func(time.Time, consumers.Delivery) error { return sleeping(50 * time.Millisecond) }, 4, 80},
		"a knee at 10 in flight": {func() func(time.Time, consumers.Delivery) error { return kneeAt(10, 80*time.Millisecond) }, 50, 125},
		"503 over 100/s":         {func() func(time.Time, consumers.Delivery) error { return overRefused(100, 5, 0) }, 16, 100},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.publish("acme", int(80*test.capacity))
				judge, began := test.judge(), time.Now()
				from, until := began.Add(30*time.Second), began.Add(60*time.Second)
				m := &modelled{judge: func(now time.Time, d consumers.Delivery) error {
					if now.After(from) && now.Before(until) {
						return consumers.Overloaded(0, errors.New("connection refused"))
					}
					return judge(now, d)
				}}
				s, desk := r.runAdaptive(m, test.concurrency, nil, prometheus.NewRegistry())
				time.Sleep(29 * time.Second)
				settled := m.between(began.Add(15*time.Second), time.Now()) / test.capacity * 100
				time.Sleep(30 * time.Second)
				if desk.BreakerState() == consumers.BreakerClosed {
					t.Error("the breaker is closed after an outage of 29 s")
				}
				time.Sleep(25 * time.Second) // until 24 s after the outage
				back := time.Duration(0)
				for back = 0; back < 20*time.Second && m.between(until.Add(back), until.Add(back+2*time.Second)) < 0.9*test.capacity; back += 100 * time.Millisecond {
				}
				after := m.between(until.Add(10*time.Second), until.Add(24*time.Second)) / test.capacity * 100
				t.Logf("%.1f %% of capacity, back after %s, then %.1f %%; now %+v", settled, back, after, s.Rate())
				if settled < 90 || settled > 105 || after < 90 || after > 105 {
					t.Errorf("%.1f %% and after the outage %.1f %% of the capacity", settled, after)
				}
				if back >= 10*time.Second {
					t.Errorf("at 90 %% of its capacity again after %s", back)
				}
				log := m.attempts()
				for _, a := range log {
					if a.Attempt != 1 {
						t.Fatalf("attempt %d at %s: overload and outage cost attempts", a.Attempt, a.ID)
					}
				}
				if e := algorithms.CheckRate(departures(log), algorithms.Rate{N: 200, Per: time.Second}, 5*time.Millisecond); e.Broken {
					t.Errorf("%d departures in %s, allowed %.2f", e.Count, time.Duration(e.To-e.From), e.Allowed)
				}
			})
		})
	}
}

// TestAdaptiveStaysNearWhatIsDelivered: what FLOWGATE_CONSUMER_CONCURRENCY holds back is
// no reason for a higher rate.
func TestAdaptiveStaysNearWhatIsDelivered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 4000)
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		m := &modelled{judge: func(time.Time, consumers.Delivery) error {
			mu.Lock()
			takes := time.Duration((0.8 + 0.4*random.Float64()) * float64(80*time.Millisecond))
			mu.Unlock()
			time.Sleep(takes)
			return nil
		}}
		s, _ := r.runAdaptive(m, 4, nil, prometheus.NewRegistry())
		time.Sleep(time.Minute)
		got := m.between(time.Now().Add(-45*time.Second), time.Now())
		if got < 45 || got > 52.5 {
			t.Errorf("%.1f/s of 50/s", got)
		}
		if now := s.Rate(); now.Effective > 1.5*got || now.Reason != algorithms.RateUnused {
			t.Errorf("%.1f/s are delivered, and the rate is %+v", got, now)
		}
	})
}

// TestAdaptiveObeysRetryAfter: nothing starts before the pause is over, and then it is
// slower.
func TestAdaptiveObeysRetryAfter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 3000)
		log, reg := &bubble.Log{}, prometheus.NewRegistry()
		var once sync.Once
		answered := make(chan time.Time, 1)
		m := &modelled{judge: func(now time.Time, _ consumers.Delivery) error {
			time.Sleep(time.Millisecond)
			asks := false
			if now.Sub(r.start) > 8*time.Second {
				once.Do(func() { asks = true })
			}
			if asks {
				answered <- time.Now()
				return consumers.Overloaded(5*time.Second, errors.New("429"))
			}
			return nil
		}}
		s, _ := r.runAdaptive(m, 4, log.Logger(slog.LevelInfo), reg)
		time.Sleep(7 * time.Second)
		if now := s.Rate(); now.Effective != 200 || now.Configured != 200 || now.Reason != algorithms.RateConfigured {
			t.Fatalf("after 7 s without trouble: %+v", now)
		}
		time.Sleep(3 * time.Second)
		if now := s.Rate(); now.Effective > 181 || now.Reason != algorithms.RateRetryAfter {
			t.Errorf("after Retry-After: %+v", now)
		}
		time.Sleep(10 * time.Second)
		asked := <-answered
		for _, a := range m.attempts() {
			if a.at.After(asked) && a.at.Before(asked.Add(5*time.Second)) {
				t.Fatalf("a delivery started %s after a Retry-After of 5 s", a.at.Sub(asked))
			}
		}
		if n := m.between(asked.Add(5*time.Second), asked.Add(9*time.Second)); n < 100 {
			t.Errorf("%.0f deliveries a second after the pause", n)
		}
		if text := log.String(); !strings.Contains(text, "the rate was lowered") || !strings.Contains(text, "reason=retry_after") {
			t.Errorf("the log does not tell of it:\n%s", text)
		}
		if n := reduced(t, reg, "retry_after"); n != 1 {
			t.Errorf("%g reductions by Retry-After are counted, want 1", n)
		}
	})
}

func reduced(t *testing.T, reg *prometheus.Registry, reason string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "flowgate_shaper_rate_reductions_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestAdaptivePoison: messages at fault do not slow the others down; timeouts do.
func TestAdaptivePoison(t *testing.T) {
	for name, test := range map[string]struct {
		fails    func() error
		timeouts bool
	}{
		"rejected": {func() error { return consumers.Permanent(errors.New("bad row")) }, false},
		"failed":   {func() error { return errors.New("bad day") }, false},
		"slow":     {func() error { time.Sleep(time.Second); return consumers.Permanent(errors.New("bad row")) }, false},
		"hanging":  {func() error { time.Sleep(10 * time.Second); return context.DeadlineExceeded }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.publish("acme", 4000)
				m := &modelled{judge: func(_ time.Time, d consumers.Delivery) error {
					if d.Seq%500 == 0 {
						return test.fails()
					}
					time.Sleep(time.Millisecond)
					return nil
				}}
				reg := prometheus.NewRegistry()
				s, _ := r.runAdaptive(m, 16, nil, reg)
				time.Sleep(18 * time.Second)
				if n := reduced(t, reg, "timeout"); (n > 0) != test.timeouts {
					t.Errorf("lowered %g times by timeouts; now %+v", n, s.Rate())
				}
				if now := s.Rate(); !test.timeouts && now.Reason != algorithms.RateConfigured {
					t.Errorf("poison slowed it: %+v", now)
				}
			})
		})
	}
}

// TestAdaptiveRisesFromASlowFloor: the gap of a slow rate is not waited out.
func TestAdaptiveRisesFromASlowFloor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 3000)
		var slow atomic.Bool
		slow.Store(true)
		m := &modelled{judge: func(time.Time, consumers.Delivery) error {
			if time.Sleep(time.Millisecond); slow.Load() {
				time.Sleep(time.Second)
			}
			return nil
		}}
		s, _ := r.runAdaptive(m, 4, nil, prometheus.NewRegistry())
		time.Sleep(time.Hour)
		if now := s.Rate(); now.Effective != 1.0/60 || now.Reason != algorithms.RateLatency {
			t.Fatalf("slow for an hour: %+v", now)
		}
		slow.Store(false)
		time.Sleep(10 * time.Minute)
		if n := s.Rate().Effective; n < 100 {
			t.Errorf("fast for 10 minutes: %.2f/s", n)
		}
	})
}

// With ADAPTIVE off the rate is the configured one, whatever happens.
func TestAdaptiveOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.publish("acme", 100)
		r.destination.outcome = func(d consumers.Delivery) consumers.Outcome {
			return consumers.Outcome{Action: consumers.Later, Kind: consumers.Overload, Took: time.Minute}
		}
		s := r.run(config(), nil)
		time.Sleep(time.Minute)
		if got, want := fmt.Sprintf("%+v", s.Rate()), "{Configured:10 Effective:10 Reason:configured}"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if n := len(r.destination.log()); n < 598 {
			t.Errorf("%d deliveries in a minute at 10/s", n)
		}
	})
}
