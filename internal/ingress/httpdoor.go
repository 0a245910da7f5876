package ingress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowgate/flowgate/internal/descriptors"
)

// The HTTP door's bounds against clients that are slow or send too much.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = readTimeout + 10*time.Second
	idleTimeout   = 2 * time.Minute
	maxHTTPHeader = 64 << 10
	// drainTimeout is a little more than a request waits at most.
	drainTimeout = callerPatience + callerLook + 500*time.Millisecond
)

// HTTP is the front door for HTTP producers. It makes a message of a request and puts
// it into the same queue as one over NATS; the broker answers to an inbox of the
// gateway's own, and a refusal reaches the request without leaving the process.
type HTTP struct {
	door     *NATS
	proxies  proxies
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
	bodies   atomic.Int64 // of bodyBytes, those taken

	cert      atomic.Pointer[tls.Certificate]
	certFiles *watchedFiles // nil without TLS
	failed    atomic.Pointer[error]
}

// NewHTTP opens the listener, so that a port in use stops the start, and loads the
// certificate. Nothing is served before Run; Close gives the listener back if that is
// never called. door takes the messages: all decisions are its own.
func NewHTTP(cfg Config, door *NATS) (*HTTP, error) {
	trusted, err := parseProxies(cfg.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_INGRESS_TRUSTED_PROXIES: %w", err)
	}
	h := &HTTP{door: door, proxies: trusted, log: door.log}
	h.server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHTTPHeader,
		Protocols:         new(http.Protocols), // HTTP/2 with TLS only
		ErrorLog:          slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
	h.server.Protocols.SetHTTP1(true)
	if cfg.HTTPTLSCert != "" {
		h.certFiles = &watchedFiles{
			paths: []string{cfg.HTTPTLSCert, cfg.HTTPTLSKey}, what: "certificate and key of the HTTP ingress", log: h.log,
			load: func() error {
				pair, err := loadCertificate(cfg)
				if err != nil {
					return err
				}
				h.cert.Store(&pair)
				return nil
			},
		}
		if err := h.certFiles.open(); err != nil {
			return nil, err
		}
		h.server.Protocols.SetHTTP2(true)
		h.server.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return h.cert.Load(), nil },
		}
	}
	listener, err := net.Listen("tcp", cfg.HTTPListen)
	if err != nil {
		return nil, fmt.Errorf("HTTP ingress address %s (FLOWGATE_INGRESS_HTTP_LISTEN): %w", cfg.HTTPListen, err)
	}
	words := descriptors.Crowded
	if h.certFiles != nil {
		words = ""
	}
	h.listener = descriptors.Bound(listener, descriptors.Share(4), words)
	return h, nil
}

func loadCertificate(cfg Config) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cfg.HTTPTLSCert, cfg.HTTPTLSKey)
	if err != nil {
		err = fmt.Errorf("FLOWGATE_INGRESS_HTTP_TLS_CERT, FLOWGATE_INGRESS_HTTP_TLS_KEY: %w", err)
	}
	return pair, err
}

// Addr is the address that is listened on.
func (h *HTTP) Addr() string { return h.listener.Addr().String() }

// Failed is what ended the listener, nil while it works.
func (h *HTTP) Failed() error {
	if err := h.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Close gives the listener back.
func (h *HTTP) Close() error {
	if err := h.server.Close(); err != nil {
		return err
	}
	if err := h.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends; then it takes no more connections and returns once every
// request under way has its answer. door has to run meanwhile.
func (h *HTTP) Run(ctx context.Context) error {
	var background sync.WaitGroup
	defer background.Wait()
	running, stop := context.WithCancel(context.Background())
	defer stop()
	if h.certFiles != nil {
		background.Go(func() { h.certFiles.watch(running) })
	}
	served := make(chan error, 1)
	background.Go(func() {
		if h.certFiles != nil {
			served <- h.server.ServeTLS(h.listener, "", "")
		} else {
			served <- h.server.Serve(h.listener)
		}
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("ingress: HTTP listener %s: %w", h.Addr(), err)
		h.failed.Store(&err)
	}
	draining, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if h.server.Shutdown(draining) != nil {
		_ = h.server.Close() // what is still sending its body has no message here
	}
	return err
}

// ServeHTTP takes one message.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := request{Request: r}
	defer func() {
		if q.held > 0 {
			h.bodies.Add(-q.held)
		}
	}()
	if addr := h.proxies.client(r.RemoteAddr, r.Header["X-Forwarded-For"]); addr.IsValid() {
		q.id.IP = addr.String()
	}
	m, refused, status := h.admissible(&q)
	if refused != nil {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed { // else it was no message
			at := h.door.deps.Clock()
			h.door.metrics.refuse(q.tenant, overHTTP, refused, at)
			if h.door.deps.Witness != nil {
				h.door.deps.Witness.Refused(at, Evidence{Tenant: q.tenant, Transport: overHTTP, Refusal: refused, Enforced: true})
			}
			if h.door.deps.Tracer != nil {
				h.trace(&q, refused, at)
			}
		}
		h.refuse(w, &q, refused, status)
		return
	}
	at := h.door.deps.Clock()
	c, reply := h.door.callers.enter(at)
	m.Reply = reply
	h.door.enter(incoming{msg: m, at: at, web: true, ip: q.id.IP, apiKey: q.id.APIKey})
	o := h.door.callers.await(c)
	if o.refused != nil {
		h.refuse(w, &q, o.refused, 0)
		return
	}
	h.acknowledge(w, &q, o.ack)
}

// jsonType and problemJSON are shared by all answers; they are not to be changed.
var (
	jsonType    = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}
	closing     = []string{"close"}
)

// acknowledge passes on the broker's word.
func (h *HTTP) acknowledge(w http.ResponseWriter, q *request, ack []byte) {
	switch {
	case len(ack) == 0: // nobody hears the stream's subjects
		h.refuse(w, q, &Refusal{Reason: Overloaded, Text: "the broker has no stream", Wait: overloadWait}, 0)
		return
	case bytes.Contains(ack, []byte(`"error":`)):
		if status, body, ok := brokerProblem(ack); ok {
			h.write(w, q, status, problemJSON, body)
			return
		}
	}
	h.write(w, q, http.StatusAccepted, jsonType, ack)
}

// refuse answers with a problem; a status of 0 is the reason's own.
func (h *HTTP) refuse(w http.ResponseWriter, q *request, refused *Refusal, status int) {
	head := w.Header()
	refused.head(head.Set)
	switch status {
	case http.StatusUnauthorized:
		head["Www-Authenticate"] = []string{`Bearer realm="flowgate"`}
	case http.StatusMethodNotAllowed:
		head["Allow"] = []string{http.MethodPost}
	}
	status, body := refused.problem(status)
	if refused.Reason == Draining || q.unread() {
		head["Connection"] = closing
	}
	h.write(w, q, status, problemJSON, body)
}

func (h *HTTP) write(w http.ResponseWriter, q *request, status int, kind []string, body []byte) {
	head := w.Header()
	head["Content-Type"] = kind
	head["Content-Length"] = []string{strconv.Itoa(len(body))}
	if h.door.deps.Mode != Open {
		quotaFields(head, h.door.deps.Limits.Quotas(h.door.deps.Clock(), q.id))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failure is the client's leaving
}
