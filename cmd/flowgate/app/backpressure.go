package app

import (
	"context"
	"time"

	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/consumers"
)

// stalled reports whether nothing is delivered on purpose, and until when, 0 if nobody
// knows.
func (g *gateway) stalled() (until int64, stalled bool) {
	pause := g.paused()
	if g.desk.BreakerState() != consumers.BreakerClosed {
		return 0, true
	}
	if pause == nil {
		return 0, false
	}
	if pause.Until.IsZero() {
		return 0, true
	}
	// The pause ends by the time of day.
	return g.clock.now() + int64(time.Until(pause.Until.Round(0))), true
}

// signalsEvery is how often what is known by no event is read.
const signalsEvery = time.Second

// watchSignals tells the backlog what it cannot count, until ctx ends.
func (g *gateway) watchSignals(ctx context.Context) error {
	tick := time.NewTicker(signalsEvery)
	defer tick.Stop()
	var away time.Time
	for {
		if g.desk.BreakerState() == consumers.BreakerClosed {
			away = time.Time{}
		} else if away.IsZero() {
			away = time.Now()
		}
		r := backpressure.Readings{Room: g.storage.Load()}
		if !away.IsZero() {
			r.Outage = max(1, time.Since(away))
		}
		if g.cfg.Backpressure.HighAge != 0 {
			if at, ok := g.shaper.OldestWaiting(); ok {
				r.Age = max(0, time.Since(at))
			}
		}
		g.backlog.Observe(g.clock.now(), r)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
