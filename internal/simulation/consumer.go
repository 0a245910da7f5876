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
	// Start takes a delivery of n messages, or refuses it: err is the verdict on each.
	Start(now time.Duration, n int) (id uint64, err error)
	// Next is when it answers next, if nothing is started before; ok is false if it has
	// nothing to answer.
	Next() (at time.Duration, ok bool)
	// Advance gives the answers up to now.
	Advance(now time.Duration) []Answer
	// Cancel ends a delivery whose time is over.
	Cancel(now time.Duration, id uint64)
	// Capacity is the most deliveries a second that it bears while it is well, of so many
	// in flight.
	Capacity(inFlight int) float64
}

// Answer is the end of a delivery; Err is the verdict on each message.
type Answer struct {
	ID  uint64
	Err error
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

	random  *rand.Rand
	last    uint64
	ends    agenda
	answers map[uint64]error // of those in flight
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

// Take says how long a delivery takes that starts at an instant, and the verdict on it.
func (c *Steady) Take(at time.Duration) (time.Duration, error) {
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

// Start implements Consumer.
func (c *Steady) Start(now time.Duration, _ int) (uint64, error) {
	took, err := c.Take(now)
	if err != nil && took == 0 {
		return 0, err
	}
	c.last++
	c.answers[c.last] = err
	c.ends.add(int64(now+took), delivered, int32(c.last))
	return c.last, nil
}

// Next implements Consumer.
func (c *Steady) Next() (time.Duration, bool) {
	if len(c.ends.events) == 0 {
		return 0, false
	}
	return time.Duration(c.ends.events[0].at), true
}

// Advance implements Consumer.
func (c *Steady) Advance(now time.Duration) (ended []Answer) {
	for len(c.ends.events) > 0 && c.ends.events[0].at <= int64(now) {
		id := uint64(c.ends.pop().of)
		if err, ok := c.answers[id]; ok {
			ended = append(ended, Answer{id, err})
			delete(c.answers, id)
		}
	}
	return ended
}

// Cancel implements Consumer.
func (c *Steady) Cancel(_ time.Duration, id uint64) { delete(c.answers, id) }

// Capacity implements Consumer.
func (c *Steady) Capacity(inFlight int) float64 {
	return float64(inFlight) / c.Latency.Seconds() // +Inf if it takes no time
}

// ParseConsumer reads a model:
//
//	5ms                    each delivery takes so long
//	latency=5ms,jitter=20%,fail=1%,down=30s@10m,slow=200ms/2m@20m
//	latency=20ms,knee=8,thrash=1,crash_at=64,recovery=5s
//
// Parts are joined by commas; down and slow may stand several times. With a knee it is a
// database of package fragile, with all that it can have. What is returned makes such a
// consumer anew for each simulation.
func ParseConsumer(s string, seed uint64) (func() Consumer, error) {
	parts := strings.Split(s, ",")
	values, seen := make([][2]string, len(parts)), map[string]bool{}
	for i, part := range parts {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			name, value = "latency", name
		}
		if seen[name] && name != "down" && name != "slow" {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		values[i] = [2]string{name, value}
	}
	if seen["knee"] {
		return parseFragile(values, seed)
	}
	c := Steady{Latency: DefaultLatency}
	for _, v := range values {
		if err := c.set(v[0], v[1]); err != nil {
			return nil, err
		}
	}
	return func() Consumer {
		fresh := c
		fresh.random, fresh.answers = rand.New(rand.NewPCG(seed, 2)), map[uint64]error{}
		return &fresh
	}, nil
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
		return fmt.Errorf("%q is nothing of a consumer; there are latency, jitter, fail, down, slow, or for a database with a knee: latency, knee, thrash, noise, crash_at, crash_after, recovery, warmup, cold", name)
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
