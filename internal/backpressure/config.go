package backpressure

import (
	"errors"
	"fmt"

	"github.com/flowgate/flowgate/internal/units"
)

// Config sets the watermarks of the backlog.
type Config struct {
	// High is the depth at which producers are refused, from 1.
	High uint64 `env:"HIGH" default:"10000" desc:"messages in the backlog at which producers are refused"`
	// Low is the depth at or below which they are admitted again; below High.
	Low units.Share `env:"LOW" default:"80%" desc:"of HIGH, or a number; admitted again at or below it"`
	// Max is the stream's own cap; at least High.
	Max units.Share `env:"MAX" default:"200%" desc:"of HIGH, or a number; the stream's own hard cap, held by the broker"`
	// MaxBytes is the stream's cap in bytes.
	MaxBytes units.Size `env:"MAX_BYTES" default:"1GiB" desc:"the stream's hard cap in bytes"`
}

const mostMessages = 100_000_000

// Validate joins all that is wrong, the marks against each other included; each
// error names its variable.
func (c Config) Validate() error {
	var errs []error
	if c.High < 1 || c.High > mostMessages {
		errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_HIGH: %d must be 1 to %d", c.High, mostMessages))
	} else {
		if low := c.Low.Of(c.High); low >= c.High {
			errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_LOW: %s is %d messages, which must be below FLOWGATE_BACKPRESSURE_HIGH=%d", c.Low, low, c.High))
		}
		if most := c.Max.Of(c.High); most < c.High || most > 10*mostMessages {
			errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_MAX: %s is %d messages, which must be at least FLOWGATE_BACKPRESSURE_HIGH=%d and at most %d", c.Max, most, c.High, 10*mostMessages))
		}
	}
	if c.MaxBytes < units.MiB {
		errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_MAX_BYTES: %s is under 1MiB", c.MaxBytes))
	}
	return errors.Join(errs...)
}
