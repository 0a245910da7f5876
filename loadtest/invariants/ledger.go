package invariants

import (
	"maps"
	"sync"
)

// Ledger is what producers sent and what they were told. Safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]*entry // by the id in the database
	tallies map[string]*Tally // by tenant
}

// entry is one message, over all its tries.
type entry struct {
	payload string
	acked   bool
	// unsure: some try ended without an answer that says whether it was stored.
	unsure bool
}

// Tally is one tenant's answers.
type Tally struct {
	// Sent counts tries, Messages what was tried.
	Sent, Messages, Acked, Unsure int
	Refused                       map[string]int // by reason
}

// NewLedger makes an empty one.
func NewLedger() *Ledger {
	return &Ledger{entries: map[string]*entry{}, tallies: map[string]*Tally{}}
}

// RowID is the id in the database of a message with an id of its own.
func RowID(tenant, id string) string { return tenant + "/" + id }

// Sent notes a try.
func (l *Ledger) Sent(tenant, id, payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally(tenant)
	t.Sent++
	if l.entries[RowID(tenant, id)] == nil {
		l.entries[RowID(tenant, id)] = &entry{payload: payload}
		t.Messages++
	}
}

// Acked notes a PubAck.
func (l *Ledger) Acked(tenant, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[RowID(tenant, id)].acked = true
	l.tally(tenant).Acked++
}

// Refused notes a NAK that says that nothing was stored.
func (l *Ledger) Refused(tenant, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally(tenant).Refused[reason]++
}

// Unsure notes a try whose fate is unknown: no answer, or one that leaves it open.
func (l *Ledger) Unsure(tenant, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[RowID(tenant, id)].unsure = true
	l.tally(tenant).Unsure++
}

// tally requires that mu is held.
func (l *Ledger) tally(tenant string) *Tally {
	t := l.tallies[tenant]
	if t == nil {
		t = &Tally{Refused: map[string]int{}}
		l.tallies[tenant] = t
	}
	return t
}

// Tallies gives the answers so far by tenant.
func (l *Ledger) Tallies() map[string]Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Tally{}
	for tenant, t := range l.tallies {
		c := *t
		c.Refused = maps.Clone(t.Refused)
		out[tenant] = c
	}
	return out
}
