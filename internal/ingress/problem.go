package ingress

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// title is the reason in words; RFC 9457 wants the same for every occurrence.
func (r Reason) title() string {
	switch r {
	case RateLimited:
		return "A limit is exhausted"
	case TenantBacklogged:
		return "The tenant has too many messages in the backlog"
	case Backlogged:
		return "The backlog is full"
	case PastDue:
		return "The deadline would be missed"
	case Draining:
		return "This gateway is shutting down"
	case Overloaded:
		return "The gateway cannot keep up"
	case Forbidden:
		return "Not allowed"
	case TooLarge:
		return "The message is too large"
	}
	return "The message is not well formed"
}

// problemType begins the types of our problems, which end in the reason.
const problemType = "urn:flowgate:problem:"

// problem is a refusal as RFC 9457 has it, with the NAK's fields beside it. A status
// other than 0 takes the place of the reason's: then the problem is HTTP's own.
func (r *Refusal) problem(status int) (int, []byte) {
	code, errCode := r.Reason.code()
	kind, title := problemType+string(r.Reason), r.Reason.title()
	if status == 0 {
		status = code
	} else {
		kind, title = "about:blank", http.StatusText(status)
	}
	b := make([]byte, 0, 384)
	b = append(b, `{"type":`...)
	b = appendJSONString(b, kind)
	b = append(b, `,"title":`...)
	b = appendJSONString(b, title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	b = appendJSONString(b, r.Text)
	b = append(b, `,"reason":`...)
	b = appendJSONString(b, string(r.Reason))
	b = append(b, `,"err_code":`...)
	b = strconv.AppendInt(b, int64(errCode), 10)
	return status, append(r.appendLimit(b), '}', '\n')
}

// brokerProblem is what the broker itself answered instead of an acknowledgement;
// false if ack is one.
func brokerProblem(ack []byte) (status int, body []byte, ok bool) {
	var answer struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(ack, &answer); err != nil || answer.Error == nil {
		return 0, nil, false
	}
	status = answer.Error.Code
	if status < 400 || status > 599 {
		status = http.StatusServiceUnavailable
	}
	b := append([]byte(nil), `{"type":"`+problemType+`broker","title":"The broker refused the message","status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	b = appendJSONString(b, answer.Error.Description)
	b = append(b, `,"err_code":`...)
	b = strconv.AppendInt(b, int64(answer.Error.ErrCode), 10)
	return status, append(b, '}', '\n'), true
}
