package simulation

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/admission"
	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
	"github.com/flowgate/flowgate/internal/shaper"
)

// Config is the gateway's, as far as it decides anything.
type Config struct {
	Mode         ingress.Mode
	Ingress      ingress.Config
	Limit        limits.Config
	Backpressure backpressure.Config
	Shaper       shaper.Config
	Consumer     consumers.Config
}

// epoch is when a simulation begins, in Unix nanoseconds: some parts see the time of day.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// gateway is the real parts, put together as the process does, and the clock they share.
type gateway struct {
	now     int64
	door    *ingress.Rehearsal
	backlog *backpressure.Backlog
	outlet  *shaper.Rehearsal
	desk    *consumers.Desk
	dead    *graves
	seq     uint64
	away    int64 // since when the breaker is not closed; 0: it is
}

func newGateway(cfg Config, draw func() float64, decided func(ingress.Decision)) (*gateway, error) {
	g := &gateway{now: epoch, dead: &graves{}}
	clock := func() int64 { return g.now }
	set, err := limits.New(cfg.Limit, clock)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	everyone := func(string) string { return "all" }
	g.desk = consumers.NewDesk(cfg.Consumer, nil, g.dead, everyone, prometheus.NewRegistry(), log)
	g.desk.Draw(draw)
	g.backlog = backpressure.New(cfg.Backpressure.Rules(), backpressure.Deps{
		Clock: clock, Rate: func() float64 { return g.outlet.Rate().Effective }, Stalled: g.stalled,
		Lenient: cfg.Mode != ingress.Enforce, Logger: log,
	})
	g.backlog.SetWeights(cfg.Shaper.Weights)
	g.outlet, err = shaper.NewRehearsal(cfg.Shaper, shaper.Deps{
		Outlet: outlet{g.desk}, Backlog: g.backlog, Clock: clock,
		Concurrency: cfg.Consumer.Concurrency, Batch: cfg.Consumer.Batch, BatchWait: cfg.Consumer.BatchWait,
		Ordered: cfg.Consumer.Order == consumers.OrderTenant,
	})
	if err != nil {
		return nil, err
	}
	g.door = ingress.NewRehearsal(cfg.Ingress, cfg.Mode, admission.Limits{Set: set}, admission.Backlog{Backlog: g.backlog}, decided)
	return g, nil
}

// stored is what becomes of an admitted message at the broker, which takes no time.
func (g *gateway) stored(tenant string) (seq uint64) {
	g.seq++
	g.outlet.Arrive(g.seq, tenant)
	g.backlog.Confirmed(g.seq, g.seq)
	return g.seq
}

// stalled is the gateway's own: nothing is delivered on purpose, and until when, if it is
// known.
func (g *gateway) stalled() (until int64, stalled bool) {
	if g.desk.BreakerState() != consumers.BreakerClosed {
		return 0, true
	}
	if p, ok := g.outlet.Paused(); ok {
		return p.Until.UnixNano(), true
	}
	return 0, false
}

// observe is what the gateway looks at each second.
func (g *gateway) observe(cfg Config, messages, bytes uint64) {
	if g.desk.BreakerState() == consumers.BreakerClosed {
		g.away = 0
	} else if g.away == 0 {
		g.away = g.now
	}
	r := backpressure.Readings{Room: -1}
	if g.away != 0 {
		r.Outage = max(1, time.Duration(g.now-g.away))
	}
	if cfg.Backpressure.HighAge != 0 {
		if at, ok := g.outlet.OldestWaiting(); ok {
			r.Age = time.Duration(g.now - at.UnixNano())
		}
	}
	g.backlog.Observe(g.now, r)
	g.backlog.Stored(messages, bytes)
}

// outlet is a desk that is asked whether a delivery may start; the delivery is the
// simulation's.
type outlet struct{ *consumers.Desk }

func (outlet) Attempt(context.Context, []consumers.Delivery) []consumers.Outcome {
	panic("simulation: an attempt is made by Begin and End")
}

// graves take every dead letter.
type graves struct{ n int }

func (g *graves) Put(context.Context, consumers.Delivery, error) error {
	g.n++
	return nil
}
