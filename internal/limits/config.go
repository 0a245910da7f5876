package limits

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Config is the limits of the environment. The zero Rules of a scope limit nothing.
type Config struct {
	Gateway         algorithms.Rules `env:"GATEWAY" desc:"limits of all messages together: <algorithm>:<n>/<period>[,burst=<n>], several joined by ;, or unlimited; algorithms: token-bucket, gcra, leaky-bucket, fixed-window, sliding-window, sliding-window-log, sliding-window-counter"`
	Service         algorithms.Rules `env:"SERVICE" desc:"limits of each service, the topic's first token"`
	Tenant          algorithms.Rules `env:"TENANT" default:"token-bucket:1000/s,burst=2000" desc:"limits of each tenant"`
	TenantOverrides Overrides        `env:"TENANT_OVERRIDES" desc:"limits of single tenants or globs of them: acme=token-bucket:5000/s|free-*=fixed-window:10/m; exact names before globs"`
	User            algorithms.Rules `env:"USER" desc:"limits of each Flowgate-User"`
	IP              algorithms.Rules `env:"IP" desc:"limits of each client address: over HTTP and for imports from other accounts; plain NATS does not tell it"`
	APIKey          algorithms.Rules `env:"API_KEY" desc:"limits of each API key"`
	MaxKeys         int              `env:"MAX_KEYS" default:"1000000" desc:"keys that a scope remembers at most; further ones share an overflow bucket, unless an override names them"`
}

// maxMaxKeys is about 4 GB of keys a scope.
const maxMaxKeys = 100_000_000

// Validate joins all that is wrong; each error names its variable.
func (c Config) Validate() error {
	var errs []error
	if c.MaxKeys < 1 || c.MaxKeys > maxMaxKeys {
		errs = append(errs, fmt.Errorf("FLOWGATE_LIMIT_MAX_KEYS: %d must be 1 to %d", c.MaxKeys, maxMaxKeys))
	}
	for _, scope := range Scopes() {
		if err := c.policy(scope, nil).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("FLOWGATE_LIMIT_%s: %w", strings.ToUpper(string(scope)), err))
		}
	}
	return errors.Join(errs...)
}

// Rules gives the rules of a scope that hold without an override.
func (c Config) Rules(scope Scope) algorithms.Rules {
	switch scope {
	case Gateway:
		return c.Gateway
	case Service:
		return c.Service
	case Tenant:
		return c.Tenant
	case User:
		return c.User
	case IP:
		return c.IP
	case APIKey:
		return c.APIKey
	}
	return nil
}

// String says in a line what is limited.
func (c Config) String() string {
	var parts []string
	for _, e := range c.Entries() {
		if e.Key == AnyKey {
			parts = append(parts, string(e.Scope)+" at "+e.Rules.String())
		}
	}
	if n := len(c.TenantOverrides); n > 0 {
		parts = append(parts, fmt.Sprintf("%d tenant overrides", n))
	}
	if len(parts) == 0 {
		return "no limits"
	}
	return strings.Join(parts, ", ")
}

// Entries lists the limits of the environment as entries: each scope that has rules,
// and the overrides.
func (c Config) Entries() []Entry {
	var list []Entry
	for _, s := range Scopes() {
		if rules := c.Rules(s); len(rules) > 0 {
			list = append(list, Entry{Scope: s, Key: AnyKey, Rules: rules})
		}
	}
	for _, o := range c.TenantOverrides {
		list = append(list, Entry{Scope: Tenant, Key: o.Key, Rules: o.Rules})
	}
	return list
}

// Override is other limits for one tenant, or for those that a glob matches.
type Override struct {
	Key   string
	Rules algorithms.Rules
}

// Overrides are tried in their order, exact names first.
type Overrides []Override

// UnmarshalText reads "acme=token-bucket:1000/s,burst=2000|free-*=fixed-window:10/m".
func (o *Overrides) UnmarshalText(text []byte) error {
	var list Overrides
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), "|") {
		key, rules, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q is not <tenant or glob>=<limits>, several joined by '|'", part)
		}
		if key == AnyKey {
			return fmt.Errorf("%q: FLOWGATE_LIMIT_TENANT is the rule for every tenant", part)
		}
		if err := validateKey(Tenant, key); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		if seen[key] {
			return fmt.Errorf("%q: %q is there twice", part, key)
		}
		seen[key] = true
		parsed, err := algorithms.ParseRules(rules)
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		list = append(list, Override{key, parsed})
	}
	*o = list
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (o Overrides) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// String gives the form that UnmarshalText reads.
func (o Overrides) String() string {
	parts := make([]string, len(o))
	for i := range o {
		parts[i] = o[i].Key + "=" + o[i].Rules.String()
	}
	return strings.Join(parts, "|")
}
