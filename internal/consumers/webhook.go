package consumers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// dialTime bounds a connection and the TLS handshake, each.
	dialTime = 5 * time.Second
	// idleTime is how long a connection may lie idle. Many servers close theirs after
	// 5 s, and what is sent into a closing one gets no answer.
	idleTime = 4 * time.Second
)

// Webhook is a Destination that POSTs each message to one URL. A batch is sent one
// message after the other; there is one connection for each delivery in flight, or
// one of HTTP/2 for all.
//
// Redirects are never followed, so nothing that answers can send messages elsewhere.
// The URL is the operator's: private and loopback addresses are as good as others.
// Proxies of the environment are not used.
type Webhook struct {
	// url has no user; authorization is what was made of it.
	url, authorization string
	agent              string
	signer             signer
	order              Order
	transport          *http.Transport
	// hide takes secrets out of what is shown of answers.
	hide *strings.Replacer
	log  *slog.Logger
	// unsayable tells of headers that are left out, seldom.
	unsayable rate.Sometimes
}

// checkWebhookURL checks the form.
func checkWebhookURL(s string) error {
	_, err := parseWebhookURL(s)
	return err
}

func parseWebhookURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || strings.HasSuffix(u.Host, ":"):
		return nil, errors.New("is not an HTTP URL like https://user:password@host:8443/path")
	case strings.Contains(u.User.Username(), ":"):
		return nil, errors.New("has a colon in its user's name, which basic authentication cannot say (RFC 7617 2)")
	case u.Fragment != "" || strings.Contains(s, "#"):
		return nil, errors.New("has a fragment (#), which is never sent; a # of the path is %23")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("has a port that is none; ports are 1 to 65535")
		}
	}
	return u, nil
}

// isWebhook reports whether a URL is this destination's.
func isWebhook(url string) bool {
	return strings.HasPrefix(url, "http:") || strings.HasPrefix(url, "https:")
}

func openWebhookURL(_ context.Context, cfg Config, deps Deps) (Destination, error) {
	return OpenWebhook(cfg, deps.Version, deps.Logger)
}

// OpenWebhook makes the destination that cfg.URL names, signed with cfg.HTTPSecret;
// version is part of its User-Agent. It does not connect.
func OpenWebhook(cfg Config, version string, log *slog.Logger) (*Webhook, error) {
	u, err := parseWebhookURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	w := &Webhook{agent: "flowgate", order: cfg.Order, log: log, unsayable: rate.Sometimes{First: 3, Interval: 10 * time.Second}}
	if version != "" {
		w.agent += "/" + version
	}
	if w.signer, err = newSigner(cfg.HTTPSecret); err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_HTTP_SECRET: %w", err)
	}
	var secrets []string
	if u.User != nil {
		password, _ := u.User.Password()
		encoded := base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password))
		w.authorization = "Basic " + encoded
		secrets = append(secrets, encoded, password)
		u.User = nil
	}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	w.url, w.hide = u.String(), hiding(append(secrets, u.RawQuery))
	w.transport = &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTime,
		ForceAttemptHTTP2:      true, // which one's own dialer switches off
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: dialTime, PingTimeout: dialTime},
		DisableCompression:     true,
		MaxIdleConns:           cfg.Concurrency,
		MaxIdleConnsPerHost:    cfg.Concurrency,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: answerHeader,
	}
	return w, nil
}

// hiding masks the texts given; what is shorter than 4 bytes hides nothing and would
// mangle much.
func hiding(secrets []string) *strings.Replacer {
	var pairs []string
	for _, s := range secrets {
		if len(s) >= 4 {
			pairs = append(pairs, s, "****")
		}
	}
	return strings.NewReplacer(pairs...)
}

// Deliver implements Destination.
func (w *Webhook) Deliver(ctx context.Context, batch []Delivery) []error {
	return inTurn(ctx, batch, w.order, w.post)
}

func (w *Webhook) post(ctx context.Context, d Delivery) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { sent.Store(info.Err == nil) },
	})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, w.url, bytes.NewReader(d.Payload))
	if err != nil {
		return Overloaded(0, fmt.Errorf("http: %w", err))
	}
	req.Header = w.requestHeader(d, time.Now())
	// Not a client's Do: it follows redirects, and its errors show the URL.
	res, err := w.transport.RoundTrip(req)
	switch {
	case err == nil:
		return w.answer(res, cancel)
	case ctx.Err() != nil && sent.Load():
		// The server took it and did not answer: the message's own attempt.
		return fmt.Errorf("http: sent, and not answered in time: %w", err)
	}
	// No connection, a broken one, or no HTTP: whoever is there, it is no message's
	// fault.
	return Overloaded(0, fmt.Errorf("http: not answered: %w", err))
}

// Close closes the connections.
func (w *Webhook) Close() error {
	w.transport.CloseIdleConnections()
	return nil
}

// Ping connects, and shakes hands over TLS, without a request: any might have an
// effect.
func (w *Webhook) Ping(ctx context.Context) error {
	u, err := url.Parse(w.url)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	address := net.JoinHostPort(u.Hostname(), port)
	dialer := &net.Dialer{Timeout: dialTime}
	dial := dialer.DialContext
	if u.Scheme == "https" {
		dial = (&tls.Dialer{NetDialer: dialer, Config: w.transport.TLSClientConfig}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("http: connect: %w", err)
	}
	return conn.Close()
}
