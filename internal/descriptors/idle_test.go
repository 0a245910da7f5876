package descriptors

import (
	"bufio"
	"net"
	"net/http"
	"testing"
	"time"
)

// Connections that say nothing, and those whose request was answered, give way to who asks;
// those with a request under way do not.
func TestIdleConnectionsGiveWay(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Bound(inner, 3, Crowded)
	release := make(chan struct{})
	s := &http.Server{ConnState: l.Yield, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-release
		}
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	defer func() { close(release); _ = s.Close(); <-ended }()
	ask := func(path string) (net.Conn, *http.Response) {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if path == "" {
			return c, nil
		}
		if _, err := c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return c, r
	}
	// Who asks again is served: that a connection is idle is known a moment after its answer
	// is read.
	served := func(path, beside string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); ; {
			_, r := ask(path)
			if r.StatusCode == http.StatusOK {
				return
			}
			if r.StatusCode != http.StatusServiceUnavailable || time.Now().After(end) {
				t.Fatalf("%s beside %s: %s", path, beside, r.Status)
			}
		}
	}
	silent, _ := ask("")
	served("/hold", "a silent connection")
	for range 20 {
		served("/", "a silent connection, one that holds on and idle ones")
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection is still there")
	}
	for range 2 {
		served("/hold", "idle ones")
	}
	if _, r := ask("/"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("beside three that hold on: %s", r.Status)
	}
}
