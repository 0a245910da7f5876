package producers

import (
	"errors"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The NAK's err_code and its reason, as contract and README list them.
var reasons = map[jetstream.ErrorCode]string{
	60429: "rate_limited", 60430: "tenant_backlog", 60503: "backlog", 60408: "deadline",
	60504: "draining", 60505: "overloaded", 60400: "invalid", 60403: "forbidden", 60413: "too_large",
	10077: "broker_full",
}

var hint = regexp.MustCompile(`retry_after_ms=(\d+)`)

// Answer reads the error of an ordinary JetStream publish: the reason of the NAK,
// empty if there was no answer, and the time after which a retry passes, negative
// if the NAK gives none.
func Answer(err error) (reason string, wait time.Duration) {
	e, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return "", -1
	}
	reason, ok = reasons[e.ErrorCode]
	if !ok {
		reason = "code_" + strconv.Itoa(int(e.ErrorCode))
	}
	if m := hint.FindStringSubmatch(e.Description); m != nil {
		ms, err := strconv.ParseInt(m[1], 10, 63)
		if err == nil {
			return reason, time.Duration(ms) * time.Millisecond
		}
	}
	return reason, -1
}
