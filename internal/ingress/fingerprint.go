package ingress

import (
	"crypto/sha256"
	"encoding/hex"
)

// Fingerprint stands for an API key wherever one is shown or counted: "ak-" and
// the first 16 hex digits of its SHA-256.
func Fingerprint(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "ak-" + hex.EncodeToString(sum[:8])
}
