package ingress

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/descriptors"
	"github.com/flowgate/flowgate/internal/units"
)

// raw is a connection on which a test says what it likes.
type raw struct {
	net.Conn
	in *bufio.Reader
	t  *testing.T
}

func (w *web) dial(t *testing.T) *raw {
	t.Helper()
	c, err := net.Dial("tcp", w.http.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return &raw{c, bufio.NewReader(c), t}
}

func (r *raw) say(format string, args ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.Conn, format, args...); err != nil {
		r.t.Fatal(err)
	}
}

// answer reads one answer, and whether the connection ends with it.
func (r *raw) answer() (status int, body string, closed bool) {
	r.t.Helper()
	res, err := http.ReadResponse(r.in, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Close
}

// gone reports whether the server has closed the connection without another word.
func (r *raw) gone() bool {
	_, err := r.in.ReadByte()
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// Who sends slowly or without end is cut off, and what is too large is not read.
func TestHTTPSlowAndLarge(t *testing.T) {
	w := newWeb(t, func(c *Config, _ *Deps, _ *jetstream.StreamConfig) { c.MaxPayload = 300 << 10 })
	w.http.server.ReadHeaderTimeout = 150 * time.Millisecond
	w.http.server.ReadTimeout = 300 * time.Millisecond
	w.http.server.IdleTimeout = 300 * time.Millisecond
	w.run()
	const head = "POST /v1/messages/acme/t HTTP/1.1\r\nHost: x\r\n"

	t.Run("slow header", func(t *testing.T) {
		c := w.dial(t)
		c.say("%s", head)
		if !c.gone() {
			t.Error("the connection is still there")
		}
	})
	t.Run("slow body", func(t *testing.T) {
		c := w.dial(t)
		c.say("%sContent-Length: 10\r\n\r\nabc", head)
		if status, body, closed := c.answer(); status != 408 || !closed || !strings.Contains(body, "in time") {
			t.Errorf("%d %s, closed: %v", status, body, closed)
		}
		if !c.gone() || len(w.limits.costs()) > 0 {
			t.Error("the connection is still there, or half a message was taken")
		}
	})
	t.Run("idle", func(t *testing.T) {
		c := w.dial(t)
		c.say("%sContent-Length: 0\r\n\r\n", head)
		if status, _, closed := c.answer(); status != 202 || closed || !c.gone() {
			t.Error("an idle connection is still there")
		}
	})
	t.Run("client gone", func(t *testing.T) {
		before := len(w.limits.costs())
		c := w.dial(t)
		c.say("%sContent-Length: 10\r\n\r\nabc", head)
		_ = c.Close()
		if r := w.post("acme/t", ""); r.status != 202 || len(w.limits.costs()) != before+1 {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("too large by its length", func(t *testing.T) {
		c := w.dial(t)
		c.say("%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", head, 300<<10+1)
		if status, body, closed := c.answer(); status != 413 || !closed || !strings.Contains(body, "too_large") {
			t.Errorf("%d %s, closed: %v", status, body, closed)
		}
	})
	t.Run("too large in chunks", func(t *testing.T) {
		c := w.dial(t)
		c.say("%sTransfer-Encoding: chunked\r\n\r\n", head)
		go func() { // until the server has enough of it
			for {
				if _, err := fmt.Fprintf(c.Conn, "1000\r\n%s\r\n", strings.Repeat("x", 0x1000)); err != nil {
					return
				}
			}
		}()
		if status, body, closed := c.answer(); status != 413 || !closed || !strings.Contains(body, "too_large") {
			t.Errorf("%d %s, closed: %v", status, body, closed)
		}
	})
	t.Run("chunks that fit", func(t *testing.T) {
		c := w.dial(t)
		c.say("%sTransfer-Encoding: chunked\r\n\r\n", head)
		for range 50 {
			c.say("1000\r\n%s\r\n", strings.Repeat("x", 0x1000))
		}
		c.say("0\r\n\r\n")
		status, body, closed := c.answer()
		if status != 202 || closed {
			t.Fatalf("%d %s", status, body)
		}
		if m := w.stored(w.state().LastSeq); len(m.Data) != 50*0x1000 {
			t.Errorf("%d bytes arrived", len(m.Data))
		}
	})
	t.Run("large header", func(t *testing.T) {
		c := w.dial(t)
		go c.say("%sX: %s\r\n\r\n", head, strings.Repeat("x", 80<<10))
		if status, _, _ := c.answer(); status != 431 {
			t.Errorf("%d", status)
		}
	})
	t.Run("HTTP/2 in the clear", func(t *testing.T) {
		c := w.dial(t)
		c.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		if status, _, closed := c.answer(); status != 404 || !closed {
			t.Errorf("with prior knowledge: %d", status)
		}
		c = w.dial(t)
		c.say("%sConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 0\r\n\r\n", head)
		if status, _, _ := c.answer(); status != 202 {
			t.Errorf("an upgrade: %d", status)
		}
	})
}

// A body that arrives in small pieces over a while is one message, and holds up
// nobody else meanwhile.
func TestHTTPSlowBodyHoldsNothing(t *testing.T) {
	w := newWeb(t).run()
	c := w.dial(t)
	c.say("POST /v1/messages/acme/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
	for range 3 {
		if r := w.post("acme/t", ""); r.status != 202 || r.took > time.Second {
			t.Errorf("another: %d after %v", r.status, r.took)
		}
	}
	c.say("cd")
	if status, body, _ := c.answer(); status != 202 {
		t.Errorf("%d %s", status, body)
	}
	if m := w.stored(4); m.Subject != "flowgate.backlog.acme.slow" || string(m.Data) != "abcd" {
		t.Errorf("stored %s %q", m.Subject, m.Data)
	}
}

// Long bodies share a bounded memory, however many clients begin one and never end it;
// what is past it is refused at once, short ones are not, and all is given back.
func TestHTTPBodiesAreBounded(t *testing.T) {
	w := newWeb(t, func(c *Config, _ *Deps, _ *jetstream.StreamConfig) { c.MaxPayload = units.MiB }).run()
	const long = 200 << 10
	begin := func(size string) *raw {
		c := w.dial(t)
		c.say("POST /v1/messages/acme/slow HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", size)
		return c
	}
	held := func(want int64) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); w.http.bodies.Load() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held for bodies, want %d", w.http.bodies.Load(), want)
			}
		}
	}
	dawdlers := []*raw{}
	for range 3 {
		dawdlers = append(dawdlers, begin(fmt.Sprintf("Content-Length: %d", long)))
	}
	held(3 * firstRead)
	full := int64(bodyBytes) - 4*firstRead
	w.http.bodies.Add(full) // as many more
	for _, kind := range []string{"Content-Length", "chunked"} {
		var body io.Reader = strings.NewReader(strings.Repeat("x", long))
		if kind == "chunked" {
			body = io.MultiReader(body) // its length does not show
		}
		r := w.do("POST", "/v1/messages/acme/t", body)
		if r.status != 503 || r.Reason != "overloaded" || r.Wait == nil || r.took > time.Second {
			t.Errorf("%s: %d %s after %v", kind, r.status, r.body, r.took)
		}
	}
	if r := w.post("acme/t", strings.Repeat("x", freeRead)); r.status != 202 {
		t.Errorf("a short one: %d %s", r.status, r.body)
	}
	held(full + 3*firstRead)
	w.http.bodies.Add(-full)
	if r := w.post("acme/t", strings.Repeat("x", long)); r.status != 202 {
		t.Errorf("with room: %d %s", r.status, r.body)
	}
	_ = dawdlers[0].Close()
	dawdlers[1].say("%s", strings.Repeat("x", long))
	if status, body, _ := dawdlers[1].answer(); status != 202 {
		t.Errorf("the one that ends: %d %s", status, body)
	}
	held(firstRead)
}

// Connections have a bound: one too many is answered and closed, and a place that
// becomes free is taken again.
func TestHTTPConnectionsAreBounded(t *testing.T) {
	w := newWeb(t)
	w.http.listener = descriptors.Bound(w.http.listener.(*descriptors.Listener).Listener, 3, descriptors.Crowded)
	w.run()
	idle := []*raw{w.dial(t), w.dial(t), w.dial(t)}
	c := w.dial(t)
	c.say("POST /v1/messages/acme/t HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	if status, _, closed := c.answer(); status != 503 || !closed || !c.gone() {
		t.Errorf("one too many: %d, closed %v", status, closed)
	}
	// An answer before its request Go's client would take for a broken connection.
	for range 50 {
		if r := w.post("acme/t", ""); r.status != 503 {
			t.Fatalf("one too many by Go's client: %d", r.status)
		}
	}
	mute := w.dial(t)
	_ = idle[0].Close()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if r := w.post("acme/t", ""); r.status == 202 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("with a place free: %d", r.status)
		}
	}
	if !mute.gone() {
		t.Error("who is one too many and says nothing is kept")
	}
}

