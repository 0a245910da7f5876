package app

import (
	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
)

// doorLimits gives the front door the limits in force.
type doorLimits struct{ set *limits.Set }

func limitsIdentity(id ingress.Identity) limits.Identity {
	return limits.Identity{Tenant: id.Tenant}
}

// Look implements ingress.Limits.
func (l doorLimits) Look(now int64, id ingress.Identity, cost int64) (ingress.Excess, bool) {
	who := limitsIdentity(id)
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
