package ingress

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Reason names why a message was refused; it is the NAK's "reason" and a label.
type Reason string

// The reasons a producer can see.
const (
	RateLimited      Reason = "rate_limited"
	TenantBacklogged Reason = "tenant_backlog"
	Backlogged       Reason = "backlog"
	PastDue          Reason = "deadline"
	Draining         Reason = "draining"
	Overloaded       Reason = "overloaded"
	Invalid          Reason = "invalid"
	Forbidden        Reason = "forbidden"
	TooLarge         Reason = "too_large"
)

// code and errCode are the two numbers of a NAK. errCode stays below 65536:
// the Go client loses the whole error otherwise.
func (r Reason) code() (code, errCode int) {
	switch r {
	case RateLimited:
		return 429, 60429
	case TenantBacklogged:
		return 429, 60430
	case Backlogged:
		return 503, 60503
	case PastDue:
		return 503, 60408
	case Draining:
		return 503, 60504
	case Overloaded:
		return 503, 60505
	case Forbidden:
		return 403, 60403
	case TooLarge:
		return 413, 60413
	}
	return 400, 60400
}

// NoRetry is the Wait of a refusal that waiting cannot turn.
const NoRetry time.Duration = -1

// Refusal is a decision against a message.
type Refusal struct {
	Reason Reason
	// Text says in a few words what was wrong; without the hint.
	Text string
	// Wait is the time after which a retry passes; NoRetry if none will.
	Wait time.Duration
	// Scope, Key and Limit say which limit refused; empty for other reasons.
	Scope, Key, Limit string
}

// passing reports whether the same message passes later, for all that is known.
func (r *Refusal) passing() bool {
	return r != nil && r.Wait > 0 && (r.Reason == RateLimited || r.Reason == Backlogged || r.Reason == TenantBacklogged)
}

// wait is 0 if r is nil.
func (r *Refusal) wait() time.Duration {
	if r == nil {
		return 0
	}
	return r.Wait
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Text }

// waitMillis rounds up: a hint cut short would have the obedient refused again.
func (r *Refusal) waitMillis() int64 {
	if r.Wait > math.MaxInt64-time.Millisecond {
		return int64(r.Wait / time.Millisecond)
	}
	return int64((r.Wait + time.Millisecond - 1) / time.Millisecond)
}

// appendBody adds the JSON that JetStream clients turn into an API error. The error
// object holds exactly three fields: the Python client breaks on a fourth. The
// hint stands in the description too, since clients never show headers.
func (r *Refusal) appendBody(b []byte, stream string) []byte {
	code, errCode := r.Reason.code()
	b = append(b, `{"type":"io.flowgate.v1.nak","error":{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"err_code":`...)
	b = strconv.AppendInt(b, int64(errCode), 10)
	b = append(b, `,"description":`...)
	b = appendJSONString(b, r.Text)
	if r.Wait >= 0 {
		b = append(b[:len(b)-1], "; retry_after_ms="...) // within the quotes
		b = append(strconv.AppendInt(b, r.waitMillis(), 10), '"')
	}
	b = append(b, `},"stream":`...)
	b = appendJSONString(b, stream)
	b = append(b, `,"seq":0,"reason":`...)
	b = appendJSONString(b, string(r.Reason))
	return append(r.appendLimit(b), '}')
}

// appendLimit adds the fields that say which limit refused, and the hint.
func (r *Refusal) appendLimit(b []byte) []byte {
	if r.Scope != "" {
		b = append(b, `,"scope":`...)
		b = appendJSONString(b, r.Scope)
		if r.Key != "" {
			b = append(b, `,"key":`...)
			b = appendJSONString(b, r.Key)
		}
		b = append(b, `,"limit":`...)
		b = appendJSONString(b, r.Limit)
	}
	if r.Wait >= 0 {
		b = append(b, `,"retry_after_ms":`...)
		b = strconv.AppendInt(b, r.waitMillis(), 10)
	}
	return b
}

// nakMessage makes NAKs, one after the other in the same room: a flood that is refused
// would keep the garbage collector busy otherwise, to the delay of who is admitted.
type nakMessage struct {
	msg    nats.Msg
	values [4][1]string // of the headers
}

// of is r as it goes to a producer's reply subject; it is valid until the next one.
func (m *nakMessage) of(r *Refusal, reply, stream string) *nats.Msg {
	if m.msg.Header == nil {
		m.msg.Header = nats.Header{}
	}
	clear(m.msg.Header)
	n := 0
	r.head(func(name, value string) {
		m.values[n][0] = value
		m.msg.Header[name] = m.values[n][:]
		n++
	})
	m.msg.Subject, m.msg.Data = reply, r.appendBody(m.msg.Data[:0], stream)
	return &m.msg
}

// head tells the headers of a refusal, which are the same over NATS and HTTP: four at
// most, in their canonical form.
func (r *Refusal) head(set func(name, value string)) {
	set("Flowgate-Reason", string(r.Reason))
	if r.Scope != "" {
		set("Flowgate-Scope", r.Scope)
	}
	if r.Wait >= 0 {
		ms := r.waitMillis()
		set("Flowgate-Retry-After-Ms", strconv.FormatInt(ms, 10))
		set("Retry-After", strconv.FormatInt(max(1, ms/1000+min(1, ms%1000)), 10))
	}
}

// appendJSONString quotes s for JSON. Names and rules are ASCII already; what
// is not is written as an escape, and bytes that are no UTF-8 as U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	if plainJSON(s) {
		return append(append(b, s...), '"')
	}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < 0x20 || c == 0x7f:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, string(c)...)
		}
	}
	return append(b, '"')
}

// plainJSON reports whether s stands in JSON as it is.
func plainJSON(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func invalid(format string, args ...any) *Refusal {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	return &Refusal{Reason: Invalid, Text: strings.ToValidUTF8(text, "\uFFFD"), Wait: NoRetry}
}
