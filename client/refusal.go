package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Reason is why a message was refused. Reasons are errors, so that
//
//	errors.Is(err, client.ErrBacklog)
//
// asks for one.
type Reason string

// The reasons. A gateway may know more of them than this package does.
const (
	// ErrRateLimited: a limit is exhausted; Scope, Key and Limit say which.
	ErrRateLimited Reason = "rate_limited"
	// ErrTenantBacklog: the tenant holds as much of the backlog as one may.
	ErrTenantBacklog Reason = "tenant_backlog"
	// ErrBacklog: the backlog is full.
	ErrBacklog Reason = "backlog"
	// ErrDeadline: it would wait in the backlog past its Flowgate-Deadline.
	ErrDeadline Reason = "deadline"
	// ErrDraining: the gateway is shutting down.
	ErrDraining Reason = "draining"
	// ErrOverloaded: the gateway cannot keep up, or the broker did not confirm; the
	// message may be stored after all.
	ErrOverloaded Reason = "overloaded"
	// ErrInvalid: the subject, the tenant's name or a header is wrong.
	ErrInvalid Reason = "invalid"
	// ErrForbidden: the tenant is not allowed, or the API key is not its own.
	ErrForbidden Reason = "forbidden"
	// ErrTooLarge: headers and payload are over the gateway's limit.
	ErrTooLarge Reason = "too_large"
	// ErrBroker: the broker itself refused, with an error code of its own.
	ErrBroker Reason = "broker"
)

func (r Reason) Error() string { return "flowgate: " + string(r) }

// NoRetry is the RetryAfter of a refusal that came without a hint.
const NoRetry time.Duration = -1

// Refused is a message's refusal, as the gateway worded it.
type Refused struct {
	Reason Reason
	// Scope, Key and Limit say which limit refused; empty for other reasons.
	Scope, Key, Limit string
	// RetryAfter is the hint: a try after that time passes, as a rule. NoRetry: there was none.
	RetryAfter time.Duration
	// Code is that of HTTP, and ErrCode the gateway's or the broker's number.
	Code        int
	ErrCode     jetstream.ErrorCode
	Description string
}

func (r *Refused) Error() string { return fmt.Sprintf("flowgate: %s: %s", r.Reason, r.Description) }

// Is reports whether target is the reason.
func (r *Refused) Is(target error) bool { return target == error(r.Reason) }

// Unwrap gives the error that jetstream would have returned for the same answer.
func (r *Refused) Unwrap() error {
	return &jetstream.APIError{Code: r.Code, ErrorCode: r.ErrCode, Description: r.Description}
}

// final reports whether another try is in vain.
func (r *Refused) final() bool {
	switch {
	case r.RetryAfter >= 0, r.Reason == ErrOverloaded:
		return false
	case r.Reason == ErrBroker:
		return r.Code < 500
	}
	return true
}

// errNoAnswer is what an answer is that says neither yes nor no.
var errNoAnswer = errors.New("flowgate: the answer is neither an acknowledgement nor a refusal; does anything else answer on the subject?")

// answer is the body of a PubAck or a NAK.
type answer struct {
	jetstream.PubAck
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     uint64 `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Reason       Reason `json:"reason"`
	Scope        string `json:"scope"`
	Key          string `json:"key"`
	Limit        string `json:"limit"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
}

// read turns the body of an answer into the acknowledgement or a *Refused.
func read(body []byte) (*jetstream.PubAck, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, errNoAnswer
	}
	if a.Error == nil {
		if a.Stream == "" {
			return nil, errNoAnswer
		}
		return &a.PubAck, nil
	}
	r := &Refused{
		Reason: a.Reason, Scope: a.Scope, Key: a.Key, Limit: a.Limit, RetryAfter: NoRetry,
		Code: a.Error.Code, ErrCode: jetstream.ErrorCode(min(a.Error.ErrCode, math.MaxUint16)), Description: a.Error.Description,
	}
	if r.Reason == "" {
		r.Reason = ErrBroker
	}
	if ms := a.RetryAfterMS; ms != nil && *ms >= 0 {
		r.RetryAfter = time.Duration(min(*ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	return nil, r
}
