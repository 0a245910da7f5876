package ingress

import (
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/units"
)

func TestConfig(t *testing.T) {
	good := Config{Prefix: "ingress", MaxPayload: units.MiB, DedupWindow: 2 * time.Minute}
	for _, c := range []struct {
		name   string
		change func(*Config)
		wrong  []string // the variables that the error names
	}{
		{"default", func(*Config) {}, nil},
		{"two tokens", func(c *Config) { c.Prefix = "in.eu-1" }, nil},
		{"bounds", func(c *Config) { c.MaxPayload, c.DedupWindow = units.KiB, 100*time.Millisecond }, nil},
		{"upper bounds", func(c *Config) { c.MaxPayload, c.DedupWindow = 32*units.MiB, 24*time.Hour }, nil},
		{"globs", func(c *Config) { c.Tenants = []string{"acme", "free-*", "t[0-9]"} }, nil},
		{"no prefix", func(c *Config) { c.Prefix = "" }, []string{"PREFIX"}},
		{"empty token", func(c *Config) { c.Prefix = "a..b" }, []string{"PREFIX"}},
		{"dot at the end", func(c *Config) { c.Prefix = "a." }, []string{"PREFIX"}},
		{"wildcard", func(c *Config) { c.Prefix = "*" }, []string{"PREFIX"}},
		{"the broker's", func(c *Config) { c.Prefix = "$JS" }, []string{"PREFIX"}},
		{"inboxes", func(c *Config) { c.Prefix = "_INBOX" }, []string{"PREFIX"}},
		{"bad glob", func(c *Config) { c.Tenants = []string{"a", "["} }, []string{"TENANTS"}},
		{"certificate alone", func(c *Config) { c.HTTPTLSCert = "c" }, []string{"HTTP_TLS_CERT"}},
		{"key alone", func(c *Config) { c.HTTPTLSKey = "k" }, []string{"HTTP_TLS_CERT"}},
		{"TLS", func(c *Config) { c.HTTPTLSCert, c.HTTPTLSKey = "c", "k" }, nil},
		{"proxies", func(c *Config) { c.TrustedProxies = []string{"10.0.0.0/8", "::1"} }, nil},
		{"bad proxy", func(c *Config) { c.TrustedProxies = []string{"10.0.0.0/8", "lb"} }, []string{"TRUSTED_PROXIES"}},
		{"all at once", func(c *Config) {
			*c = Config{Prefix: "a b", Tenants: []string{"["}, MaxPayload: units.KiB - 1, DedupWindow: time.Millisecond}
		}, []string{"PREFIX", "MAX_PAYLOAD", "DEDUP_WINDOW", "TENANTS"}},
		{"all too large", func(c *Config) { c.MaxPayload, c.DedupWindow = 32*units.MiB+1, 25*time.Hour }, []string{"MAX_PAYLOAD", "DEDUP_WINDOW"}},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if (err != nil) != (c.wrong != nil) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err == nil {
			continue
		}
		if lines := strings.Count(err.Error(), "\n") + 1; lines != len(c.wrong) {
			t.Errorf("%s: %d errors, want %d:\n%v", c.name, lines, len(c.wrong), err)
		}
		for _, name := range c.wrong {
			if !strings.Contains(err.Error(), "FLOWGATE_INGRESS_"+name+":") {
				t.Errorf("%s: %s is not named in\n%v", c.name, name, err)
			}
		}
	}
}
