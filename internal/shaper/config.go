package shaper

import (
	"errors"
	"fmt"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/units"
)

// Config is the outlet's pace.
type Config struct {
	// Rate is the most deliveries in a time, retries included.
	Rate algorithms.Rate `env:"RATE" default:"200/s" desc:"deliveries, retries included: 200/s, 12/m, 0.5/s or unlimited"`
	// Tolerance is how much lateness may be made up, 0 to 1s.
	Tolerance time.Duration `env:"TOLERANCE" default:"5ms" desc:"how much lateness may be made up, 0s to 1s"`
	// Weights are the parts of the rate that tenants get while all have messages
	// waiting; who is not named has 1.
	Weights Weights `env:"WEIGHTS" desc:"parts of the rate by tenant, 1 to 1000: acme=5,globex=2; others 1"`
	// Adaptive lets the consumer's latency and errors move the rate between RateMin
	// and Rate.
	Adaptive units.Switch `env:"ADAPTIVE" default:"off" desc:"on: the rate moves between RATE_MIN and RATE by the consumer's latency and errors"`
	// RateMin is the slowest adaptive rate; probing never stops.
	RateMin algorithms.Rate `env:"RATE_MIN" default:"1/s" desc:"the slowest adaptive rate"`
	// TargetLatency is what an attempt may take before the adaptive rate goes down.
	TargetLatency time.Duration `env:"TARGET_LATENCY" default:"100ms" desc:"latency of an attempt above which the adaptive rate goes down"`
	// Memory is what the payloads of waiting messages may take; past it they
	// are read from the stream again when due.
	Memory units.Size `env:"MEMORY" default:"64MiB" desc:"payloads held ready; past it they are read again when due"`
}

// Validate joins all that is wrong; each error names its variable.
func (c Config) Validate() error {
	var errs []error
	if c.Rate.N == 0 {
		errs = append(errs, fmt.Errorf("FLOWGATE_SHAPER_RATE: %s delivers nothing; it must be above 0", c.Rate))
	}
	if c.Tolerance < 0 || c.Tolerance > time.Second {
		errs = append(errs, fmt.Errorf("FLOWGATE_SHAPER_TOLERANCE: %s must be 0s to 1s", c.Tolerance))
	}
	if c.Memory < units.MiB {
		errs = append(errs, fmt.Errorf("FLOWGATE_SHAPER_MEMORY: %s is under 1MiB", c.Memory))
	}
	if c.Adaptive {
		if c.RateMin.N == 0 || c.RateMin.PerSecond() > c.Rate.PerSecond() {
			errs = append(errs, fmt.Errorf("FLOWGATE_SHAPER_RATE_MIN: %s must be above 0 and at most FLOWGATE_SHAPER_RATE=%s", c.RateMin, c.Rate))
		}
		if c.TargetLatency <= 0 || c.TargetLatency > time.Hour {
			errs = append(errs, fmt.Errorf("FLOWGATE_SHAPER_TARGET_LATENCY: %s must be above 0s and at most 1h", c.TargetLatency))
		}
	}
	return errors.Join(errs...)
}
