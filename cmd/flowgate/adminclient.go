package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
)

// adminClient speaks to the admin address of a running gateway.
type adminClient struct {
	base  string // without a slash at its end
	token string
	http  *http.Client
	again string // what to do about a change that has no answer
}

// answerTimeout is longer than the gateway takes for a change.
const answerTimeout = 30 * time.Second

// addrFlag adds --addr to a command; the client is made once flags are read.
func (c cli) addrFlag(f *flag.FlagSet) func() (*adminClient, error) {
	addr := f.String("addr", "", "the gateway's admin address; FLOWGATE_ADMIN_LISTEN otherwise")
	return func() (*adminClient, error) {
		admin, err := settings.LoadAdmin(c.environ)
		if err != nil {
			return nil, err
		}
		if *addr == "" && admin.Listen == settings.Off {
			return nil, errors.New("FLOWGATE_ADMIN_LISTEN is off; name the gateway's admin address with --addr")
		}
		from := "FLOWGATE_ADMIN_LISTEN"
		if *addr != "" {
			from, admin.Listen = "--addr", *addr
		}
		base, err := baseURL(admin.Listen)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s: %w", from, err)}
		}
		// No proxy: those of the environment are for other servers.
		return &adminClient{base: base, token: admin.Token, again: "`flowgate limits list` shows it", http: &http.Client{
			Timeout:   answerTimeout,
			Transport: &http.Transport{DisableKeepAlives: true},
			// A redirect would take a change elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}, nil
	}
}

// baseURL makes a URL of host:port or of a URL. An address to listen on at every
// interface is reached at this machine's own.
func baseURL(addr string) (string, error) {
	if strings.Contains(addr, "://") {
		u, err := url.Parse(addr)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return "", errors.New("it is not a URL like https://gate.example.org; the token comes from FLOWGATE_ADMIN_TOKEN")
		}
		return strings.TrimSuffix(u.String(), "/"), nil
	}
	host, port, err := net.SplitHostPort(addr)
	if n, e := strconv.Atoi(port); err != nil || e != nil || n < 0 || n > 65535 || strings.ContainsAny(host, "/ %?#@") {
		return "", fmt.Errorf("%q is not an address like 127.0.0.1:8081, or a URL", addr)
	}
	if port == "0" {
		return "", fmt.Errorf("port 0 of %q is any port; name the one that the gateway's log tells", addr)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// do asks for path, sends in as JSON unless it is nil, and reads the answer into
// out unless that is nil.
func (a *adminClient) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return fmt.Errorf("ask %s: %w", a.base, err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := a.send(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return a.unanswered(method, path, err)
	}
	if answer.StatusCode >= 300 {
		return a.refused(answer, text)
	}
	switch {
	case out == nil && answer.StatusCode != http.StatusNoContent:
		return a.other(answer.Status)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return a.other(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// send asks, and says why there is no answer.
func (a *adminClient) send(r *http.Request) (*http.Response, error) {
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	answer, err := a.http.Do(r)
	if err == nil {
		return answer, nil
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // it repeats the method and the URL
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no gateway answers at %s; start it, or name its admin address with --addr or FLOWGATE_ADMIN_LISTEN", a.base)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return nil, fmt.Errorf("ask the gateway at %s: %w", a.base, err)
	}
	return nil, a.unanswered(r.Method, r.URL.Path, err)
}

// other says that something else than a gateway answers.
func (a *adminClient) other(why string) error {
	return fmt.Errorf("%s does not answer as a gateway's admin address does: %s", a.base, why)
}

// unanswered says what is known of a request that was sent and has no answer.
func (a *adminClient) unanswered(method, path string, err error) error {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		err = fmt.Errorf("no answer within %s", a.http.Timeout)
	}
	if method != http.MethodGet {
		return fmt.Errorf("ask the gateway at %s: %w; the change may be made all the same: %s", a.base, err, a.again)
	}
	return fmt.Errorf("ask the gateway at %s: %w", a.base, err)
}

// refused makes an error of an answer that is none.
func (a *adminClient) refused(answer *http.Response, text []byte) error {
	var p app.Problem
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(text, &p) != nil {
		return fmt.Errorf("%s answers %s; is it a gateway's admin address?", a.base, answer.Status)
	}
	switch {
	case answer.StatusCode == http.StatusUnauthorized && a.token == "":
		return fmt.Errorf("the gateway at %s wants its token; set FLOWGATE_ADMIN_TOKEN or FLOWGATE_ADMIN_TOKEN_FILE", a.base)
	case answer.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the gateway at %s has another token than FLOWGATE_ADMIN_TOKEN here", a.base)
	}
	return errors.New(p.Detail)
}
