package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"
)

// Identity is who a message counts for, by scope. An empty field means that the
// message has no key in that scope.
type Identity struct {
	Tenant string
	// Service is the topic's first token.
	Service string
	// User is the header Flowgate-User.
	User string
	// IP is the producer's address: the HTTP connection's, the one a trusted proxy
	// names, or the one the broker tells of another account's import.
	IP string
	// APIKey is the fingerprint of the key, never the key.
	APIKey string
}

// maxUser bounds Flowgate-User in bytes.
const maxUser = 255

// Fingerprint is what stands for an API key wherever it is shown or counted: it
// tells keys apart and does not give them away.
func Fingerprint(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "ak-" + hex.EncodeToString(sum[:8])
}

// service is the first token of a topic.
func service(topic string) string {
	first, _, _ := strings.Cut(topic, ".")
	return first
}

// importedFrom is the address in the broker's own word on an import's requester;
// empty if the exporting account is not told.
func importedFrom(requestInfo string) string {
	var info struct {
		Host string `json:"host"`
	}
	if json.Unmarshal([]byte(requestInfo), &info) != nil {
		return ""
	}
	addr, err := netip.ParseAddr(info.Host)
	if err != nil {
		return ""
	}
	return plainAddr(addr).String()
}

// plainAddr writes an address one way only: IPv4 in IPv6 as IPv4, without a zone.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
