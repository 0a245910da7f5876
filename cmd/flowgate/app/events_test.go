package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/history"
)

// event is one of a stream.
type event struct{ name, data string }

// readEvents reads a stream until it ends.
func readEvents(body io.Reader) <-chan event {
	events := make(chan event, 100)
	go func() {
		defer close(events)
		var e event
		for lines := bufio.NewScanner(body); lines.Scan(); {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				events <- e
				e = event{}
			}
		}
	}()
	return events
}

// overPipes serves an admin address on connections within the process, for bubbles.
type overPipes chan net.Conn

func (p overPipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p overPipes) Close() error   { return nil }
func (p overPipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// look opens the stream as a page does, by a server with the admin server's deadlines.
func (r *running) look(t *testing.T, header ...string) (<-chan event, int, func()) {
	t.Helper()
	here, there := net.Pipe()
	pipes := make(overPipes, 1)
	pipes <- there
	server := &http.Server{Handler: r.running().adminHandler(), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	go func() { _ = server.Serve(pipes) }()
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
	end := func() {
		cancel()
		transport.CloseIdleConnections()
		close(pipes) // Serve ends, for which Close waits
		_ = server.Close()
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gate/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	answer, err := transport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode == 200 && kind != "text/event-stream" {
		t.Errorf("content type %s", kind)
	}
	return readEvents(answer.Body), answer.StatusCode, end
}

// A viewer hears the status and the sample at once and each second, for as long as it
// stays; the server's own deadlines do not cut it off. At the gateway's end the stream
// ends.
func TestEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHAPER_RATE=1/h")
		_, js := r.client()
		r.admitted(js, "acme", 7)
		time.Sleep(2500 * time.Millisecond)
		events, code, end := r.look(t)
		defer end()
		if code != 200 {
			t.Fatal(code)
		}
		began := time.Now()
		seconds := 0
		for e := range events {
			switch e.name {
			case "status":
				var s Status
				if err := json.Unmarshal([]byte(e.data), &s); err != nil || s.Depth.Total != 7 || s.Name != "flowgate" {
					t.Fatalf("%s: %v", e.data, err)
				}
				if seconds == 0 && time.Since(began) > 10*time.Millisecond {
					t.Errorf("the first comes after %v", time.Since(began))
				}
			case "sample":
				var s history.Sample
				if err := json.Unmarshal([]byte(e.data), &s); err != nil || s.Depth != 7 {
					t.Fatalf("%s: %v", e.data, err)
				}
				if age := time.Now().UnixMilli() - s.At; age > 1000 {
					t.Errorf("a sample of %d ms ago", age)
				}
				seconds++
			default:
				t.Fatalf("%+v", e)
			}
			if seconds == 60 {
				break
			}
		}
		if took := time.Since(began); seconds != 60 || took < 58*time.Second || took > 60*time.Second {
			t.Fatalf("%d samples in %v", seconds, took)
		}
		go func() {
			for range events { // to its end
			}
		}()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Viewers are bounded, and a place is free again when one leaves. Nothing is encoded
// while nobody looks. Pages of other origins may not look.
func TestEventsAreBounded(t *testing.T) {
	e := newEvents(2)
	ask := func(ctx context.Context, header ...string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		q := httptest.NewRequest(http.MethodGet, "/api/v1/events", nil).WithContext(ctx)
		for i := 0; i+1 < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		e.serve(w, q, func() []byte { return []byte("event: status\ndata: {}\n\n") })
		return w
	}
	ctx, cancel := context.WithCancel(t.Context())
	var viewers sync.WaitGroup
	for range 2 {
		viewers.Go(func() { ask(ctx) })
	}
	looking := func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.viewers
	}
	for looking() < 2 {
		time.Sleep(time.Millisecond)
	}
	if w := ask(t.Context()); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !contains(w.Body.String(), "at most 2") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	cancel()
	viewers.Wait()
	e.publish(Status{}, history.Sample{})
	if e.frame != nil {
		t.Error("encoded for nobody")
	}
	if w := ask(t.Context(), "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	e.end()
	if w := ask(t.Context()); w.Code != http.StatusServiceUnavailable {
		t.Errorf("after the end: %d", w.Code)
	}
}

// More viewers than there are places, who keep their connections, leave the others theirs.
func TestViewersLeaveRoom(t *testing.T) {
	r := start(t, "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0")
	_, admin := r.Addr()
	seen := map[int]int{}
	for range adminRoom() + 40 {
		c, err := net.Dial("tcp", admin)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(c, "GET /api/v1/events HTTP/1.1\r\nHost: %s\r\n\r\n", admin); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		seen[answer.StatusCode]++
	}
	if want := mostViewers(adminRoom()); seen[200] != want || seen[503] != adminRoom()+40-want {
		t.Errorf("%v, want %d viewers", seen, want)
	}
	for range 300 { // who says nothing at all
		c, err := net.Dial("tcp", admin)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	for _, path := range []string{"/livez", "/metrics", "/api/v1/status"} {
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get("http://" + admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// 50 viewers of a gateway at work cost less than 2 % of a core: all that the process uses
// with them, less what it uses without.
func TestViewersAreCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 12 s")
	}
	if !measuresTime {
		t.Skip("measures processor time")
	}
	r := start(t, "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_SHAPER_RATE=10/s")
	_, admin := r.Addr()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	part := func(d time.Duration) float64 {
		before := used()
		time.Sleep(d)
		return float64(used()-before) / float64(d)
	}
	_, js := r.client()
	r.admitted(js, "acme", 500)
	without := part(5 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var heard atomic.Int64
	var viewers sync.WaitGroup
	defer viewers.Wait()
	defer cancel()
	for range 50 {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/api/v1/events", admin), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != 200 {
			t.Fatal(answer.Status)
		}
		viewers.Go(func() {
			defer func() { _ = answer.Body.Close() }()
			buffer := make([]byte, 64<<10)
			for {
				n, err := answer.Body.Read(buffer)
				if n > 0 {
					heard.Add(1)
				}
				if err != nil {
					return
				}
			}
		})
	}
	with := part(5 * time.Second)
	t.Logf("of a core: %.2f %% without viewers, %.2f %% with 50, whose own reading is in it", 100*without, 100*with)
	if n := heard.Load(); n < 50*5 {
		t.Errorf("50 viewers heard %d in 5 s", n)
	}
	if with-without > 0.02 {
		t.Errorf("50 viewers cost %.2f %% of a core", 100*(with-without))
	}
}
