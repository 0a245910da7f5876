package consumers

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// speak listens and does with each connection what serve says; requests counts those
// that serve reads with next.
func speak(t *testing.T, serve func(c net.Conn, next func() bool)) (url string, requests *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = &atomic.Int64{}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			running.Go(func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				serve(c, func() bool {
					req, err := http.ReadRequest(in)
					if err == nil {
						_, err = io.Copy(io.Discard, req.Body)
					}
					if err == nil {
						requests.Add(1)
					}
					return err == nil
				})
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return "http://" + l.Addr().String(), requests
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// What comes of servers that are broken, hostile or none.
func TestWebhookMeetsAnything(t *testing.T) {
	says := func(answer string) func(net.Conn, func() bool) {
		return func(c net.Conn, next func() bool) {
			for next() {
				if _, err := io.WriteString(c, answer); err != nil || !strings.HasSuffix(answer, "\r\n\r\n") {
					return
				}
			}
		}
	}
	for name, c := range map[string]struct {
		serve func(net.Conn, func() bool)
		want  VerdictKind
		word  string
	}{
		"closes without an answer":     {func(_ net.Conn, next func() bool) { next() }, Overload, "not answered"},
		"closes before the request":    {func(net.Conn, func() bool) {}, Overload, "not answered"},
		"resets":                       {func(c net.Conn, next func() bool) { next(); _ = c.(*net.TCPConn).SetLinger(0) }, Overload, "not answered"},
		"no HTTP":                      {says("220 mail.example ESMTP\r\n\r\n"), Overload, "malformed"},
		"bytes":                        {says("\x00\x15\x03\x01\xff\r\n\r\n"), Overload, "malformed"},
		"breaks off in its header":     {says("HTTP/1.1 200 OK\r\nX-Broken: "), Overload, "not answered"},
		"an endless header":            {says("HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 100<<10) + "\r\n\r\n"), Overload, "exceeded"},
		"done, and breaks off":         {says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), Done, ""},
		"bad, and breaks off":          {says("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf"), Retry, "half"},
		"a broken chunk":               {says("HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwhat\r\nzz\r\n"), Reject, "what"},
		"continue, hints, then done":   {says("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"), Done, ""},
		"another protocol":             {says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ws\r\n\r\n"), Overload, "101"},
		"HTTP/1.0":                     {says("HTTP/1.0 200 OK\r\n\r\nbody"), Done, ""},
		"an old dialect of everything": {says("HTTP/1.1 200\r\n\r\n"), Done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := speak(t, c.serve)
			w := webhook(t, url)
			err := deliver(t, w, aDelivery(1), c.want)
			if c.word != "" {
				wantError(t, err, c.word)
			}
		})
	}
}

// The attempt's time is up: a message that was sent has had its attempt, one that found
// nobody who takes it has not.
func TestWebhookTimeouts(t *testing.T) {
	large := make([]byte, 32<<20)
	for name, c := range map[string]struct {
		serve  func(net.Conn, func() bool)
		scheme string
		large  bool
		want   VerdictKind
	}{
		"never answers":            {func(c net.Conn, next func() bool) { next(); next() }, "http", false, Retry},
		"a header byte by byte":    {func(c net.Conn, next func() bool) { next(); trickle(c, "HTTP/1.1 200 OK\r\nX-Slow: ") }, "http", false, Retry},
		"never ends its handshake": {func(c net.Conn, next func() bool) { _, _ = io.Copy(io.Discard, c) }, "https", false, Overload},
		"does not read":            {nil, "http", true, Overload},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			if c.serve == nil {
				c.serve = func(net.Conn, func() bool) { <-ended }
			}
			url, _ := speak(t, c.serve)
			t.Cleanup(func() { close(ended) })
			w := webhook(t, strings.Replace(url, "http", c.scheme, 1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			batch := deliveries(2)
			if c.large {
				batch[0].Payload = large
			}
			wantKinds(t, w.Deliver(ctx, batch), c.want, Overload)
		})
	}
}

// trickle writes s, and then an x now and then until the other side has enough.
func trickle(c net.Conn, s string) {
	for _, err := io.WriteString(c, s); err == nil; _, err = io.WriteString(c, "x") {
		time.Sleep(5 * time.Millisecond)
	}
}

// The status says it; a body without end holds nobody up until the attempt's time is
// over.
func TestWebhookBodyWithoutEnd(t *testing.T) {
	for name, serve := range map[string]func(net.Conn, func() bool){
		"slow": func(c net.Conn, next func() bool) { next(); trickle(c, "HTTP/1.1 200 OK\r\n\r\n") },
		"fast": func(c net.Conn, next func() bool) {
			next()
			chunk := strings.Repeat("x", 64<<10)
			for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err == nil; _, err = io.WriteString(c, chunk) {
			}
		},
		"none": func(c net.Conn, next func() bool) {
			next()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			next()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := speak(t, serve)
			w := webhook(t, url)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			wantKinds(t, w.Deliver(ctx, deliveries(1)), Done)
			if ctx.Err() != nil {
				t.Error("it took the whole time of the attempt")
			}
		})
	}
}

// A connection that breaks may have carried the message: whether it is sent again is the
// shaper's decision, which meters it. net/http would do so by itself for what it takes
// for idempotent.
func TestWebhookNeverSendsTwice(t *testing.T) {
	for name, payload := range map[string]string{"with a payload": "payload", "without": ""} {
		t.Run(name, func(t *testing.T) {
			url, requests := speak(t, func(c net.Conn, next func() bool) {
				next()
				_, _ = io.WriteString(c, okAnswer)
				next()
			})
			w := webhook(t, url)
			m := aDelivery(1)
			m.Payload = []byte(payload)
			m.Headers = map[string][]string{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"k"}}
			deliver(t, w, m, Done)
			deliver(t, w, m, Overload) // on the same connection, which closes
			if n := requests.Load(); n != 2 {
				t.Errorf("%d requests for 2 deliveries", n)
			}
		})
	}
}

// Where a redirect leads nothing arrives.
func TestWebhookFollowsNoRedirect(t *testing.T) {
	other := receive(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		r := receive(t, func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, other.URL+"/secret", status) })
		err := deliver(t, webhook(t, r.URL), aDelivery(1), Overload)
		wantError(t, err, strings.TrimPrefix(other.URL, "http://"))
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: it shows the path: %v", status, err)
		}
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("%d requests were redirected", n)
	}
}

