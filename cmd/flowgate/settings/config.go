// Package settings is the gateway's configuration: every FLOWGATE_ variable with
// its default and meaning, in one place. The parser, the list that `flowgate env`
// prints and README's table all come from the struct tags of Config.
//
// The environment is an argument: only main reads the process's own.
package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
	"github.com/flowgate/flowgate/internal/shaper"
	"github.com/flowgate/flowgate/internal/units"
)

// Off switches a listener off.
const Off = "off"

// Config is the whole configuration.
type Config struct {
	Name            string        `env:"NAME" default:"flowgate" desc:"names subjects, micro service and queue group; in upper case the streams and buckets"`
	Mode            ingress.Mode  `env:"MODE" default:"enforce" desc:"enforce; shadow: limits and backpressure decide and count, refuse nothing; off: neither. The hard MAX holds in every mode"`
	DataDir         string        `env:"DATA_DIR" default:"flowgate-data" desc:"embedded broker's store, default database"`
	LogLevel        string        `env:"LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`
	LogFormat       string        `env:"LOG_FORMAT" default:"auto" desc:"text, json, or auto: text on a terminal, else json"`
	ShutdownDelay   time.Duration `env:"SHUTDOWN_DELAY" default:"0s" desc:"how long to be unready before refusing"`
	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" default:"20s" desc:"bound on draining"`

	NATS         NATS                `prefix:"NATS_"`
	Ingress      ingress.Config      `prefix:"INGRESS_"`
	Limit        limits.Config       `prefix:"LIMIT_"`
	Backpressure backpressure.Config `prefix:"BACKPRESSURE_"`
	Shaper       shaper.Config       `prefix:"SHAPER_"`
	Consumer     consumers.Config    `prefix:"CONSUMER_"`
	DLQ          DLQ                 `prefix:"DLQ_"`
	Admin        Admin               `prefix:"ADMIN_"`
	Metrics      Metrics             `prefix:"METRICS_"`
}

// NATS says which broker to use, and how.
type NATS struct {
	URL          string `env:"URL" secret:"true" desc:"the NATS to use, several separated by commas; empty: the embedded server"`
	Listen       string `env:"LISTEN" default:"127.0.0.1:4222" desc:"embedded server's client address; off: in-process only"`
	Config       string `env:"CONFIG" desc:"nats-server configuration file for the embedded server; wins over LISTEN and SYNC_INTERVAL, not over the data directory"`
	Creds        string `env:"CREDS" desc:"credentials file to sign in with"`
	User         string `env:"USER" desc:"user to sign in as"`
	Password     string `env:"PASSWORD" secret:"true" desc:"its password"`
	Token        string `env:"TOKEN" secret:"true" desc:"token to sign in with"`
	TLSCA        string `env:"TLS_CA" desc:"file with the certificate authorities to trust"`
	TLSCert      string `env:"TLS_CERT" desc:"client certificate file"`
	TLSKey       string `env:"TLS_KEY" desc:"its key file"`
	SyncInterval Sync   `env:"SYNC_INTERVAL" default:"100ms" desc:"fsync period of the embedded store, what a power cut may lose; always: each message"`
	Replicas     int    `env:"REPLICAS" default:"1" desc:"stream and bucket replicas: 1, 3 or 5"`
}

// DLQ is the dead-letter stream.
type DLQ struct {
	MaxBytes units.Size    `env:"MAX_BYTES" default:"256MiB" desc:"size of the dead-letter stream, at least 1MiB and 64KiB more than INGRESS_MAX_PAYLOAD; full, messages stay where they are and are retried slowly"`
	MaxAge   time.Duration `env:"MAX_AGE" default:"0" desc:"dead letters older than this are dropped; 0: never"`
}

// Admin is the operators' address.
type Admin struct {
	Listen string `env:"LISTEN" default:"127.0.0.1:8081" desc:"metrics, health, status and live limits; off: none"`
	Token  string `env:"TOKEN" secret:"true" desc:"needed for every change at the admin address; empty: changes only from this machine"`
}

// Metrics bounds what is exported.
type Metrics struct {
	TenantsMax int `env:"TENANTS_MAX" default:"50" desc:"tenants with a label of their own; the rest are other"`
}

// Sync is how often the embedded store is written to the disk.
type Sync struct {
	// Always is each message; Every is the period otherwise.
	Always bool
	Every  time.Duration
}

// String gives the form that UnmarshalText reads.
func (s Sync) String() string {
	if s.Always {
		return "always"
	}
	return units.FormatDuration(s.Every)
}

// MarshalText implements encoding.TextMarshaler.
func (s Sync) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a period or "always".
func (s *Sync) UnmarshalText(text []byte) error {
	if string(text) == "always" {
		*s = Sync{Always: true}
		return nil
	}
	d, err := units.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%w, or always", err)
	}
	*s = Sync{Every: d}
	return nil
}

