package app

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/history"
	"github.com/flowgate/flowgate/internal/shaper"
)

// TenantList is the answer to GET /api/v1/tenants.
type TenantList struct {
	Total   int           `json:"total"` // all that match
	Tenants []ShownTenant `json:"tenants"`
}

// ShownTenant is a tenant that has messages in the backlog, or was seen lately.
type ShownTenant struct {
	Tenant string `json:"tenant"`
	Depth  int    `json:"depth"`
	Weight uint32 `json:"weight"`
	// Admitted and Refused are a second, over the last 10 s.
	Admitted     float64 `json:"admitted"`
	Refused      float64 `json:"refused"`
	RefusedTotal uint64  `json:"refused_total"`
	LastReason   string  `json:"last_reason"`
	// OldestAge is that of its oldest message that waits, null if none does.
	OldestAge *float64 `json:"oldest_age_seconds"`
}

// tenantOrders are the columns to sort by, ascending.
var tenantOrders = map[string]func(a, b *ShownTenant) int{
	"tenant":   func(a, b *ShownTenant) int { return cmp.Compare(a.Tenant, b.Tenant) },
	"depth":    func(a, b *ShownTenant) int { return cmp.Compare(a.Depth, b.Depth) },
	"weight":   func(a, b *ShownTenant) int { return cmp.Compare(a.Weight, b.Weight) },
	"admitted": func(a, b *ShownTenant) int { return cmp.Compare(a.Admitted, b.Admitted) },
	"refused": func(a, b *ShownTenant) int {
		return cmp.Or(cmp.Compare(a.Refused, b.Refused), cmp.Compare(a.RefusedTotal, b.RefusedTotal))
	},
	"oldest": func(a, b *ShownTenant) int { return cmp.Compare(age(a), age(b)) },
}

func age(t *ShownTenant) float64 {
	if t.OldestAge == nil {
		return -1
	}
	return *t.OldestAge
}

// tenantQuery is what is asked for.
type tenantQuery struct {
	search        string
	order         func(a, b *ShownTenant) int
	descending    bool
	limit, offset int
}

const (
	shownTenants = 100
	mostTenants  = 1000
)

func readTenantQuery(q url.Values) (t tenantQuery, err error) {
	by := cmp.Or(q.Get("sort"), "depth")
	order, ok := tenantOrders[by]
	if !ok {
		return t, fmt.Errorf("sort: %q is none of depth, weight, admitted, refused, oldest, tenant", by)
	}
	t.order, t.search = order, strings.ToLower(q.Get("search"))
	switch direction := q.Get("order"); direction {
	case "":
		t.descending = by != "tenant"
	case "asc", "desc":
		t.descending = direction == "desc"
	default:
		return t, fmt.Errorf("order: %q is neither asc nor desc", direction)
	}
	if t.limit, err = number(q, "limit", shownTenants, 1, mostTenants); err != nil {
		return t, err
	}
	t.offset, err = number(q, "offset", 0, 0, math.MaxInt32)
	return t, err
}

func (g *gateway) listTenants(w http.ResponseWriter, r *http.Request) {
	q, err := readTenantQuery(r.URL.Query())
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, q.apply(g.tenants()))
}

// tenants are all, in no order.
func (g *gateway) tenants() []ShownTenant {
	now := time.Now()
	holdings, weights := g.shaper.Holdings(), g.shaper.Weights()
	list := make([]ShownTenant, 0, len(holdings))
	add := func(name string, h shaper.Holding, t history.TenantTraffic) {
		s := ShownTenant{
			Tenant: name, Depth: h.Messages, Weight: max(1, weights[name]),
			Admitted: t.Admitted, Refused: t.Refused, RefusedTotal: t.RefusedTotal, LastReason: t.LastReason,
		}
		if !h.Oldest.IsZero() {
			s.OldestAge = seconds(max(0, now.Sub(h.Oldest)))
		}
		list = append(list, s)
	}
	g.traffic.Each(g.clock.now(), func(name string, t history.TenantTraffic) {
		add(name, holdings[name], t)
		delete(holdings, name)
	})
	for name, h := range holdings {
		add(name, h, history.TenantTraffic{})
	}
	return list
}

// apply selects and sorts; equals are in the order of their names.
func (q tenantQuery) apply(all []ShownTenant) TenantList {
	match := make([]*ShownTenant, 0, len(all))
	for i := range all {
		if q.search == "" || strings.Contains(strings.ToLower(all[i].Tenant), q.search) {
			match = append(match, &all[i])
		}
	}
	slices.SortFunc(match, func(a, b *ShownTenant) int {
		n := q.order(a, b)
		if q.descending {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.Tenant, b.Tenant))
	})
	from := min(q.offset, len(match))
	list := TenantList{Total: len(match), Tenants: []ShownTenant{}}
	for _, t := range match[from:min(from+q.limit, len(match))] {
		list.Tenants = append(list.Tenants, *t)
	}
	return list
}
