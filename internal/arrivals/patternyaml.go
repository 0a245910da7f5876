package arrivals

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/units"
)

// ReadPattern reads the YAML of one; see Pattern.UnmarshalYAML. Errors name the line.
func ReadPattern(text []byte) (p Pattern, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&p); {
	case errors.Is(err, io.EOF):
		return p, errors.New("it is empty")
	case err != nil:
		return p, errors.New(plain(err))
	}
	if err := p.Validate(); err != nil { // null decodes to nothing
		return p, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return p, errors.New("a second document follows the pattern; one is right")
	}
	return p, nil
}

// plain says what a decoder says without its names of Go's types.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text = mistyped.ReplaceAllStringFunc(text, func(m string) string {
		parts := mistyped.FindStringSubmatch(m)
		value := parts[1]
		if value == "" {
			value = "this"
		}
		switch into := parts[2]; {
		case strings.HasSuffix(into, "patternYAML"):
			return "a pattern has groups, and a recording begins with " + strings.Join(columns, ",")
		case strings.HasSuffix(into, "YAML"):
			return value + " is not a list of keys and values"
		case strings.HasPrefix(into, "["):
			return value + " is not a list"
		case strings.Contains(into, "int"):
			return value + " is not a whole number from 0, or too large"
		case into == "bool":
			return value + " is neither true nor false"
		default:
			return value + " is not text"
		}
	})
	return strings.ReplaceAll(text, "\n", "; ")
}

var mistyped = regexp.MustCompile("cannot unmarshal !!\\w+(?: (`[^`]*`))? into (\\S+)")

// The YAML of a pattern.
type (
	patternYAML struct {
		Seed   uint64      `yaml:"seed"`
		Groups []yaml.Node `yaml:"groups"`
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
	for i, node := range y.Groups {
		var g groupYAML
		if err := node.Decode(&g); err != nil {
			return err
		}
		group, err := g.group()
		if err != nil {
			return err
		}
		if err := group.validate(); err != nil {
			return fmt.Errorf("line %d: group %d (%q): %w", node.Line, i+1, g.Tenant, err)
		}
		p.Groups = append(p.Groups, group)
	}
	return p.Validate()
}

func (g groupYAML) group() (Group, error) {
	group := Group{Tenant: g.Tenant, Tenants: g.Tenants, Topic: g.Topic, Bytes: int(g.Bytes), Spacing: g.Spacing, Repeat: g.Repeat}
	if err := g.Rest.unknown("group", "tenant, tenants, topic, bytes, spacing, rate, phases, repeat"); err != nil {
		return group, err
	}
	for _, f := range g.Phases {
		if err := f.Rest.unknown("phase", "for, rate, to, burst"); err != nil {
			return group, err
		}
		to := f.Rate
		if f.To != nil {
			to = *f.To
		}
		group.Phases = append(group.Phases, Phase{time.Duration(f.For), float64(f.Rate), float64(to), f.Burst})
	}
	if g.Rate != nil {
		if len(g.Phases) > 0 {
			return group, fmt.Errorf("group %q has both a rate and phases", g.Tenant)
		}
		group.Phases = []Phase{{For: forever, From: float64(*g.Rate), To: float64(*g.Rate)}}
	}
	return group, nil
}
