package arrivals

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/units"
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

// The YAML of a pattern.
type (
	patternYAML struct {
		Seed   uint64      `yaml:"seed"`
		Groups []groupYAML `yaml:"groups"`
		Rest   rest        `yaml:",inline"`
	}
	groupYAML struct {
		Tenant  string      `yaml:"tenant"`
		Tenants int         `yaml:"tenants"`
		Topic   string      `yaml:"topic"`
		Bytes   sizeYAML    `yaml:"bytes"`
		Spacing Spacing     `yaml:"spacing"`
		Rate    *rateYAML   `yaml:"rate"`
		Phases  []phaseYAML `yaml:"phases"`
		Repeat  bool        `yaml:"repeat"`
		Rest    rest        `yaml:",inline"`
	}
	phaseYAML struct {
		For   durationYAML `yaml:"for"`
		Rate  rateYAML     `yaml:"rate"`
		To    *rateYAML    `yaml:"to"`
		Burst int          `yaml:"burst"`
		Rest  rest         `yaml:",inline"`
	}
	// rest is what there must be none of: what is misspelt must not be passed over.
	rest         map[string]yaml.Node
	rateYAML     float64
	durationYAML time.Duration
	sizeYAML     int
)

// unknown says what there is in what, and has no meaning; has is what there can be.
func (r rest) unknown(what, has string) error {
	if len(r) == 0 {
		return nil
	}
	name := slices.Sorted(maps.Keys(r))[0]
	return fmt.Errorf("line %d: a %s has no %q; it has %s", r[name].Line, what, name, has)
}

func (r *rateYAML) UnmarshalYAML(n *yaml.Node) error {
	rate, err := algorithms.ParseRate(n.Value)
	switch {
	case n.Value == "0":
		return nil
	case err != nil:
		return fmt.Errorf("line %d: %w", n.Line, err)
	case rate.IsUnlimited():
		return fmt.Errorf("line %d: a producer has a rate", n.Line)
	}
	*r = rateYAML(rate.PerSecond())
	return nil
}

func (d *durationYAML) UnmarshalYAML(n *yaml.Node) error {
	v, err := units.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*d = durationYAML(v)
	return nil
}

func (s *sizeYAML) UnmarshalYAML(n *yaml.Node) error {
	if plain, err := strconv.Atoi(n.Value); err == nil {
		*s = sizeYAML(plain)
		return nil
	}
	v, err := units.ParseSize(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = sizeYAML(v)
	return nil
}

// UnmarshalYAML reads a pattern:
//
//	seed: 7
//	groups:
//	  - tenant: acme
//	    rate: 50/s
//	  - tenant: free-
//	    tenants: 100
//	    spacing: even
//	    bytes: 1KiB
//	    repeat: true
//	    phases:
//	      - {for: 30s, rate: 20/s, to: 200/s}
//	      - {for: 10s, rate: 0, burst: 500}
func (p *Pattern) UnmarshalYAML(n *yaml.Node) error {
	var y patternYAML
	if err := n.Decode(&y); err != nil {
		return err
	}
	if err := y.Rest.unknown("pattern", "seed, groups"); err != nil {
		return err
	}
	*p = Pattern{Seed: y.Seed}
	for _, g := range y.Groups {
		if err := g.Rest.unknown("group", "tenant, tenants, topic, bytes, spacing, rate, phases, repeat"); err != nil {
			return err
		}
		group := Group{Tenant: g.Tenant, Tenants: g.Tenants, Topic: g.Topic, Bytes: int(g.Bytes), Spacing: g.Spacing, Repeat: g.Repeat}
		for _, f := range g.Phases {
			if err := f.Rest.unknown("phase", "for, rate, to, burst"); err != nil {
				return err
			}
			to := f.Rate
			if f.To != nil {
				to = *f.To
			}
			group.Phases = append(group.Phases, Phase{time.Duration(f.For), float64(f.Rate), float64(to), f.Burst})
		}
		if g.Rate != nil {
			if len(g.Phases) > 0 {
				return fmt.Errorf("group %q has both a rate and phases", g.Tenant)
			}
			group.Phases = []Phase{{For: forever, From: float64(*g.Rate), To: float64(*g.Rate)}}
		}
		p.Groups = append(p.Groups, group)
	}
	return p.Validate()
}

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

// Validate says what is wrong with the pattern.
func (p Pattern) Validate() error {
	if len(p.Groups) == 0 {
		return errors.New("a pattern has at least one group")
	}
	for i, g := range p.Groups {
		if err := g.validate(); err != nil {
			return fmt.Errorf("group %d (%q): %w", i+1, g.Tenant, err)
		}
	}
	return nil
}

func (g Group) validate() error {
	switch {
	case g.Tenant == "":
		return errors.New("tenant is empty")
	case g.Tenants < 0:
		return fmt.Errorf("%d tenants: at least 1 is right", g.Tenants)
	case g.Bytes < 0:
		return fmt.Errorf("%d bytes: at least 0 is right", g.Bytes)
	case g.Spacing != "" && g.Spacing != Poisson && g.Spacing != Even:
		return fmt.Errorf("spacing %q: %s or %s is right", g.Spacing, Poisson, Even)
	case len(g.Phases) == 0:
		return errors.New("it has neither a rate nor phases")
	}
	for i, f := range g.Phases {
		if f.For <= 0 || f.From < 0 || f.To < 0 || f.Burst < 0 {
			return fmt.Errorf("phase %d: for is above 0, and rate, to and burst are not below it", i+1)
		}
	}
	return nil
}
