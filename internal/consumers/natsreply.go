package consumers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// replyVerdict judges a reply. It is done unless the reply says that it is not: in
// the headers of a micro service's error, in a Status header, or as
// {"error":…}, the form of a stream's PubAck and of a flowgate's refusal. Codes are
// read as HTTP's.
func replyVerdict(subject string, m *nats.Msg) error {
	code, text, failed := headerError(m.Header)
	wait := retryAfter(http.Header(m.Header), time.Now())
	if !failed {
		var pause time.Duration
		code, text, pause, failed = bodyError(m.Data)
		wait = max(wait, pause)
	}
	if !failed {
		return nil
	}
	return statusVerdict(code, wait, fmt.Errorf("nats: the reply from %s is an error: %d %s", subject, code, excerpt(text)))
}

// headerError reads the headers of a service's error, or a status of 300 and more. A
// service's code that is none is 500: try again.
func headerError(h nats.Header) (code int, text string, failed bool) {
	text = h.Get(micro.ErrorHeader)
	if value := h.Get(micro.ErrorCodeHeader); value != "" || text != "" {
		return statusOf(value), text, true
	}
	if code, err := strconv.Atoi(h.Get("Status")); err == nil && code >= 300 && code < 600 {
		return code, h.Get("Description"), true
	}
	return 0, "", false
}

func statusOf(value string) int {
	if code, err := strconv.Atoi(value); err == nil && code >= 100 && code < 600 {
		return code
	}
	return http.StatusInternalServerError
}

func bodyError(data []byte) (code int, text string, wait time.Duration, failed bool) {
	if data = bytes.TrimLeft(data, " \t\r\n"); len(data) == 0 || data[0] != '{' {
		return 0, "", 0, false
	}
	var body struct {
		Error        json.RawMessage `json:"error"`
		RetryAfterMS float64         `json:"retry_after_ms"`
	}
	if json.Unmarshal(data, &body) != nil {
		return 0, "", 0, false
	}
	switch string(body.Error) {
	case "", "null", "false", `""`:
		return 0, "", 0, false
	}
	var e struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	}
	code, text = http.StatusInternalServerError, string(body.Error)
	if json.Unmarshal(body.Error, &e) == nil && e.Code != 0 {
		code, text = statusOf(strconv.Itoa(e.Code)), fmt.Sprintf("(%d) %s", e.ErrCode, e.Description)
	}
	ms := min(max(body.RetryAfterMS, 0), float64(maxPause.Milliseconds()))
	return code, text, time.Duration(ms * float64(time.Millisecond)), true
}
