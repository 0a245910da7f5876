package consumers

import (
	"errors"
	"fmt"
	"time"
)

// Config says where deliveries go and how failures are treated.
type Config struct {
	// URL names the destination: sqlite:<path> or postgres://…
	URL string `env:"URL" secret:"true" default:"sqlite:" desc:"where messages are delivered: sqlite:<path> (empty path: in the data directory) or postgres://…"`
	// Concurrency is the most deliveries in flight at once, 1 to 1024.
	Concurrency int `env:"CONCURRENCY" default:"4" desc:"deliveries in flight at most, 1 to 1024"`
	// Timeout bounds one attempt; more than 0.
	Timeout time.Duration `env:"TIMEOUT" default:"10s" desc:"one attempt"`
	// MaxAttempts is how often a message is tried before it becomes a dead
	// letter, from 1. Faults of the destination as a whole do not count.
	MaxAttempts int `env:"MAX_ATTEMPTS" default:"5" desc:"attempts at a message before it goes to the dead-letter stream; faults of the consumer as a whole do not count"`
	// Backoff is the wait after the first failed attempt; it doubles up to
	// BackoffMax and is jittered.
	Backoff    time.Duration `env:"BACKOFF" default:"200ms" desc:"wait before the second attempt; doubles, jittered"`
	BackoffMax time.Duration `env:"BACKOFF_MAX" default:"30s" desc:"longest wait between attempts"`
}

// Validate joins all that is wrong; each error names its variable.
func (c Config) Validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("FLOWGATE_CONSUMER_"+name+": "+format, args...))
	}
	if err := ValidateURL(c.URL); err != nil {
		bad("URL", "%w", err)
	}
	if c.Concurrency < 1 || c.Concurrency > 1024 {
		bad("CONCURRENCY", "%d must be 1 to 1024", c.Concurrency)
	}
	if c.Timeout <= 0 || c.Timeout > time.Hour {
		bad("TIMEOUT", "%s must be above 0 and at most 1h", c.Timeout)
	}
	if c.MaxAttempts < 1 || c.MaxAttempts > 1_000_000 {
		bad("MAX_ATTEMPTS", "%d must be 1 to 1000000", c.MaxAttempts)
	}
	if c.Backoff <= 0 || c.Backoff > c.BackoffMax {
		bad("BACKOFF", "%s must be above 0 and at most FLOWGATE_CONSUMER_BACKOFF_MAX=%s", c.Backoff, c.BackoffMax)
	}
	if c.BackoffMax > 24*time.Hour {
		bad("BACKOFF_MAX", "%s is over 24h", c.BackoffMax)
	}
	return errors.Join(errs...)
}
