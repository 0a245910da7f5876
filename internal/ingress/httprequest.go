package ingress

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// messagesPath begins the path of a message: /v1/messages/{tenant}/{topic}.
const messagesPath = "/v1/messages/"

const (
	// firstRead bounds the memory a body gets before any of it is there.
	firstRead = 64 << 10
	// freeRead is a body's for the asking; what is longer shares bodyBytes with all
	// others that are being read or wait for their answer. Connections cost a client
	// nothing, so that without a bound some thousand long bodies that never end would
	// take the process's memory.
	freeRead  = firstRead / 16
	bodyBytes = 2 * queueBytes
)

// request is one on its way to a message.
type request struct {
	*http.Request
	tenant string   // once its name was found valid
	id     Identity // as far as it was found true
	read   bool     // the body was read
	held   int64    // of bodyBytes
}

// unread reports whether so much of the body may be left that it is cheaper to close
// the connection; and waiting for a slow client to send what nobody wants would delay
// the answer.
func (q *request) unread() bool {
	return !q.read && (q.ContentLength < 0 || q.ContentLength > firstRead)
}

// admissible makes a message of a request, or says why it is none. A status other
// than 0 takes the place of the reason's.
func (h *HTTP) admissible(q *request) (m *nats.Msg, refused *Refusal, status int) {
	path, ok := strings.CutPrefix(q.URL.Path, messagesPath)
	if !ok || path == "" {
		return nil, invalid("there is nothing here: messages go to POST %s<tenant>/<topic>", messagesPath), http.StatusNotFound
	}
	if q.Method != http.MethodPost {
		return nil, invalid("method %s is not allowed: messages are sent with POST", clip(q.Method)), http.StatusMethodNotAllowed
	}
	tenant, topic, refused := splitPath(path, q.URL)
	if refused != nil {
		return nil, refused, 0
	}
	key, refused := apiKey(q.Header)
	if refused != nil {
		return nil, refused, 0
	}
	if keys := h.door.door.keys; keys != nil {
		verdict := keyUnknown
		if key != "" {
			verdict = keys.check(key, tenant)
		}
		switch verdict {
		case keyUnknown:
			return nil, &Refusal{Reason: Forbidden, Text: "no valid API key; send it as Authorization: Bearer <key> or as X-Api-Key", Wait: NoRetry}, http.StatusUnauthorized
		case keyOfAnother:
			return nil, wrongKey(), 0
		}
	}
	q.tenant = tenant
	q.id.Tenant, q.id.Service = tenant, service(topic)
	if key != "" {
		q.id.APIKey = Fingerprint(key)
	}
	header, refused := messageHeader(q.Header)
	if refused != nil {
		return nil, refused, 0
	}
	if user := header[userHeader]; len(user) == 1 && len(user[0]) <= maxUser {
		q.id.User = strings.TrimSpace(user[0])
	}
	if h.door.draining.Load() {
		return nil, draining(), 0
	}
	limit := h.door.door.maxPayload
	if q.ContentLength > int64(limit) {
		return nil, tooLarge(int(q.ContentLength), limit), 0
	}
	body, err := q.body(limit, h.hold)
	switch {
	case errors.Is(err, errNoRoom):
		return nil, &Refusal{Reason: Overloaded, Text: "too many long bodies are being read", Wait: overloadWait}, 0
	case errors.Is(err, errBodyTooLarge):
		return nil, &Refusal{Reason: TooLarge, Text: "the payload is longer than the limit of headers and payload together", Wait: NoRetry}, 0
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, invalid("the body did not arrive in time"), http.StatusRequestTimeout
	case err != nil:
		return nil, invalid("the body could not be read to its end"), 0
	}
	return &nats.Msg{Subject: h.door.door.prefix + tenant + "." + topic, Header: header, Data: body}, nil, 0
}

