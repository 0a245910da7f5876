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
	// HTTPListen is where the HTTP door listens, host:port, or off. With a
	// certificate and its key it speaks TLS alone.
	HTTPListen  string `env:"HTTP_LISTEN" default:"127.0.0.1:8080" desc:"HTTP ingress; off: none"`
	HTTPTLSCert string `env:"HTTP_TLS_CERT" desc:"certificate file of the HTTP ingress; with it, HTTPS alone"`
	HTTPTLSKey  string `env:"HTTP_TLS_KEY" desc:"its key file"`
	// MaxPayload bounds headers and body together.
	MaxPayload units.Size `env:"MAX_PAYLOAD" default:"1MiB" desc:"largest message, its headers included, 1KiB to 32MiB"`
	// DedupWindow is how long the broker remembers a message id.
	DedupWindow time.Duration `env:"DEDUP_WINDOW" default:"2m" desc:"how long a repeated Nats-Msg-Id is recognised, 100ms to 24h"`
	// Tenants are the globs of the tenants that may publish; empty: all.
	Tenants []string `env:"TENANTS" desc:"allowed tenants, globs separated by commas; empty: all"`
	// APIKeysFile has a key and its tenant a line.
	APIKeysFile string `env:"API_KEYS_FILE" desc:"file with <key> <tenant> a line, read again when it changes; set: HTTP needs a key"`
	// Hold is for how long the answer is held back when the message will pass within it.
	Hold units.Span `env:"HOLD" default:"off" desc:"hold a message that would be refused up to this long if it will pass within it, in place of refusing it; at most 2s, of which 1.5s are used; off: not at all"`
	// TrustedProxies are the networks whose X-Forwarded-For is believed.
	TrustedProxies []string `env:"TRUSTED_PROXIES" desc:"networks (CIDR) of proxies whose X-Forwarded-For is believed, separated by commas"`
}

// Bounds of the configuration.
const (
	minPayload = units.KiB
	maxPayload = 32 * units.MiB
	minDedup   = 100 * time.Millisecond
	maxDedup   = 24 * time.Hour
	maxHold    = 2 * time.Second
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
	if c.Hold != 0 && (c.Hold < units.Span(time.Millisecond) || c.Hold > units.Span(maxHold)) {
		errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_HOLD: %s must be 1ms to 2s, or off", c.Hold))
	}
	for _, glob := range c.Tenants {
		if _, err := path.Match(glob, "x"); err != nil {
			errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_TENANTS: %q is not a glob like acme or free-*", glob))
		}
	}
	if (c.HTTPTLSCert == "") != (c.HTTPTLSKey == "") {
		errs = append(errs, errors.New("FLOWGATE_INGRESS_HTTP_TLS_CERT: and FLOWGATE_INGRESS_HTTP_TLS_KEY go together; one is missing"))
	}
	if _, err := parseProxies(c.TrustedProxies); err != nil {
		errs = append(errs, fmt.Errorf("FLOWGATE_INGRESS_TRUSTED_PROXIES: %w", err))
	}
	return errors.Join(errs...)
}

// CheckFiles reads the files that the configuration names, as the start does, and joins
// all that is wrong with them.
func (c Config) CheckFiles() error {
	_, err := openAPIKeys(c.APIKeysFile, nil)
	errs := []error{err}
	if c.HTTPTLSCert != "" {
		_, err := loadCertificate(c)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
