package invariants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Share is what a tenant had of a run.
type Share struct {
	Tenant string
	// Offered messages fell due, and Got is how many of all were delivered while the load
	// lasted; Fair is its part: the same for all, but for who offered less.
	Offered, Got int
	Fair         float64
}

// Shares are what each tenant got of the deliveries between two instants, in order of what
// they offered.
func (r *Record) Shares(from, to int64) []Share {
	by := map[string]*Share{}
	for _, m := range r.Messages {
		if by[m.Tenant] == nil {
			by[m.Tenant] = &Share{Tenant: m.Tenant}
		}
		by[m.Tenant].Offered++
	}
	left := 0.0
	seen := map[string]bool{}
	for _, d := range r.Deliveries {
		if s := by[d.Tenant]; s != nil && d.Done && !seen[d.ID] && d.Ended >= from && d.Ended <= to {
			seen[d.ID] = true
			s.Got++
			left++
		}
	}
	tenants := slices.SortedFunc(maps.Values(by), func(a, b *Share) int {
		return cmp.Or(cmp.Compare(a.Offered, b.Offered), cmp.Compare(a.Tenant, b.Tenant))
	})
	// Max-min: who offers less than an equal part of what is left has it all.
	shares := make([]Share, len(tenants))
	for i, s := range tenants {
		s.Fair = min(float64(s.Offered), left/float64(len(tenants)-i))
		left -= s.Fair
		shares[i] = *s
	}
	return shares
}

// Jain is the fairness index of what tenants got, each beside its fair part: 1 if all have
// it, 1/n if one has all.
func Jain(shares []Share) float64 {
	var sum, squares float64
	n := 0
	for _, s := range shares {
		if s.Fair > 0 {
			x := float64(s.Got) / s.Fair
			sum, squares, n = sum+x, squares+x*x, n+1
		}
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(n) * squares)
}

// Fair checks that tenants got their parts.
func (r *Record) Fair(least float64, from, to int64) Check {
	c := Check{Promise: fmt.Sprintf("tenants get their fair parts: a Jain index of %g", least)}
	shares := r.Shares(from, to)
	index := Jain(shares)
	c.Found = fmt.Sprintf("%.3f over %d tenants", index, len(shares))
	if index < least {
		worst := slices.MinFunc(shares, func(a, b Share) int {
			return cmp.Compare(float64(a.Got)/max(a.Fair, 1), float64(b.Got)/max(b.Fair, 1))
		})
		c.breach("%.3f: tenant %s had %d of a fair part of %.0f", index, worst.Tenant, worst.Got, worst.Fair)
	}
	return c
}

// Unrefused checks that certain tenants were never refused.
func (r *Record) Unrefused(who string, is func(tenant string) bool) Check {
	c := Check{Promise: fmt.Sprintf("no message of %s is refused", who)}
	n := 0
	for _, t := range r.Tries {
		m := r.Messages[t.Message]
		if !is(m.Tenant) {
			continue
		}
		n++
		if t.Told != Acked && t.Told != NotAsked && t.Told != NoAnswer && t.Told != Nobody {
			c.breach("%s, published at %s: %s", m.ID, clock(t.Sent), t.Told)
		}
	}
	if n == 0 {
		c.breach("there is none")
	}
	c.Found = fmt.Sprintf("%d publishes", n)
	return c
}
