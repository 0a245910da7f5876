package consumers

import (
	"net/http"
	"strings"
	"time"
)

// maxIdempotencyKey is what receivers take, ours among them, in bytes.
const maxIdempotencyKey = 255

// visible is a value that must arrive unchanged: visible ASCII as it is, all else and
// % itself percent-encoded, since HTTP's receivers disagree on other bytes and trim
// spaces.
func visible(s string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
	for i := range len(s) {
		if plain(s[i]) {
			continue
		}
		const digits = "0123456789ABCDEF"
		b := make([]byte, 0, len(s)+8)
		for _, c := range []byte(s) {
			if plain(c) {
				b = append(b, c)
			} else {
				b = append(b, '%', digits[c>>4], digits[c&15])
			}
		}
		return string(b)
	}
	return s
}

// withheld reports whether a producer's header is not sent on over HTTP. These would
// speak to the connection, to proxies or to the receiver in the gateway's name
// instead of belonging to the message. A receiver believes many of them just because
// of the address that they come from.
func withheld(plain string) bool {
	switch plain {
	case
		// The connection's and the framing's (RFC 9110 7.6.1, RFC 9112 6); Proxy becomes
		// the variable HTTP_PROXY where CGI is.
		"alt-used", "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "max-forwards", "proxy", "te", "trailer", "transfer-encoding", "upgrade",
		// Who asks, from where, for whom, on whose word, and when.
		"authorization", "client-cert", "client-cert-chain", "client-ip", "cookie", "date", "forwarded", "forwarded-for", "from", "origin", "referer", "remote-addr", "user-agent", "via",
		"do-connecting-ip", "fastly-client-ip", "fly-client-ip", "true-client-ip",
		"x-client-cert", "x-client-ip", "x-cluster-client-ip", "x-forwarded", "x-real-ip", "x-user-ip",
		// What would make it another request, or one to another place.
		"if", "range", "x-host", "x-http-method", "x-http-method-override", "x-method-override",
		// The gateway says it itself.
		"idempotency-key", "x-idempotency-key":
		return true
	}
	for _, family := range []string{
		// The broker's, and the signatures of this scheme in both of its spellings.
		"nats-", "svix-", "webhook-",
		// Conditions, browsers' words, and what only proxies say.
		"accept-", "access-control-", "if-", "proxy-", "sec-",
		"x-forwarded-", "x-original-", "x-rewrite-", "x-proxyuser-",
		// What proxies and clouds in front of a receiver say of a client whom they know.
		"cf-", "remote-", "ssl-client-", "x-amzn-oidc-", "x-appengine-", "x-arr-", "x-auth-request-", "x-azure-", "x-envoy-", "x-goog-authenticated-", "x-goog-iap-",
		"x-ms-client-", "x-remote-", "x-ssl-client-",
	} {
		if strings.HasPrefix(plain, family) {
			return true
		}
	}
	return isOwn(plain)
}

// requestHeader is the header of a delivery's POST. Of the producer's it has what
// HTTP can carry and withheld lets through.
func (w *Webhook) requestHeader(d Delivery, now time.Time) http.Header {
	h := make(http.Header, len(d.Headers)+12)
	for name, values := range d.Headers {
		if !token(name) || withheld(plainName(name)) {
			continue
		}
		for _, v := range values {
			if !fieldValue(v) {
				w.unsayable.Do(func() {
					about(w.log, d).Warn("a header has a control character, which HTTP cannot carry: delivered without it", "header", name, "id", d.ID, "seq", d.Seq)
				})
				continue
			}
			h.Add(name, v)
		}
	}
	for _, own := range ownHeaders(d) {
		h.Set(own[0], visible(own[1]))
	}
	h.Set("User-Agent", w.agent)
	if w.authorization != "" {
		h.Set("Authorization", w.authorization)
	}
	id := visible(d.ID)
	if len(id) <= maxIdempotencyKey {
		// In its usual spelling net/http takes it as leave to send the request again by
		// itself when a connection breaks: a delivery that nobody metered.
		h["idempotency-key"] = []string{id}
	}
	if signature := w.signer.sign(webhookID(id), now, d.Payload); signature != "" {
		h.Set("Webhook-Id", webhookID(id))
		h.Set("Webhook-Timestamp", unixSeconds(now))
		h.Set("Webhook-Signature", signature)
	}
	return h
}

// token reports whether a name may be a field's (RFC 9110 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// fieldValue reports whether HTTP can carry a value: no control characters but tab
// (RFC 9110 5.5).
func fieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
