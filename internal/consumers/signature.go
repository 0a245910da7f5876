package consumers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The form of a secret and of a signature: https://www.standardwebhooks.com, symmetric
// keys.
const (
	secretPrefix    = "whsec_"
	signatureScheme = "v1,"
	minSecret       = 24 // bytes
	maxSecret       = 64
)

// signer signs deliveries over HTTP, with each of its keys: while a secret is being
// replaced the receiver may have either.
type signer struct{ keys [][]byte }

// newSigner reads secrets separated by spaces; none make a signer that does not sign.
// Its errors never show them.
func newSigner(secrets string) (signer, error) {
	var s signer
	list := strings.Fields(secrets)
	for i, secret := range list {
		encoded, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
			return signer{}, fmt.Errorf("secret %d of %d is not %s and the base64 of %d to %d bytes; make one with: echo whsec_$(openssl rand -base64 32)",
				i+1, len(list), secretPrefix, minSecret, maxSecret)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

// sign is the value of webhook-signature for a message sent at now; empty without a
// secret. What is signed is "<id>.<unix seconds>.<payload>", and where it is to be
// parted is only certain if the id has no dot, so webhookID's has none.
func (s signer) sign(id string, now time.Time, payload []byte) string {
	var b strings.Builder
	for i, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + unixSeconds(now) + "."))
		mac.Write(payload)
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(signatureScheme)
		b.WriteString(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return b.String()
}

// webhookID is an id as webhook-id carries it: as visible makes it, and without dots.
func webhookID(visible string) string { return strings.ReplaceAll(visible, ".", "%2E") }

func unixSeconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
