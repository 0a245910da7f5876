package arrivals

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Pattern is what all tenants do.
type Pattern struct {
	// Seed of what is drawn: the same pattern and seed give the same schedule.
	Seed uint64
	// Groups publish independently of each other.
	Groups []Group
}

// Group is tenants that do the same.
type Group struct {
	// Tenant is the name, or the beginning of the names if there are several: they are
	// numbered from 1.
	Tenant string
	// Tenants is how many there are; 0 is one. Each message is that of one of them, drawn
	// with equal odds.
	Tenants int
	// Topic is that of all messages; empty: orders.
	Topic string
	// Bytes are those of each payload; 0: 256.
	Bytes int
	// Spacing is how arrivals follow each other.
	Spacing Spacing
	// Phases follow each other, and begin again after the last one if Repeat is set.
	Phases []Phase
	Repeat bool
}

// Phase is a span of time in which a group's rate is constant or changes evenly.
type Phase struct {
	For time.Duration
	// From and To are the rates of the whole group at its beginning and end, in messages
	// a second.
	From, To float64
	// Burst is how many messages come at once at its beginning.
	Burst int
}

// Spacing is how arrivals follow each other.
type Spacing string

// The spacings. Poisson is that of many producers who know nothing of each other, Even
// that of one with a timer.
const (
	Poisson Spacing = "poisson"
	Even    Spacing = "even"
)

// forever is longer than anything runs.
const forever = 10 * 365 * 24 * time.Hour

// Length is how long arrivals come; ok is false if they do not end by themselves.
func (p Pattern) Length() (length time.Duration, ok bool) {
	for _, g := range p.Groups {
		sum := time.Duration(0)
		for _, f := range g.Phases {
			if g.Repeat || f.For >= forever {
				return 0, false
			}
			sum += f.For
		}
		length = max(length, sum)
	}
	return length, true
}

// What a pattern may have at most. Beyond it a run takes hours, or more memory than there is.
const (
	mostTenants = 1_000_000 // of all groups
	mostRate    = 1e6       // of a group, a second
	mostBurst   = 10_000_000
	mostBytes   = 64 << 20 // the largest payload of a NATS server
	leastPhase  = time.Millisecond
)

// Validate says what is wrong with the pattern.
func (p Pattern) Validate() error {
	if len(p.Groups) == 0 {
		return errors.New("a pattern has at least one group")
	}
	tenants := 0
	for i, g := range p.Groups {
		if err := g.validate(); err != nil {
			return fmt.Errorf("group %d (%q): %w", i+1, g.Tenant, err)
		}
		if tenants += max(1, g.Tenants); tenants > mostTenants {
			return fmt.Errorf("group %d (%q): with it there are over %d tenants", i+1, g.Tenant, mostTenants)
		}
	}
	return nil
}

func (g Group) validate() error {
	longest := g.Tenant
	if g.Tenants > 1 {
		longest += strconv.Itoa(g.Tenants)
	}
	switch {
	case g.Tenant == "":
		return errors.New("tenant is empty")
	case g.Tenants < 0 || g.Tenants > mostTenants:
		return fmt.Errorf("%d tenants: 1 to %d is right", g.Tenants, mostTenants)
	case !validTenant(longest):
		return fmt.Errorf("tenant %q: 1 to 64 of A-Z a-z 0-9 _ - is right", longest)
	case g.Topic != "" && !validTopic(g.Topic):
		return fmt.Errorf("topic %q: tokens joined by dots, none of them empty or a wildcard, are right", g.Topic)
	case g.Bytes < 0 || g.Bytes > mostBytes:
		return fmt.Errorf("%d bytes: 0 to %d is right", g.Bytes, mostBytes)
	case g.Spacing != "" && g.Spacing != Poisson && g.Spacing != Even:
		return fmt.Errorf("spacing %q: %s or %s is right", g.Spacing, Poisson, Even)
	case len(g.Phases) == 0:
		return errors.New("it has neither a rate nor phases")
	}
	for i, f := range g.Phases {
		switch {
		case f.For < leastPhase:
			return fmt.Errorf("phase %d: for %s: at least %s is right", i+1, f.For, leastPhase)
		case f.From < 0 || f.To < 0 || f.From > mostRate || f.To > mostRate:
			return fmt.Errorf("phase %d: rate and to: 0 to %.0f a second is right", i+1, mostRate)
		case f.Burst < 0 || f.Burst > mostBurst:
			return fmt.Errorf("phase %d: burst %d: 0 to %d is right", i+1, f.Burst, mostBurst)
		}
	}
	return nil
}