// counted is a server of either protocol that counts its connections and how many
// requests it has at once.
func counted(t *testing.T, tls bool) (s *httptest.Server, connections, most *atomic.Int64) {
	t.Helper()
	connections, most = &atomic.Int64{}, &atomic.Int64{}
	var now atomic.Int64
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		_, _ = io.Copy(w, req.Body)
		time.Sleep(time.Millisecond)
		now.Add(-1)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.EnableHTTP2 = tls
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, connections, most
}

// Connections are kept: about as many as deliveries at once, or one of HTTP/2.
func TestWebhookKeepsConnections(t *testing.T) {
	for name, c := range map[string]struct {
		tls         bool
		connections int64
	}{"HTTP/1": {false, 8}, "HTTP/2": {true, 1}} { // a dial may lose to a connection that comes free
		t.Run(name, func(t *testing.T) {
			s, connections, most := counted(t, c.tls)
			w := webhook(t, s.URL, func(cfg *Config) { cfg.Concurrency = 4 })
			if c.tls {
				w.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
				w.transport.TLSClientConfig.RootCAs.AddCert(s.Certificate())
				deliver(t, w, aDelivery(0), Done) // those who start at once would each dial
			}
			var running sync.WaitGroup
			for range 4 {
				running.Go(func() {
					for range 10 {
						for _, err := range w.Deliver(t.Context(), deliveries(3)) {
							if err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			running.Wait()
			if n := connections.Load(); n > c.connections {
				t.Errorf("%d connections, want %d at most", n, c.connections)
			}
			if n := most.Load(); n > 4 {
				t.Errorf("%d requests at once, want 4 at most: a batch goes one by one", n)
			}
		})
	}
}

func TestWebhookTLSFaults(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	w := webhook(t, s.URL)
	err := deliver(t, w, aDelivery(1), Overload)
	wantError(t, err, "certificate")
	wantError(t, w.Ping(t.Context()), "certificate")
	// HTTP where TLS is spoken, and the other way round.
	deliver(t, webhook(t, strings.Replace(s.URL, "https", "http", 1)), aDelivery(1), Reject) // 400 by the server
	plain := receive(t, nil)
	wantError(t, deliver(t, webhook(t, strings.Replace(plain.URL, "http", "https", 1)), aDelivery(1), Overload), "tls")
}

func BenchmarkWebhook(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	for _, secret := range []string{"", aSecret(32, 'k')} {
		b.Run(fmt.Sprintf("signed=%v", secret != ""), func(b *testing.B) {
			w, err := OpenWebhook(Config{URL: s.URL, Concurrency: 1, HTTPSecret: secret}, "", quiet())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			batch := deliveries(1)
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Deliver(b.Context(), batch)[0]; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