// splitPath takes tenant and topic out of a path; slashes become the dots of a
// subject.
func splitPath(path string, u *url.URL) (tenant, topic string, refused *Refusal) {
	tenant, topic, _ = strings.Cut(path, "/")
	if !ValidTenant(tenant) {
		return "", "", invalid("tenant name must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	if strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return "", "", invalid("the path has an encoded slash")
	}
	if topic == "" {
		return "", "", invalid("the path has no topic: messages go to %s%s/<topic>", messagesPath, tenant)
	}
	if len(topic) > MaxSubject {
		return "", "", invalid("subject is longer than %d bytes", MaxSubject)
	}
	begins := true
	for i := range len(topic) {
		slash := topic[i] == '/'
		if slash && (begins || i == len(topic)-1) || !slash && !nameByte(topic[i]) {
			return "", "", invalid("each part of the topic must be one or more of A-Z a-z 0-9 _ -")
		}
		begins = slash
	}
	return tenant, strings.ReplaceAll(topic, "/", "."), nil
}

// apiKey is the key a request carries, in whichever header; empty without one.
func apiKey(h http.Header) (string, *Refusal) {
	key := ""
	for _, name := range []string{"Authorization", "X-Api-Key", apiKeyHeader} {
		values := h[name]
		if len(values) == 0 {
			continue
		}
		v := strings.TrimSpace(values[0])
		if name == "Authorization" {
			scheme, token, _ := strings.Cut(v, " ")
			if !strings.EqualFold(scheme, "Bearer") {
				continue // somebody else's affair
			}
			v = strings.TrimSpace(token)
		}
		if len(values) > 1 || key != "" && v != "" && v != key {
			return "", invalid("there is more than one API key")
		}
		if v != "" {
			key = v
		}
	}
	return key, nil
}

// messageHeader makes the message's headers of a request's: what says what the body
// is, the trace, the id, and flowgate's own. The rest concerns the request alone. nil
// without any.
func messageHeader(from http.Header) (nats.Header, *Refusal) {
	var to nats.Header
	set := func(name string, values []string) {
		if to == nil {
			to = make(nats.Header, 4)
		}
		to[name] = values
	}
	for name, values := range from {
		switch {
		case name == "Content-Type", name == "Content-Encoding":
			set(name, values)
		case name == "Traceparent":
			set("traceparent", values) // as the broker's own tracing looks for it
		case name == "Tracestate":
			set("tracestate", values)
		case name == "Idempotency-Key":
			if len(values) > 1 {
				return nil, invalid("header Idempotency-Key is there %d times", len(values))
			}
			id, ok := idempotencyKey(values[0])
			if !ok {
				return nil, invalid("header Idempotency-Key is not a string in quotes, nor a word without them")
			}
			set(msgIDHeader, []string{id})
		case strings.HasPrefix(name, "Flowgate-") && name != apiKeyHeader:
			set(name, values)
		case strings.HasPrefix(name, "Nats-"):
			return nil, invalid("header %s is not allowed over HTTP; a message id is sent as Idempotency-Key", clip(name))
		}
	}
	return to, nil
}

// idempotencyKey takes the quotes off a structured field's string (RFC 9651, 3.3.3),
// as the IETF's draft has the header; most clients send the bare key, which is taken
// as it stands.
func idempotencyKey(v string) (string, bool) {
	v = strings.Trim(v, " \t")
	if !strings.HasPrefix(v, `"`) {
		return v, true
	}
	out := make([]byte, 0, len(v))
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"':
			return string(out), i == len(v)-1
		case c == '\\':
			if i++; i == len(v) || v[i] != '"' && v[i] != '\\' {
				return "", false
			}
			out = append(out, v[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			out = append(out, c)
		}
	}
	return "", false
}

var (
	errBodyTooLarge = errors.New("ingress: the body is over the limit")
	errNoRoom       = errors.New("ingress: no room for the body")
)

// hold takes memory for a body; false if there is none.
func (h *HTTP) hold(q *request, n int) bool {
	if h.bodies.Add(int64(n)) > bodyBytes {
		h.bodies.Add(-int64(n))
		return false
	}
	q.held += int64(n)
	return true
}

// body reads the body, but not more than limit and one byte. Its memory grows with
// what has arrived, and hold is asked for it.
func (q *request) body(limit int, hold func(*request, int) bool) ([]byte, error) {
	if q.ContentLength == 0 {
		q.read = true
		return nil, nil
	}
	size := freeRead
	if q.ContentLength > 0 {
		size = int(min(q.ContentLength, firstRead))
	}
	if size > freeRead && !hold(q, size) {
		return nil, errNoRoom
	}
	b := make([]byte, 0, size)
	for {
		n, err := q.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return nil, errBodyTooLarge
		case err == io.EOF, err == nil && int64(len(b)) == q.ContentLength:
			q.read = true
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			more := min(len(b), limit+1-len(b))
			if !hold(q, more) {
				return nil, errNoRoom
			}
			b = slices.Grow(b, more)
		}
	}
}
