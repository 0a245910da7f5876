package consumers

import (
	"errors"
	"fmt"
	"time"

	"github.com/flowgate/flowgate/internal/units"
)

// Config says where deliveries go and how failures are treated.
type Config struct {
	// URL names the destination: sqlite:<path>, postgres://…, http(s)://…,
	// nats:<subject prefix>, stdout:, kafka://…, amqp://… or redis://…
	URL string `env:"URL" secret:"true" default:"sqlite:" desc:"where messages are delivered: sqlite:<path> (empty path: in the data directory), postgres://…, http(s)://…, nats:<subject prefix>[?ack=reply], stdout:, kafka://…, amqp://… or redis://…"`
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
	// Batch is the most messages of one delivery, 1 to 1000; a delivery waits up to
	// BatchWait for them, which needs a Batch above 1.
	Batch     int           `env:"BATCH" default:"1" desc:"messages of one delivery at most, 1 to 1000; a batch of n takes n of the rate"`
	BatchWait time.Duration `env:"BATCH_WAIT" default:"0s" desc:"how long a delivery waits for its batch to fill, 0s to 1m; needs BATCH above 1"`
	// Order says what holds among a tenant's messages when one has to be tried again.
	Order Order `env:"ORDER" default:"none" desc:"none, or tenant: a tenant's messages strictly in order, one delivery at a time, also through retries"`
	// Retention is how long rows of our own table are kept; zero is for ever.
	Retention units.Span `env:"RETENTION" default:"off" desc:"rows older than this are deleted from our table; off: never"`
	// SQL is the statement that writes a message, in place of the one for our table.
	SQL string `env:"SQL" desc:"statement of one's own for sqlite and postgres, with named parameters like :id and :payload; empty: our table"`
	// HTTPSecret signs deliveries over HTTP.
	HTTPSecret string `env:"HTTP_SECRET" secret:"true" desc:"signs deliveries over HTTP (Standard Webhooks: whsec_<base64>); several, separated by spaces, while one is replaced"`
}

// Order is what is promised of the sequence of a tenant's messages.
type Order uint8

const (
	// OrderNone: stream order, but a message that is tried again steps aside.
	OrderNone Order = iota
	// OrderTenant: a tenant's messages strictly in order, one delivery at a time.
	OrderTenant
)

// String gives the form that UnmarshalText reads.
func (o Order) String() string {
	if o == OrderTenant {
		return "tenant"
	}
	return "none"
}

// MarshalText implements encoding.TextMarshaler.
func (o Order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads "none" or "tenant".
func (o *Order) UnmarshalText(text []byte) error {
	switch string(text) {
	case "none":
		*o = OrderNone
	case "tenant":
		*o = OrderTenant
	default:
		return fmt.Errorf("%q is neither none nor tenant", text)
	}
	return nil
}

// Validate joins all that is wrong; each error names its variable.
func (c Config) Validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("FLOWGATE_CONSUMER_"+name+": "+format, args...))
	}
	err := ValidateURL(c.URL)
	if err != nil {
		bad("URL", "%w", err)
	}
	if _, wrong := newSigner(c.HTTPSecret); wrong != nil {
		bad("HTTP_SECRET", "%w", wrong)
	} else if err == nil && c.HTTPSecret != "" && !isWebhook(c.URL) {
		bad("HTTP_SECRET", "signs deliveries over HTTP, but FLOWGATE_CONSUMER_URL is no http:// or https:// one")
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
	if c.Batch < 1 || c.Batch > 1000 {
		bad("BATCH", "%d must be 1 to 1000", c.Batch)
	}
	if c.BatchWait < 0 || c.BatchWait > time.Minute {
		bad("BATCH_WAIT", "%s must be 0s to 1m", c.BatchWait)
	} else if c.BatchWait > 0 && c.Batch == 1 {
		bad("BATCH_WAIT", "%s is without effect, since FLOWGATE_CONSUMER_BATCH=1 is full at once; set that above 1, or unset this", c.BatchWait)
	}
	if err := checkStatement(c); err != nil {
		bad("SQL", "%w", err)
	}
	if err := checkRetention(c); err != nil {
		bad("RETENTION", "%w", err)
	}
	return errors.Join(errs...)
}