// While draining a client gets to know; what was under way is answered; and the end
// does not wait for those who dawdle.
func TestHTTPDraining(t *testing.T) {
	w := newWeb(t)
	gate, seen := make(chan struct{}), make(chan struct{}, 1)
	w.limits.wait = func() { seen <- struct{}{}; <-gate }
	w.run()
	under := make(chan reply, 1)
	go func() {
		r, err := w.try(http.DefaultClient, "POST", "http://"+w.http.Addr()+"/v1/messages/acme/t", nil)
		if err != nil {
			t.Error(err)
		}
		under <- r
	}()
	<-seen
	dawdler := w.dial(t)
	dawdler.say("POST /v1/messages/acme/t HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	// The door was still open when it began to wait for the body.
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := dawdler.in.ReadString('\n'); line != want {
			t.Fatalf("%q, %v", line, err)
		}
	}
	dawdler.say("ab")
	kept := w.dial(t)
	w.door.Drain()
	kept.say("POST /v1/messages/acme/t HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	if status, body, closed := kept.answer(); status != 503 || !closed || !strings.Contains(body, `"reason":"draining"`) || !strings.Contains(body, `"retry_after_ms":0`) {
		t.Errorf("while draining: %d %s, closed: %v", status, body, closed)
	}
	start := time.Now()
	ended := make(chan error, 2)
	go func() { ended <- w.stop() }()
	go func() { ended <- w.rig.stop() }()
	close(gate)
	if r := <-under; r.status != 202 {
		t.Errorf("what was under way: %d %s", r.status, r.body)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(start); took > drainTimeout+2*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := net.Dial("tcp", w.http.Addr()); err == nil {
		t.Error("the port is still open")
	}
	if !dawdler.gone() {
		t.Error("the dawdler's connection is still open")
	}
}

func TestHTTPPortInUse(t *testing.T) {
	w := newWeb(t)
	cfg := w.cfg
	cfg.HTTPListen = w.http.Addr()
	if _, err := NewHTTP(cfg, w.door); err == nil || !strings.Contains(err.Error(), "FLOWGATE_INGRESS_HTTP_LISTEN") {
		t.Errorf("%v", err)
	}
}

// A listener that breaks ends Run, and readiness can tell.
func TestHTTPListenerFails(t *testing.T) {
	w := newWeb(t).run()
	if r := w.post("acme/t", ""); r.status != 202 || w.http.Failed() != nil {
		t.Fatalf("%d %v", r.status, w.http.Failed())
	}
	_ = w.http.listener.Close()
	err := <-w.result
	w.result <- err
	if err == nil || !errors.Is(w.http.Failed(), net.ErrClosed) {
		t.Errorf("Run gave %v, Failed %v", err, w.http.Failed())
	}
}

// certificate writes a pair for 127.0.0.1 that is its own authority.
func certificate(t *testing.T, dir string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "flowgate"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

func TestHTTPS(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir, 1)
	w := newWeb(t)
	_ = w.http.Close()
	w.cfg.HTTPTLSCert, w.cfg.HTTPTLSKey = filepath.Join(dir, "cert"), filepath.Join(dir, "nokey")
	if _, err := NewHTTP(w.cfg, w.door); err == nil || !strings.Contains(err.Error(), "FLOWGATE_INGRESS_HTTP_TLS_KEY") {
		t.Errorf("a missing key: %v", err)
	}
	w.cfg.HTTPTLSKey = filepath.Join(dir, "key")
	var err error
	if w.http, err = NewHTTP(w.cfg, w.door); err != nil {
		t.Fatal(err)
	}
	w.run()
	client := func(pool *x509.CertPool, most uint16) *http.Client {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MaxVersion: most}, ForceAttemptHTTP2: true}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	url := "https://" + w.http.Addr() + "/v1/messages/acme/t"
	for i := range 2 { // HTTP/2, one connection
		if r, err := w.try(client(pool, 0), "POST", url, strings.NewReader("x"), "Idempotency-Key", "7"); err != nil || r.status != 202 || r.Duplicate != (i == 1) {
			t.Errorf("%v, %d %s", err, r.status, r.body)
		}
	}
	if _, err := w.try(client(pool, tls.VersionTLS11), "POST", url, nil); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	if res, err := http.Post("http://"+w.http.Addr()+"/v1/messages/acme/t", "", nil); err == nil && res.StatusCode == 202 {
		t.Error("a message in the clear was accepted")
	}
	pool = certificate(t, dir, 2)
	w.http.certFiles.look()
	w.http.certFiles.look()
	if r, err := w.try(client(pool, 0), "POST", url, nil); err != nil || r.status != 202 {
		t.Errorf("with the new certificate: %v, %d %s", err, r.status, r.body)
	}
}
