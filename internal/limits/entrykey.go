package limits

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scope is what a limit counts by.
type Scope string

// The scopes, from the widest to the narrowest.
const (
	Gateway Scope = "gateway"
	Service Scope = "service" // the topic's first token
	Tenant  Scope = "tenant"
	User    Scope = "user"
	IP      Scope = "ip"
	APIKey  Scope = "api_key" // by fingerprint
)

// Scopes lists them in that order.
func Scopes() []Scope { return []Scope{Gateway, Service, Tenant, User, IP, APIKey} }

// AnyKey is the key of a scope's own rule, for whom no other entry is meant.
const AnyKey = "*"

// Bounds of a key, in bytes.
const (
	maxTenant = 64
	maxKey    = 255
)

var (
	tenantName  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	tenantGlob  = regexp.MustCompile(`^[A-Za-z0-9_*?^\[\]-]+$`)
	addressGlob = regexp.MustCompile(`^[0-9a-f.:*?^\[\]-]+$`)
	fingerprint = regexp.MustCompile(`^ak-[0-9a-f]{16}$`)
)

// validateKey says what is wrong with a key of the scope. It never repeats what
// stands in the place of a fingerprint: that may be a secret.
func validateKey(s Scope, key string) error {
	switch {
	case !slices.Contains(Scopes(), s):
		return fmt.Errorf("scope: there is no %q; it accepts gateway, service, tenant, user, ip, api_key", string(s))
	case key == AnyKey:
		return nil
	case s == Gateway:
		return errors.New("key: the gateway scope counts everything together and has only the key *")
	case s == APIKey:
		if !fingerprint.MatchString(key) {
			return errors.New("key: an API key stands here as its fingerprint, ak- and 16 hex digits, never itself; `flowgate limits fingerprint` makes it from the key; * is the rule for every key")
		}
		return nil
	case key == "":
		return fmt.Errorf("key: is empty; * is the rule for every %s", s)
	case !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("key: %q is not UTF-8 without NUL", key)
	case len(key) > maxKey:
		return fmt.Errorf("key: %d bytes are too long; the longest is %d", len(key), maxKey)
	}
	glob := isGlob(key)
	if _, err := path.Match(key, ""); glob && err != nil {
		return fmt.Errorf("key: %q is not a glob; * stands for any characters, ? for one, [a-z] for one of them", key)
	}
	switch s {
	case Service:
		if key == ">" || strings.ContainsFunc(key, func(r rune) bool { return r == '.' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return fmt.Errorf("key: %q is not a service; it is the first token of a topic, without dots and spaces, or a glob", key)
		}
	case Tenant:
		if glob && !tenantGlob.MatchString(key) || !glob && (!tenantName.MatchString(key) || len(key) > maxTenant) {
			return fmt.Errorf("key: %q is not a tenant; it is 1 to 64 of A-Z a-z 0-9 _ -, or a glob like free-*", key)
		}
	case IP:
		return validateAddress(key, glob)
	}
	return nil
}

func validateAddress(key string, glob bool) error {
	if glob {
		if !addressGlob.MatchString(key) {
			return fmt.Errorf("key: %q is not an address; it is one like 192.0.2.7 or 2001:db8::7, or a glob like 192.0.2.*", key)
		}
		return nil
	}
	a, err := netip.ParseAddr(key)
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("key: %q is not an address; it is one like 192.0.2.7 or 2001:db8::7, or a glob like 192.0.2.*", key)
	}
	// Addresses are compared as text.
	if form := a.Unmap().String(); form != key {
		return fmt.Errorf("key: the address %s is written %s here", key, form)
	}
	return nil
}

// isGlob reports whether a key stands for several.
func isGlob(key string) bool { return strings.ContainsAny(key, "*?[") }

// bucketKey is where the bucket holds the entry of a scope and key.
func bucketKey(s Scope, key string) string {
	return string(s) + "." + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// splitBucketKey takes a bucket's key apart.
func splitBucketKey(k string) (Scope, string, error) {
	scope, encoded, _ := strings.Cut(k, ".")
	key, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return "", "", errors.New("its name in the bucket is not <scope>.<base64url of the key, without padding>")
	}
	return Scope(scope), string(key), nil
}

// shownKey is a bucket's key as it may be shown: what should be a fingerprint and
// is none may be the API key.
func shownKey(k string) string {
	rest, ok := strings.CutPrefix(k, string(APIKey)+".")
	if !ok {
		return k
	}
	key, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || string(key) != AnyKey && !fingerprint.Match(key) {
		return string(APIKey) + ".******"
	}
	return k
}
