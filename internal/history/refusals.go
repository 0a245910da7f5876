package history

import (
	"sync"
	"time"
)

const (
	// keptRefusals is how many of a tenant are remembered, and how many over all.
	keptRefusals = 20
	// refusalTenants are remembered at least, those refused last; some 6 KB each.
	refusalTenants = 1024
)

// Refusal is one decision against a message.
type Refusal struct {
	At     int64 // nanoseconds
	Tenant string
	// ID is the message's own, empty without one.
	ID string
	// Reason, Scope and Transport are words of a few; Rule is the limit's text, if one
	// refused, and Text what the producer was told.
	Reason, Scope, Rule, Text, Transport string
	// Depth is that of the backlog then, and Signals a set of what held it under pressure.
	Depth   uint64
	Signals uint8
	// Wait is the hint, negative for none.
	Wait time.Duration
	// Enforced is false for what was admitted all the same.
	Enforced bool
}

// Refusals remembers the last refusals. Safe for concurrent use; one costs an uncontended
// lock and allocates nothing once a tenant has its last ones.
type Refusals struct {
	mu      sync.Mutex
	tenants recent[lastRefusals]
	newest  lastRefusals
}

// NewRefusals remembers none yet.
func NewRefusals() *Refusals { return &Refusals{tenants: newRecent[lastRefusals](refusalTenants)} }

// lastRefusals are the last ones, in a ring.
type lastRefusals struct {
	kept []keptRefusal
	next int
}

// keptRefusal has its names in bytes of its own: those of a message would keep the message.
type keptRefusal struct {
	Refusal
	names  []byte // tenant, id
	tenant int
}

// Add remembers a refusal. Tenant and ID are copied; the other strings are kept.
func (r *Refusals) Add(f Refusal) {
	r.mu.Lock()
	r.newest.add(f)
	if f.Tenant != "" {
		r.tenants.touch(f.Tenant).add(f)
	}
	r.mu.Unlock()
}

func (l *lastRefusals) add(f Refusal) {
	if len(l.kept) < keptRefusals {
		l.kept = append(l.kept, keptRefusal{})
		l.next = len(l.kept) - 1
	}
	k := &l.kept[l.next]
	k.names = append(append(k.names[:0], f.Tenant...), f.ID...)
	k.tenant = len(f.Tenant)
	f.Tenant, f.ID = "", ""
	k.Refusal = f
	l.next = (l.next + 1) % keptRefusals
}

// Last are the last refusals of a tenant, of all with an empty name, newest first and most
// at most.
func (r *Refusals) Last(tenant string, most int) []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.newest
	if tenant != "" {
		l = r.tenants.find(tenant)
	}
	if l == nil {
		return nil
	}
	n := len(l.kept)
	last := make([]Refusal, 0, min(n, most))
	for i := range min(n, most) {
		k := &l.kept[(l.next-1-i+keptRefusals)%keptRefusals]
		f := k.Refusal
		f.Tenant, f.ID = string(k.names[:k.tenant]), string(k.names[k.tenant:])
		last = append(last, f)
	}
	return last
}
