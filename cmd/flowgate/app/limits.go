package app

import (
	"context"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
	"github.com/flowgate/flowgate/internal/shaper"
)

// doorLimits gives the front door the limits in force.
type doorLimits struct{ set *limits.Set }

// Look implements ingress.Limits.
func (l doorLimits) Look(now int64, id ingress.Identity, cost int64) (ingress.Excess, bool) {
	who := limits.Identity(id)
	e, within := l.set.Look(now, &who, cost)
	if within {
		return ingress.Excess{}, true
	}
	wait := e.Wait
	if wait == algorithms.Never {
		wait = ingress.NoRetry
	}
	return ingress.Excess{Scope: string(e.Scope), Key: e.Key, Limit: e.Rule.String(), Wait: wait}, false
}

// Take implements ingress.Limits.
func (l doorLimits) Take(now int64, _ ingress.Identity, cost int64) { l.set.Take(now, cost) }

// Quotas implements ingress.Limits.
func (l doorLimits) Quotas(now int64, id ingress.Identity) []ingress.Quota {
	who := limits.Identity(id)
	standing := l.set.Quotas(now, &who)
	quotas := make([]ingress.Quota, len(standing))
	for i, q := range standing {
		quotas[i] = ingress.Quota{
			Scope: string(q.Scope), Limit: q.Rule.String(), Capacity: q.Rule.Capacity(), Window: q.Rule.Window(),
			Remaining: q.Remaining, Reset: q.Reset,
		}
	}
	return quotas
}

// openLimits makes the limits and puts the live ones in force, before a message is
// decided on, and the live weights, before one leaves.
func (g *gateway) openLimits(ctx context.Context) (err error) {
	if g.limits, err = limits.New(g.cfg.Limit, g.clock.now); err != nil {
		return err
	}
	g.liveLimits = limits.NewLive(limits.LiveDeps{
		Bucket: g.assets.Limits, Connection: g.js.Conn(),
		Apply:        func(entries []limits.Entry) error { return g.limits.Apply(g.clock.now(), entries) },
		ApplyWeights: g.applyWeights, CheckWeight: shaper.CheckWeight,
		Now:    time.Now,
		Logger: g.log,
	})
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return g.liveLimits.Load(ctx)
}
