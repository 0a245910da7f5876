// Package admission answers what the front door asks: it is between the door, which knows
// neither limits nor backlog, and those two, which do not know the door. The gateway and
// its simulation decide by the same.
package admission

import (
	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
)

// Limits gives the front door the limits in force.
type Limits struct{ *limits.Set }

var _ ingress.Limits = Limits{}

// Look implements ingress.Limits.
func (l Limits) Look(now int64, id ingress.Identity, cost int64) (ingress.Excess, bool) {
	who := limits.Identity(id)
	e, within := l.Set.Look(now, &who, cost)
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
func (l Limits) Take(now int64, _ ingress.Identity, cost int64) { l.Set.Take(now, cost) }

// Quotas implements ingress.Limits.
func (l Limits) Quotas(now int64, id ingress.Identity) []ingress.Quota {
	who := limits.Identity(id)
	standing := l.Set.Quotas(now, &who)
	quotas := make([]ingress.Quota, len(standing))
	for i, q := range standing {
		quotas[i] = ingress.Quota{
			Scope: string(q.Scope), Limit: q.Rule.String(), Capacity: q.Rule.Capacity(), Window: q.Rule.Window(),
			Remaining: q.Remaining, Reset: q.Reset,
		}
	}
	return quotas
}
