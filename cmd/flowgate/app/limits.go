package app

import (
	"context"
	"time"

	"github.com/flowgate/flowgate/internal/limits"
	"github.com/flowgate/flowgate/internal/shaper"
)

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