// deadLetterMore is what a dead letter takes in its stream beyond the largest message.
const deadLetterMore = 64 * units.KiB

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Validate checks every value and the values against each other, and joins all
// that is wrong; each error names its variable.
func (c Config) Validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("FLOWGATE_"+name+": "+format, args...))
	}
	if !namePattern.MatchString(c.Name) {
		bad("NAME", "%q must match [a-z][a-z0-9-]{0,31}", c.Name)
	}
	if c.DataDir == "" {
		bad("DATA_DIR", "is empty; name a directory")
	}
	oneOf := func(name, value string, accepted ...string) {
		for _, a := range accepted {
			if value == a {
				return
			}
		}
		bad(name, "%q must be one of %s", value, strings.Join(accepted, ", "))
	}
	oneOf("LOG_LEVEL", c.LogLevel, "debug", "info", "warn", "error")
	oneOf("LOG_FORMAT", c.LogFormat, "auto", "text", "json")
	if c.ShutdownDelay > 10*time.Minute {
		bad("SHUTDOWN_DELAY", "%s is over 10m", c.ShutdownDelay)
	}
	if c.ShutdownTimeout <= 0 || c.ShutdownTimeout > time.Hour {
		bad("SHUTDOWN_TIMEOUT", "%s must be above 0 and at most 1h", c.ShutdownTimeout)
	}
	c.NATS.validate(bad)
	errs = append(errs, c.Ingress.Validate(), c.Limit.Validate(), c.Backpressure.Validate(), c.Shaper.Validate(), c.Consumer.Validate(), c.Admin.validate())
	if p := c.Ingress.Prefix; overlap(p, c.Name) {
		bad("INGRESS_PREFIX", "%q overlaps the gateway's own subjects %s.>; choose another prefix or FLOWGATE_NAME", p, c.Name)
	}
	if kept := time.Duration(c.Consumer.Retention); kept > 0 && kept < c.Ingress.DedupWindow {
		// Within the window a repeat is a repeat, also after the broker has restarted and
		// forgotten its ids: then the row is what knows it.
		bad("CONSUMER_RETENTION", "%s is under FLOWGATE_INGRESS_DEDUP_WINDOW=%s; a row that is gone recognises no repeat", kept, c.Ingress.DedupWindow)
	}
	if target, ok := c.Consumer.NATS(); ok {
		// What it delivers must not come back to it.
		if overlap(target.Prefix, c.Name) {
			bad("CONSUMER_URL", "the subjects %s.> overlap the gateway's own, %s.>; choose another prefix or FLOWGATE_NAME", target.Prefix, c.Name)
		}
		if overlap(target.Prefix, c.Ingress.Prefix) {
			bad("CONSUMER_URL", "the subjects %s.> overlap those of the ingress, %s.>; choose another prefix or FLOWGATE_INGRESS_PREFIX", target.Prefix, c.Ingress.Prefix)
		}
	}
	if c.Shaper.Adaptive && c.Shaper.TargetLatency >= c.Consumer.Timeout && c.Consumer.Timeout > 0 {
		bad("SHAPER_TARGET_LATENCY", "%s is not below FLOWGATE_CONSUMER_TIMEOUT=%s: each attempt would end before it could be too slow", c.Shaper.TargetLatency, c.Consumer.Timeout)
	}
	c.listeners(bad)
	if c.DLQ.MaxBytes < units.MiB {
		bad("DLQ_MAX_BYTES", "%s is under 1MiB", c.DLQ.MaxBytes)
	} else if least := c.Ingress.MaxPayload + deadLetterMore; c.DLQ.MaxBytes < least {
		bad("DLQ_MAX_BYTES", "%s has no room for one message of FLOWGATE_INGRESS_MAX_PAYLOAD=%s, which would never leave the backlog; set at least %s", c.DLQ.MaxBytes, c.Ingress.MaxPayload, least)
	}
	if c.DLQ.MaxAge != 0 && c.DLQ.MaxAge < time.Second {
		bad("DLQ_MAX_AGE", "%s is under 1s; 0 keeps dead letters for ever", c.DLQ.MaxAge)
	}
	if err := address(c.Ingress.HTTPListen); err != nil {
		bad("INGRESS_HTTP_LISTEN", "%w", err)
	}
	if c.Metrics.TenantsMax < 0 || c.Metrics.TenantsMax > 10_000 {
		bad("METRICS_TENANTS_MAX", "%d must be 0 to 10000", c.Metrics.TenantsMax)
	}
	return errors.Join(errs...)
}

// overlap reports whether two subject prefixes have subjects in common.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

