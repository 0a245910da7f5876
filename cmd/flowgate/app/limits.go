package app

import (
	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/ingress"
)

// tenantLimits gives the front door the limits of the tenant scope.
type tenantLimits struct{ keyed *algorithms.Keyed }

// Look implements ingress.Limits.
func (l tenantLimits) Look(now int64, id ingress.Identity, cost int64) (ingress.Excess, bool) {
	rule, d := l.keyed.Look(id.Tenant, now, cost)
	if d.Allowed {
		return ingress.Excess{}, true
	}
	wait := d.RetryAfter
	if wait == algorithms.Never {
		wait = ingress.NoRetry
	}
	return ingress.Excess{Scope: "tenant", Key: id.Tenant, Limit: l.keyed.Rule(rule).String(), Wait: wait}, false
}

// Take implements ingress.Limits.
func (l tenantLimits) Take(now int64, id ingress.Identity, cost int64) {
	l.keyed.Take(id.Tenant, now, cost)
}
