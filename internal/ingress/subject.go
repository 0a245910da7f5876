package ingress

import (
	"strings"
	"unicode/utf8"
)

// Bounds of what producers may send, in bytes. The broker's control line holds
// 4,096: one forwarded subject too long would close the gateway's connection.
const (
	MaxSubject = 1024
	MaxReply   = 512
	MaxMsgID   = 255
	MaxTenant  = 64
	// maxAnswered is the longest reply subject that is answered at all: our control
	// line is longer than its sender's.
	maxAnswered = 4000
	// maxHeader is what the broker stores of headers at most (a 16-bit length).
	maxHeader = 65535
)

// ValidTenant reports whether s is 1 to 64 of A-Z a-z 0-9 _ -.
func ValidTenant(s string) bool {
	if len(s) == 0 || len(s) > MaxTenant {
		return false
	}
	for i := range len(s) {
		if !nameByte(s[i]) {
			return false
		}
	}
	return true
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// splitSubject takes the tenant and the topic out of a subject under prefix
// (which ends in a dot). problem is empty if both are well formed; a tenant is
// returned only if its name is valid.
func splitSubject(prefix, subject string) (tenant, topic, problem string) {
	if len(subject) > MaxSubject {
		return "", "", "subject is longer than 1024 bytes"
	}
	rest, ok := strings.CutPrefix(subject, prefix)
	if !ok {
		return "", "", "subject is not under " + strings.TrimSuffix(prefix, ".")
	}
	tenant, topic, ok = strings.Cut(rest, ".")
	if !ValidTenant(tenant) {
		return "", "", "tenant name must be 1 to 64 of A-Z a-z 0-9 _ -"
	}
	if !ok {
		return tenant, "", "subject has no topic: publish to " + prefix + tenant + ".<topic>"
	}
	if !plainText(topic) {
		return tenant, "", "topic must be valid UTF-8 without NUL"
	}
	if !literal(topic) {
		return tenant, "", "topic has an empty or a wildcard token"
	}
	return tenant, topic, ""
}

// literal reports whether every token of s is non-empty and none is a wildcard.
func literal(s string) bool {
	for {
		token, rest, more := strings.Cut(s, ".")
		if token == "" || token == "*" || token == ">" {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
}

// plainText reports whether s is valid UTF-8 without NUL.
func plainText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// under reports whether subject is space itself or lies below it; space has no
// dot at its end.
func under(subject, space string) bool {
	return strings.HasPrefix(subject, space) && (len(subject) == len(space) || subject[len(space)] == '.')
}
