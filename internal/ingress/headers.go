package ingress

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// The headers that mean something at the door.
const (
	msgIDHeader    = "Nats-Msg-Id"
	expectedStream = "Nats-Expected-Stream"
	requestInfo    = "Nats-Request-Info"
	// importReply begins the reply subjects of another account's imports. A client
	// can publish to one but never with one.
	importReply = "_R_."
	// statusHeader with an empty body is how the broker speaks to consumers.
	statusHeader = "Status"

	apiKeyHeader   = "Flowgate-Api-Key"
	userHeader     = "Flowgate-User"
	deadlineHeader = "Flowgate-Deadline"
	costHeader     = "Flowgate-Cost"

	maxCost = 1_000_000
)

// wishes are what a message's headers ask of the gateway, and whom they name.
type wishes struct {
	cost     int64
	id       string // the message id, made its tenant's own
	deadline time.Time
	// apiKey is the key itself; it goes no further than the door.
	user, apiKey, ip string
	size             int // of the headers as they are stored
}

// readHeaders vets h and rewrites it in place into what is stored: the id made
// the tenant's own, the deadline absolute, the API key gone. h belongs to the
// message just received.
//
// Of the Nats-* family only two names may come in. Any other, known to this
// server or to a later one, would drive the stream with the gateway's rights.
func readHeaders(h nats.Header, tenant, reply string, now time.Time) (wishes, *Refusal) {
	w := wishes{cost: 1}
	size := len("NATS/1.0\r\n\r\n") + len(tenant) + 1
	for key, values := range h {
		if !headerName(key) {
			return w, invalid("header name %q has a byte that no header name may have", clip(key))
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return w, invalid("header %s has a line break or NUL in its value", clip(key))
			}
			size += len(key) + len(v) + 4
		}
		if strings.EqualFold(key, apiKeyHeader) {
			delete(h, key) // however it is spelt, no key is stored
			if len(values) > 1 || w.apiKey != "" {
				return w, invalid("header %s is there more than once", apiKeyHeader)
			}
			w.apiKey = strings.TrimSpace(strings.Join(values, ""))
			continue
		}
		if len(key) < 5 || !strings.EqualFold(key[:5], "nats-") {
			continue
		}
		switch key {
		case msgIDHeader, expectedStream:
		case requestInfo:
			// The server writes this one at another account's import, and such
			// a message has a reply subject that a client cannot make.
			if !strings.HasPrefix(reply, importReply) {
				return w, invalid("header %s may only be set by the broker", requestInfo)
			}
			delete(h, key)
			if len(values) > 1 {
				return w, invalid("header %s is there %d times", requestInfo, len(values))
			}
			w.ip = importedFrom(strings.Join(values, ""))
		default:
			return w, invalid("header %s is not allowed: of the Nats-* headers only %s and %s are", clip(key), msgIDHeader, expectedStream)
		}
	}
	if r := ownID(h, tenant); r != nil {
		return w, r
	}
	if v := h[msgIDHeader]; len(v) > 0 {
		w.id = v[0]
	}
	if v, ok, r := single(h, userHeader); r != nil {
		return w, r
	} else if ok {
		if len(v) > maxUser || !plainText(v) {
			return w, invalid("header %s must be at most %d bytes of valid UTF-8 without NUL", userHeader, maxUser)
		}
		w.user = v
	}
	if v, ok, r := single(h, costHeader); r != nil {
		return w, r
	} else if ok {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil || n < 1 || n > maxCost || v[0] == '+' {
			return w, invalid("header %s is %q; it must be a whole number from 1 to %d", costHeader, clip(v), maxCost)
		}
		w.cost = int64(n)
	}
	if v, ok, r := single(h, deadlineHeader); r != nil {
		return w, r
	} else if ok {
		at, stored, r := parseDeadline(v, now)
		if r != nil {
			return w, r
		}
		w.deadline = at
		h[deadlineHeader] = []string{stored}
		size += len(stored) - len(v)
	}
	if size > maxHeader {
		return w, &Refusal{Reason: TooLarge, Text: "headers are larger than 65535 bytes", Wait: NoRetry}
	}
	w.size = size
	return w, nil
}

// ownID makes the message id its tenant's own, so that two tenants may use the
// same one.
func ownID(h nats.Header, tenant string) *Refusal {
	id, ok, r := single(h, msgIDHeader)
	switch {
	case r != nil:
		return r
	case !ok:
		return nil
	case id == "":
		delete(h, msgIDHeader)
		return nil
	case len(id) > MaxMsgID:
		return invalid("message id is longer than %d bytes", MaxMsgID)
	case !plainText(id):
		return invalid("message id must be valid UTF-8 without NUL")
	}
	h[msgIDHeader] = []string{tenant + "/" + id}
	return nil
}

// single gives the value of a header that may be there once.
func single(h nats.Header, key string) (string, bool, *Refusal) {
	values := h[key]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return strings.TrimSpace(values[0]), true, nil
	}
	return "", false, invalid("header %s is there %d times", key, len(values))
}

// parseDeadline reads RFC 3339, which is stored as it came, or a duration from
// now, which is stored as the instant that it means.
func parseDeadline(v string, now time.Time) (at time.Time, stored string, r *Refusal) {
	if at, err := time.Parse(time.RFC3339, v); err == nil {
		return at, v, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return time.Time{}, "", invalid("header %s is %q; it must be a time as in RFC 3339 or a duration like 30s", deadlineHeader, clip(v))
	}
	at = now.Add(d)
	return at, at.UTC().Format(time.RFC3339Nano), nil
}

// headerName reports whether s can be a header's name: one with another byte in it
// the client library would not send on.
func headerName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte(notInNames, s[i]) >= 0 {
			return false
		}
	}
	return s != ""
}

const notInNames = "\"()/,:;<=>?@[\\]{}"

// clip keeps what a producer sent from filling a NAK or a log line.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
