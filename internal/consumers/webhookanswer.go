package consumers

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds on an answer: only its status and Retry-After matter.
const (
	answerHeader = 64 << 10 // bytes
	// answerBody is how much of a body is read, in bytes, and answerTime how long it
	// is waited for, so that the connection can be used again.
	answerBody = 64 << 10
	answerTime = time.Second
	// answerShown is how much of it an error shows, in bytes.
	answerShown = 200
	// maxPause is the longest pause that a destination may ask for.
	maxPause = time.Hour
)

// statusVerdict is what an HTTP status of 300 and more says, over NATS too.
func statusVerdict(status int, wait time.Duration, err error) error {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return Overloaded(wait, err)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		// Both say that the same request may be sent again (RFC 9110 15.5.9, RFC 8470
		// 5.2), and that the message is not what was wrong.
		return RetryAfter(wait, err)
	case status >= 400 && status < 500:
		return Permanent(err)
	case status >= 500 && status < 600:
		return RetryAfter(wait, err)
	}
	// A redirect, or no status there is: the URL is wrong, and no message.
	return Overloaded(wait, err)
}

// answer reads an answer's body, up to its bounds, and judges it. It calls stop if the
// body is too slow.
func (w *Webhook) answer(res *http.Response, stop func()) error {
	defer func() { _ = res.Body.Close() }()
	slow := time.AfterFunc(answerTime, stop)
	defer slow.Stop()
	head, n := make([]byte, 2*answerShown), 0
	if res.StatusCode != http.StatusSwitchingProtocols { // that has no body, but a connection
		n, _ = io.ReadFull(res.Body, head) // what a body breaks off with is no news
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, answerBody))
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("http: the answer is %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		err = fmt.Errorf("%w, a redirect%s, which is not followed: correct FLOWGATE_CONSUMER_URL", err, hostOf(res))
	} else if text := excerpt(w.hide.Replace(string(head[:n]))); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return statusVerdict(res.StatusCode, retryAfter(res.Header, time.Now()), err)
}

// hostOf is where a redirect leads; its path may be a secret.
func hostOf(res *http.Response) string {
	u, err := url.Parse(res.Header.Get("Location"))
	if err != nil || u.Host == "" {
		return ""
	}
	return " to " + excerpt(u.Host)
}

// excerpt is the beginning of a text from outside, on one line.
func excerpt(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if len(s) > answerShown {
		s = strings.ToValidUTF8(s[:answerShown], "") + "…"
	}
	return s
}

// retryAfter reads Retry-After (RFC 9110 10.2.3): seconds, or a date, which is
// compared with the answer's own Date, since clocks differ. 0: there is none, or
// nothing that is understood; an hour at most.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if digits(value) {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return maxPause // more than fits
		}
		return min(time.Duration(seconds)*time.Second, maxPause)
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(until.Sub(now), 0), maxPause)
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}
