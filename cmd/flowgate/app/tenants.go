package app

import "sync"

// tenantLabels bounds the tenants that metrics name: the first so many have a
// label of their own, the rest share "other". A label costs memory here and in
// every Prometheus that scrapes it, for ever.
type tenantLabels struct {
	most int

	mu    sync.RWMutex
	known map[string]string
}

const otherTenants = "other"

func newTenantLabels(most int) *tenantLabels {
	return &tenantLabels{most: most, known: map[string]string{}}
}

// of gives tenant its label, and one of its own if there is room.
func (t *tenantLabels) of(tenant string) string {
	t.mu.RLock()
	label, ok := t.known[tenant]
	full := len(t.known) >= t.most
	t.mu.RUnlock()
	if ok {
		return label
	}
	if full {
		return otherTenants
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= t.most {
		return otherTenants
	}
	t.known[tenant] = tenant
	return tenant
}

// peek gives tenant its label but never a new one: what was refused must not use
// up the room of those who are served.
func (t *tenantLabels) peek(tenant string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if label, ok := t.known[tenant]; ok {
		return label
	}
	return otherTenants
}
