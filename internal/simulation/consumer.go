package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/units"
)

// Consumer is a model of what is behind the gateway. Instants are those since the start.
type Consumer interface {
	// Begin takes a delivery of n messages at an instant and tells how long it will take, and
	// what it will say to each: nil is done, else a verdict of package consumers.
	Begin(at time.Duration, n int) (took time.Duration, answer error)
	// End is the end of one that began, also by a timeout.
	End(at time.Duration)
}

// Steady is a consumer that takes the same time for each delivery.
type Steady struct {
	Latency time.Duration
	// Jitter is the part of it by which it is longer or shorter, evenly.
	Jitter float64
	// Fail is the part of the deliveries that fail and may be tried again.
	Fail float64
	// Down are the times in which it refuses everything, Slow those in which it takes
	// Spell.Latency.
	Down, Slow []Spell

	random *rand.Rand
}

// Spell is a time in which a consumer is different.
type Spell struct {
	From, For time.Duration
	Latency   time.Duration
}

func (s Spell) holds(at time.Duration) bool { return at >= s.From && at < s.From+s.For }

// DefaultLatency is that of a local database, about.
const DefaultLatency = 2 * time.Millisecond

var (
	errDown   = errors.New("the consumer is down")
	errFailed = errors.New("the consumer failed")
)

// Begin implements Consumer.
func (c *Steady) Begin(at time.Duration, _ int) (time.Duration, error) {
	for _, s := range c.Down {
		if s.holds(at) {
			return 0, consumers.Overloaded(0, errDown)
		}
	}
	latency := c.Latency
	for _, s := range c.Slow {
		if s.holds(at) {
			latency = s.Latency
			break
		}
	}
	if c.Jitter > 0 {
		latency += time.Duration((2*c.random.Float64() - 1) * c.Jitter * float64(latency))
	}
	if c.Fail > 0 && c.random.Float64() < c.Fail {
		return latency, errFailed
	}
	return latency, nil
}

// End implements Consumer.
func (c *Steady) End(time.Duration) {}

// ParseConsumer reads "5ms", or
// "latency=5ms,jitter=20%,fail=1%,down=30s@10m,slow=200ms/2m@20m": parts joined by commas, of
// which down and slow may stand several times.
func ParseConsumer(s string, seed uint64) (*Steady, error) {
	c := &Steady{Latency: DefaultLatency, random: rand.New(rand.NewPCG(seed, 2))}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			name, value = "latency", name
		}
		if seen[name] && name != "down" && name != "slow" {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if err := c.set(name, value); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Steady) set(name, value string) (err error) {
	switch name {
	case "latency":
		c.Latency, err = units.ParseDuration(value)
	case "jitter":
		c.Jitter, err = parsePart(value)
	case "fail":
		c.Fail, err = parsePart(value)
	case "down":
		var s Spell
		s, err = parseSpell(value)
		c.Down = append(c.Down, s)
	case "slow":
		latency, rest, ok := strings.Cut(value, "/")
		if !ok {
			return fmt.Errorf("slow: %q is not <latency>/<for>@<from>, like 200ms/2m@20m", value)
		}
		var s Spell
		if s, err = parseSpell(rest); err == nil {
			s.Latency, err = units.ParseDuration(latency)
		}
		c.Slow = append(c.Slow, s)
	default:
		return fmt.Errorf("%q is nothing of a consumer; there are latency, jitter, fail, down, slow", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// parsePart reads a percentage up to 100%, with decimals.
func parsePart(s string) (float64, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(n >= 0 && n <= 100) {
		return 0, fmt.Errorf("%q is not a part: 0%% to 100%%", s)
	}
	return n / 100, nil
}

// parseSpell reads "30s@10m".
func parseSpell(s string) (Spell, error) {
	length, from, ok := strings.Cut(s, "@")
	if !ok {
		return Spell{}, fmt.Errorf("%q is not <for>@<from>, like 30s@10m", s)
	}
	l, err := units.ParseDuration(length)
	f, err2 := units.ParseDuration(from)
	return Spell{From: f, For: l}, errors.Join(err, err2)
}

// ParsePauses reads "30s@10m,1m@40m": when an operator pauses deliveries, and for how long.
func ParsePauses(s string) ([]Spell, error) {
	var spells []Spell
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		p, err := parseSpell(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		spells = append(spells, p)
	}
	slices.SortFunc(spells, func(a, b Spell) int { return int(min(max(a.From-b.From, -1), 1)) })
	return spells, nil
}
