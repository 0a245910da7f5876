package simulation

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/units"
)

// Behaviour is what a producer does with a message that was refused.
type Behaviour string

// The behaviours.
const (
	// Obey waits as long as the refusal says. Of a tenant's messages that a limit refused one
	// tries at a time.
	Obey Behaviour = "obey"
	// Forget never tries again.
	Forget Behaviour = "forget"
	// BackOff waits 100ms, 200ms, … 30s, each drawn anew from 0 on, whatever it was told.
	BackOff Behaviour = "backoff"
	// Insist tries again each 100ms, whatever it was told. A duration, like "200ms", is the
	// same at that pace.
	Insist Behaviour = "insist"
	// ObeyEach waits as long as the refusal says, each message by itself.
	ObeyEach Behaviour = "obey-each"
)

var behaviours = []Behaviour{Obey, ObeyEach, Forget, BackOff, Insist}

const (
	insistence = 100 * time.Millisecond
	// leastPace keeps a simulation from going on for ever.
	leastPace  = time.Millisecond
	backoffMin = 100 * time.Millisecond
	backoffMax = 30 * time.Second
)

// Producers say who behaves how.
type Producers struct {
	// Default is that of all who are not named; empty: Obey.
	Default Behaviour
	// Tenants are globs and what those that match do; the first counts.
	Tenants []TenantBehaviour
	// Patience is for how long they try one message.
	Patience time.Duration
}

// TenantBehaviour is that of the tenants that a glob matches.
type TenantBehaviour struct {
	Glob      string
	Behaviour Behaviour
}

// DefaultPatience is long enough for the longest hint, several times.
const DefaultPatience = 5 * time.Minute

// ParseProducers reads "obey" or "obey,noisy=insist,free-*=forget".
func ParseProducers(s string) (Producers, error) {
	p := Producers{Default: Obey, Patience: DefaultPatience}
	named := false
	for i, part := range strings.Split(s, ",") {
		glob, name, of := strings.Cut(strings.TrimSpace(part), "=")
		if !of {
			glob, name = "", glob
		}
		b := Behaviour(name)
		if !b.known() {
			return p, fmt.Errorf("%q is no behaviour; there are %s, or a duration from 1ms", name, listed(behaviours))
		}
		if !of {
			if named || i > 0 {
				return p, fmt.Errorf("%q: the behaviour of all stands first and once; others are <tenant or glob>=<behaviour>", part)
			}
			p.Default, named = b, true
			continue
		}
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			return p, fmt.Errorf("%q is no tenant or glob", glob)
		}
		p.Tenants = append(p.Tenants, TenantBehaviour{glob, b})
	}
	return p, nil
}

func (b Behaviour) known() bool {
	for _, k := range behaviours {
		if b == k {
			return true
		}
	}
	d, err := units.ParseDuration(string(b))
	return err == nil && d >= leastPace
}

func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, ", ")
}

// Of is a tenant's behaviour.
func (p Producers) Of(tenant string) Behaviour {
	for _, t := range p.Tenants {
		if ok, _ := path.Match(t.Glob, tenant); ok {
			return t.Behaviour
		}
	}
	if p.Default == "" {
		return Obey
	}
	return p.Default
}

// Again is how long a producer waits who was told to wait so long, ingress.NoRetry if that
// is in vain, after so many tries; ok is false if it gives up. random is drawn from [0, 1).
func (b Behaviour) Again(told time.Duration, tries int, random float64) (wait time.Duration, ok bool) {
	if told == ingress.NoRetry {
		return 0, false
	}
	switch b {
	case Forget:
		return 0, false
	case BackOff:
		most := min(backoffMin<<min(tries-1, 16), backoffMax)
		return time.Duration(random * float64(most)), true
	case Insist:
		return insistence, true
	case Obey, ObeyEach, "":
		return (told + time.Millisecond - 1).Truncate(time.Millisecond), true // as the NAK rounds it
	}
	wait, err := units.ParseDuration(string(b))
	return wait, err == nil
}
