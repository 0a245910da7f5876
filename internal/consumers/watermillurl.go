package consumers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// brokerURL is the URL of a message broker, in parts.
type brokerURL struct {
	scheme         string
	hosts          []string // host:port, at least one
	user, password string
	signIn         bool   // the URL has a user
	path           string // without the slash before it, unescaped
	query          map[string]string
	ca             string // PEM file of the authorities to trust; empty: the system's
}

// parseBrokerURL takes <scheme>://[user:password@]host[:port][,host[:port]]/<path>?<query>,
// with no other query than the keys. Its errors never show the URL.
func parseBrokerURL(text, port string, keys ...string) (brokerURL, error) {
	u := brokerURL{query: map[string]string{}}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		name, _, _ := strings.Cut(text, ":")
		return u, fmt.Errorf("is no URL: %s: is followed by // and a host", name)
	}
	u.scheme = scheme
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		// One host, since net/url takes no list of them.
		parsed, err := url.Parse(scheme + "://" + authority[:at] + "@host")
		if err != nil {
			return u, errors.New("has a user or password that cannot be read: special characters are written as %XX")
		}
		u.user, u.signIn = parsed.User.Username(), true
		u.password, _ = parsed.User.Password()
		authority = authority[at+1:]
	}
	for host := range strings.SplitSeq(authority, ",") {
		parsed, err := url.Parse(scheme + "://" + host)
		if err != nil || parsed.Hostname() == "" {
			return u, errors.New("has no host, or one that is none; hosts look like 10.0.0.1, kafka:9092 or [::1]:6379")
		}
		p := parsed.Port()
		if p == "" {
			p = port
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return u, fmt.Errorf("has the port %s; ports are 1 to 65535", p)
		}
		u.hosts = append(u.hosts, net.JoinHostPort(parsed.Hostname(), p))
	}
	parsed, err := url.Parse(scheme + "://host" + rest)
	if err != nil || parsed.Fragment != "" {
		return u, errors.New("has a path or query that cannot be read: special characters are written as %XX")
	}
	u.path = strings.TrimPrefix(parsed.Path, "/")
	values, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return u, errors.New("has a query that cannot be read: special characters are written as %XX")
	}
	if u.secure() {
		keys = append(slices.Clone(keys), "ca")
	}
	for k, vs := range values {
		switch {
		case !slices.Contains(keys, k) && len(keys) == 0:
			return u, fmt.Errorf("has the unknown parameter %q; it takes none", k)
		case !slices.Contains(keys, k):
			return u, fmt.Errorf("has the unknown parameter %q; it accepts %s", k, strings.Join(keys, ", "))
		case len(vs) != 1 || vs[0] == "":
			return u, fmt.Errorf("has the parameter %s empty or more than once", k)
		}
		u.query[k] = vs[0]
	}
	u.ca = u.query["ca"]
	return u, nil
}

// secure says whether the connection is over TLS: kafkas, amqps, rediss.
func (u brokerURL) secure() bool { return strings.HasSuffix(u.scheme, "s") && u.scheme != "redis" }

// tls is the configuration for a connection to host; nil without TLS.
func (u brokerURL) tls(host string) (*tls.Config, error) {
	if !u.secure() {
		return nil, nil
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if u.ca == "" {
		return c, nil
	}
	pem, err := os.ReadFile(u.ca)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca: %s holds no certificate in PEM form", u.ca)
	}
	return c, nil
}