func (n NATS) validate(bad func(name, format string, args ...any)) {
	if err := address(n.Listen); err != nil {
		bad("NATS_LISTEN", "%w", err)
	}
	switch n.Replicas {
	case 1:
	case 3, 5:
		if n.URL == "" && n.Config == "" {
			bad("NATS_REPLICAS", "%d needs a cluster: FLOWGATE_NATS_URL or FLOWGATE_NATS_CONFIG", n.Replicas)
		}
	default:
		bad("NATS_REPLICAS", "%d must be 1, 3 or 5", n.Replicas)
	}
	if !n.SyncInterval.Always && n.SyncInterval.Every < time.Millisecond {
		bad("NATS_SYNC_INTERVAL", "%s must be at least 1ms, or always", n.SyncInterval)
	}
	for u := range strings.SplitSeq(n.URL, ",") {
		if !goodPort(u) { // what stands there may be a piece of a password
			bad("NATS_URL", "has a port that is none; ports are 1 to 65535")
			break
		}
	}
	if n.URL != "" && n.Config != "" {
		bad("NATS_CONFIG", "configures the embedded server, but FLOWGATE_NATS_URL names another; set one of them")
	}
	if n.URL == "" && n.Config == "" {
		for _, v := range []struct{ name, value string }{
			{"CREDS", n.Creds}, {"USER", n.User}, {"PASSWORD", n.Password}, {"TOKEN", n.Token},
			{"TLS_CA", n.TLSCA}, {"TLS_CERT", n.TLSCert}, {"TLS_KEY", n.TLSKey},
		} {
			if v.value != "" {
				bad("NATS_"+v.name, "has no use: without FLOWGATE_NATS_URL or FLOWGATE_NATS_CONFIG the embedded server needs no sign-in")
			}
		}
	}
	if (n.TLSCert == "") != (n.TLSKey == "") {
		bad("NATS_TLS_CERT", "and FLOWGATE_NATS_TLS_KEY go together; one is missing")
	}
	if (n.User == "") != (n.Password == "") {
		bad("NATS_USER", "and FLOWGATE_NATS_PASSWORD go together; one is missing")
	}
}

// goodPort reports whether one of FLOWGATE_NATS_URL has a port that can be, or none.
// What does not parse is told where it is connected to.
func goodPort(s string) bool {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Port() == "" {
		return true
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

func (a Admin) validate() error {
	var errs []error
	if err := address(a.Listen); err != nil {
		errs = append(errs, fmt.Errorf("FLOWGATE_ADMIN_LISTEN: %w", err))
	}
	// What a header can carry; the token is not shown.
	if strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		errs = append(errs, errors.New("FLOWGATE_ADMIN_TOKEN: the token must be printable ASCII without spaces"))
	}
	return errors.Join(errs...)
}

// listeners finds two that cannot listen beside each other.
func (c Config) listeners(bad func(name, format string, args ...any)) {
	type listener struct{ name, address string }
	all := []listener{{"INGRESS_HTTP_LISTEN", c.Ingress.HTTPListen}, {"ADMIN_LISTEN", c.Admin.Listen}}
	if c.NATS.URL == "" && c.NATS.Config == "" {
		all = append(all, listener{"NATS_LISTEN", c.NATS.Listen})
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if collide(a.address, b.address) {
				bad(a.name, "%s is taken by FLOWGATE_%s=%s; choose another port", a.address, b.name, b.address)
			}
		}
	}
}

// collide reports whether two addresses cannot be listened on at once. Without a host,
// and with ::, all of a machine's addresses are meant, with 0.0.0.0 those of IPv4. Other
// names than localhost are not looked up.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	n, err := strconv.Atoi(portA)
	m, _ := strconv.Atoi(portB)
	if errA != nil || errB != nil || err != nil || n != m || n == 0 {
		return false // 0: a free one
	}
	hosts := [2]netip.Addr{}
	for i, host := range []string{hostA, hostB} {
		switch host {
		case "":
			host = "::"
		case "localhost":
			host = "127.0.0.1"
		}
		hosts[i], _ = netip.ParseAddr(host) // invalid: a name
	}
	for i, h := range hosts {
		other := hosts[1-i]
		if h == netip.IPv6Unspecified() || h == netip.IPv4Unspecified() && !other.Is6() {
			return true
		}
	}
	if hosts[0].IsValid() || hosts[1].IsValid() {
		return hosts[0] == hosts[1]
	}
	return hostA == hostB
}

// address accepts host:port or off.
func address(s string) error {
	if s == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		if n, e := strconv.ParseUint(port, 10, 16); e == nil && n <= 65535 && port != "" {
			return nil
		}
	}
	return fmt.Errorf("%q is not an address: host:port like 127.0.0.1:4222, or off", s)
}
