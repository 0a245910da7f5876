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
	return errors.Join(errs...)
}
