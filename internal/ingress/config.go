package ingress

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/units"
)

// Config is the front door.
type Config struct {
	// Prefix is the first token or tokens of the ingress subjects.
	Prefix string `env:"PREFIX" default:"ingress" desc:"first subject token(s): producers publish to <prefix>.<tenant>.<topic>"`
	// MaxPayload bounds headers and body together.
	MaxPayload units.Size `env:"MAX_PAYLOAD" default:"1MiB" desc:"largest message, its headers included, 1KiB to 32MiB"`
	// DedupWindow is how long the broker remembers a message id.
	DedupWindow time.Duration `env:"DEDUP_WINDOW" default:"2m" desc:"how long a repeated Nats-Msg-Id is recognised, 100ms to 24h"`
	// Tenants are the globs of the tenants that may publish; empty: all.
	Tenants []string `env:"TENANTS" desc:"allowed tenants, globs separated by commas; empty: all"`
}

// Bounds of the configuration.
const (
	minPayload = units.KiB
	maxPayload = 32 * units.MiB
	minDedup   = 100 * time.Millisecond
	maxDedup   = 24 * time.Hour
)

// Validate joins all that is wrong; each error names its variable.
func (c Config) Validate() error {
	var errs []error
	for token := range strings.SplitSeq(c.Prefix, ".") {
		if !ValidTenant(token) || token[0] == '_' {
			errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_PREFIX: %q must be tokens of A-Z a-z 0-9 _ - joined by dots, none beginning with _", c.Prefix))
			break
		}
	}
	if c.MaxPayload < minPayload || c.MaxPayload > maxPayload {
		errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_MAX_PAYLOAD: %s must be %s to %s", c.MaxPayload, minPayload, maxPayload))
	}
	if c.DedupWindow < minDedup || c.DedupWindow > maxDedup {
		errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_DEDUP_WINDOW: %s must be %s to 24h", c.DedupWindow, minDedup))
	}
	for _, glob := range c.Tenants {
		if _, err := path.Match(glob, "x"); err != nil {
			errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_TENANTS: %q is not a glob like acme or free-*", glob))
		}
	}
	return errors.Join(errs...)
}
