package ingress

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// titles are the reasons in words; RFC 9457 wants the same for every occurrence.
var titles = map[Reason]string{
	RateLimited: "A limit is exhausted",
	Backlogged:  "The backlog is full",
	PastDue:     "The deadline would be missed",
	Draining:    "This gateway is shutting down",
	Overloaded:  "The gateway cannot keep up",
	Invalid:     "The message is not well formed",
	Forbidden:   "Not allowed",
	TooLarge:    "The message is too large",
}

// problemType begins the types of our problems, which end in the reason.
const problemType = "urn:flowgate:problem:"

// problem is a refusal as RFC 9457 has it, with the NAK's fields beside it. A status
// other than 0 takes the place of the reason's: then the problem is HTTP's own.
func (r *Refusal) problem(status int) (int, []byte) {
	code, errCode := r.Reason.code()
	kind, title := problemType+string(r.Reason), titles[r.Reason]
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
	return status, append(b, '}', '\n')
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
