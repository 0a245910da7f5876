package ingress

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// web is an HTTP front door beside the one over NATS, on a real listener and in real
// time: the fake clock does not know of sockets.
type web struct {
	*rig
	http   *HTTP
	cancel context.CancelFunc
	result chan error
}

func newWeb(t testing.TB, changes ...change) *web {
	t.Helper()
	w := &web{rig: newRig(t, changes...), result: make(chan error, 1)}
	w.cfg.HTTPListen = "127.0.0.1:0"
	var err error
	if w.http, err = NewHTTP(w.cfg, w.door); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.http.Close() })
	return w
}

// run starts both doors.
func (w *web) run() *web {
	w.t.Helper()
	w.rig.run()
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() { w.result <- w.http.Run(ctx) }()
	w.t.Cleanup(func() { _ = w.stop() })
	return w
}

// stop ends the HTTP door and gives what Run returned.
func (w *web) stop() error {
	w.cancel()
	err := <-w.result
	w.result <- err
	return err
}

// rest waits until the doors have done with all they took: a message is counted after
// it is answered.
func (w *web) rest() {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Second); !w.door.resting(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("the door does not come to rest")
		}
	}
}

// reply is what an HTTP client sees.
type reply struct {
	status int
	header http.Header
	body   string
	took   time.Duration
	// The fields of a problem, or of an acknowledgement.
	Type, Title, Detail, Reason, Scope, Key, Limit string
	Status                                         int
	ErrCode                                        int    `json:"err_code"`
	Wait                                           *int64 `json:"retry_after_ms"`
	Stream                                         string
	Seq                                            uint64
	Duplicate                                      bool
}

// post sends a message to /v1/messages/<to>; headers are name, value, name, value.
func (w *web) post(to, body string, headers ...string) reply {
	w.t.Helper()
	return w.do("POST", "/v1/messages/"+to, strings.NewReader(body), headers...)
}

func (w *web) do(method, path string, body io.Reader, headers ...string) reply {
	w.t.Helper()
	r, err := w.try(http.DefaultClient, method, "http://"+w.http.Addr()+path, body, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *web) try(c *http.Client, method, url string, body io.Reader, headers ...string) (r reply, err error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return r, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	start := time.Now()
	res, err := c.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return r, err
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &r); err != nil {
			w.t.Errorf("%s %s: %s: the body is no JSON: %q", method, url, res.Status, text)
		}
	}
	r.status, r.header, r.body, r.took = res.StatusCode, res.Header, string(text), time.Since(start)
	return r, nil
}
