package fragile

import (
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/internal/units"
)

// Config is what a database bears.
type Config struct {
	// Latency of one statement that is alone.
	Latency time.Duration
	// Knee is how many may be in flight without slowing each other.
	Knee int
	// Thrash is how much less gets done past the knee: 0 no less, 1 as much less as there
	// are more in flight, 2 the square of that.
	Thrash float64
	// Noise is the standard deviation of a statement's work beside its mean, which stays the
	// same; 0: all are alike.
	Noise float64
	// CrashAt is how many in flight bring it down; 0: none do.
	CrashAt int
	// CrashAfter is for how long without a break it bears more in flight than the knee; 0:
	// for ever.
	CrashAfter time.Duration
	// Recovery is how long it is down after a crash.
	Recovery time.Duration
	// Warmup is for how long it is slower after that, at first Cold times as slow.
	Warmup time.Duration
	Cold   float64
	// Seed of the noise.
	Seed uint64
}

// Capacity is the most statements a second.
func (c Config) Capacity() float64 { return float64(c.Knee) / c.Latency.Seconds() }

// Validate says what is wrong.
func (c Config) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("database: "+format, args...))
		}
	}
	refuse(c.Latency <= 0, "latency %s: above 0 is right", c.Latency)
	refuse(c.Knee < 1, "knee %d: at least 1 is right", c.Knee)
	refuse(c.Thrash < 0 || c.Thrash > 10, "thrash %g: 0 to 10 is right", c.Thrash)
	refuse(c.Noise < 0 || c.Noise > 2, "noise %g: 0 to 2 is right", c.Noise)
	refuse(c.CrashAt != 0 && c.CrashAt <= c.Knee, "crash_at %d: above the knee of %d is right", c.CrashAt, c.Knee)
	refuse(c.CrashAfter < 0 || c.Recovery < 0 || c.Warmup < 0, "crash_after, recovery and warmup are not below 0")
	refuse(c.Warmup > 0 && c.Cold < 1, "cold %g: with a warmup at least 1 is right", c.Cold)
	return errors.Join(errs...)
}

type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := units.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*d = duration(v)
	return nil
}

// UnmarshalYAML reads a database:
//
//	latency: 20ms
//	knee: 8             # capacity 400/s
//	thrash: 1
//	noise: 0.2
//	crash_at: 64
//	crash_after: 4s
//	recovery: 5s
//	warmup: 3s
//	cold: 4
//	seed: 1
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	var y struct {
		Latency    duration `yaml:"latency"`
		Knee       int      `yaml:"knee"`
		Thrash     float64  `yaml:"thrash"`
		Noise      float64  `yaml:"noise"`
		CrashAt    int      `yaml:"crash_at"`
		CrashAfter duration `yaml:"crash_after"`
		Recovery   duration `yaml:"recovery"`
		Warmup     duration `yaml:"warmup"`
		Cold       float64  `yaml:"cold"`
		Seed       uint64   `yaml:"seed"`
		// Nothing else: what is misspelt must not be passed over.
		Rest map[string]any `yaml:",inline"`
	}
	if err := n.Decode(&y); err != nil {
		return err
	}
	for name := range y.Rest {
		return fmt.Errorf("line %d: a database has no %q", n.Line, name)
	}
	*c = Config{
		Latency: time.Duration(y.Latency), Knee: y.Knee, Thrash: y.Thrash, Noise: y.Noise, CrashAt: y.CrashAt,
		CrashAfter: time.Duration(y.CrashAfter), Recovery: time.Duration(y.Recovery), Warmup: time.Duration(y.Warmup), Cold: y.Cold, Seed: y.Seed,
	}
	return c.Validate()
}
