package history

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// trafficSeconds is how far back rates of a tenant go.
	trafficSeconds = 10
	// trafficTenants are remembered at least, those seen last; some 150 bytes each.
	trafficTenants = 16384
)

// Traffic counts what tenants send, of as many as there is room for. Safe for concurrent
// use.
type Traffic struct {
	mu      sync.Mutex
	tenants recent[tenantTraffic]
	// refused are those with a refusal since the last MostRefused.
	refused []*tenantTraffic
}

// tenantTraffic counts by second: the ones before, and the one under way.
type tenantTraffic struct {
	started, newest   int64 // the first instant, the newest second
	admitted, refused [trafficSeconds + 1]uint32
	total             uint64 // refused
	reason            string
	name              string // of one who was refused
	since             uint32 // refused since the last MostRefused
}

// TenantTraffic is what one tenant sent.
type TenantTraffic struct {
	// Admitted and Refused are a second, over the last 10 s.
	Admitted, Refused float64
	// RefusedTotal is since the tenant is remembered, LastReason why at last.
	RefusedTotal uint64
	LastReason   string
}

// NewTraffic remembers nobody yet.
func NewTraffic() *Traffic { return &Traffic{tenants: newRecent[tenantTraffic](trafficTenants)} }

// Admitted counts a message of a tenant at an instant, in nanoseconds.
func (t *Traffic) Admitted(now int64, tenant string) {
	t.mu.Lock()
	c := t.tenants.touch(tenant)
	c.admitted[c.turn(now)]++
	t.mu.Unlock()
}

// Refused counts a refusal; reason must be a string that may be kept.
func (t *Traffic) Refused(now int64, tenant, reason string) {
	t.mu.Lock()
	c := t.tenants.touch(tenant)
	c.refused[c.turn(now)]++
	c.total++
	c.reason = reason
	if c.since == 0 && len(t.refused) < trafficTenants {
		if c.name == "" {
			c.name = strings.Clone(tenant)
		}
		t.refused = append(t.refused, c)
	}
	c.since++
	t.mu.Unlock()
}

// MostRefused gives those who were refused most since the last call, the most of them
// first. It costs a look at each who was refused since then.
func (t *Traffic) MostRefused(most int) []RefusedTenant {
	t.mu.Lock()
	list := make([]RefusedTenant, 0, len(t.refused))
	for i, c := range t.refused {
		list = append(list, RefusedTenant{c.name, float64(c.since), c.reason})
		c.since = 0
		t.refused[i] = nil
	}
	t.refused = t.refused[:0]
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b RefusedTenant) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), strings.Compare(a.Tenant, b.Tenant))
	})
	return slices.Clone(list[:min(most, len(list))])
}

// turn brings the newest second up to now, empties those in between, and gives its place.
func (c *tenantTraffic) turn(now int64) int {
	second := now / int64(time.Second)
	if c.started == 0 {
		c.started, c.newest = now, second
	}
	for i := 0; c.newest < second && i <= trafficSeconds; i++ {
		c.newest++
		c.admitted[c.newest%(trafficSeconds+1)], c.refused[c.newest%(trafficSeconds+1)] = 0, 0
	}
	c.newest = max(c.newest, second)
	return int(c.newest % (trafficSeconds + 1))
}

// Each shows the traffic of all who are remembered, in no order. Nothing is counted
// meanwhile.
func (t *Traffic) Each(now int64, show func(tenant string, seen TenantTraffic)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tenant, c := range t.tenants.all() {
		show(tenant, c.read(now))
	}
}

func (c *tenantTraffic) read(now int64) TenantTraffic {
	c.turn(now)
	var admitted, refused uint64
	for i := range c.admitted {
		admitted, refused = admitted+uint64(c.admitted[i]), refused+uint64(c.refused[i])
	}
	covered := time.Duration(now - (c.newest-trafficSeconds)*int64(time.Second))
	covered = max(time.Second, min(covered, time.Duration(now-c.started)))
	return TenantTraffic{
		Admitted: float64(admitted) / covered.Seconds(), Refused: float64(refused) / covered.Seconds(),
		RefusedTotal: c.total, LastReason: c.reason,
	}
}
