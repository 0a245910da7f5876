package backpressure

import (
	"errors"
	"fmt"
	"time"

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
	// HighAge is the age of the oldest waiting message at which producers are refused,
	// until it is back at four fifths of it; 0 is off.
	HighAge units.Span `env:"HIGH_AGE" default:"off" desc:"oldest waiting message older than this: refused too; off: whatever its age"`
	// HighOutage is for how long the consumer may be held back by its breaker before
	// producers are refused, until it is back; 0 is off.
	HighOutage units.Span `env:"HIGH_OUTAGE" default:"off" desc:"the consumer's breaker open for longer than this: refused too; off: the backlog fills up to HIGH"`
	// Fair admits, under pressure, tenants that hold less than their part.
	Fair units.Switch `env:"FAIR" default:"on" desc:"under pressure a tenant that holds less than its weight's part of HIGH among the tenants with messages is still admitted while there is room below MAX"`
	// TenantMax is the most messages of one tenant; at least 1.
	TenantMax TenantMax `env:"TENANT_MAX" default:"off" desc:"most messages of one tenant in the backlog, a number or of HIGH; off: any number"`
}

const (
	mostMessages = 100_000_000
	longestMark  = 1000 * time.Hour
)

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
	if c.TenantMax.on && c.High >= 1 && c.TenantMax.Of(c.High) < 1 {
		errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_TENANT_MAX: %s is 0 messages, which would refuse all; it must be at least 1, or off", c.TenantMax))
	}
	for _, v := range []struct {
		name string
		span units.Span
	}{{"HIGH_AGE", c.HighAge}, {"HIGH_OUTAGE", c.HighOutage}} {
		if v.span != 0 && (v.span < units.Span(time.Second) || v.span > units.Span(longestMark)) {
			errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_%s: %s must be %s to %s, or off", v.name, v.span, units.FormatDuration(time.Second), units.FormatDuration(longestMark)))
		}
	}
	if c.MaxBytes < units.MiB {
		errs = append(errs, fmt.Errorf("FLOWGATE_BACKPRESSURE_MAX_BYTES: %s is under 1MiB", c.MaxBytes))
	}
	return errors.Join(errs...)
}
