package app

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// authority decides who may change something at the admin address, and see what
// producers sent. Any other look is free.
type authority struct {
	token  string // empty: only from this machine
	origin *http.CrossOriginProtection
}

func newAuthority(token string) *authority {
	return &authority{token: token, origin: http.NewCrossOriginProtection()}
}

// guard lets h see only those who may change something.
func (a *authority) guard(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if status, detail := a.refuse(r); status != 0 {
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="flowgate"`)
			}
			writeProblem(w, status, detail)
			return
		}
		h(w, r)
	}
}

// refuse says why r may not change anything; status 0 is that it may.
func (a *authority) refuse(r *http.Request) (status int, detail string) {
	if err := a.origin.Check(r); err != nil {
		return http.StatusForbidden, "a page of another origin may change nothing here: " + err.Error()
	}
	if a.token != "" {
		if !a.bears(r) {
			return http.StatusUnauthorized, "this needs the header Authorization: Bearer <the gateway's FLOWGATE_ADMIN_TOKEN>"
		}
		return 0, ""
	}
	// The address of a proxy on this machine says nothing about who is behind it. One
	// that adds a line of its own leaves the client's, which may be empty, before it.
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(header)) > 0 {
			return http.StatusForbidden, "without FLOWGATE_ADMIN_TOKEN changes and contents are for this machine alone, and this request came through a proxy (" + header + "); set FLOWGATE_ADMIN_TOKEN"
		}
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		return http.StatusForbidden, "without FLOWGATE_ADMIN_TOKEN changes and contents are for this machine alone; set FLOWGATE_ADMIN_TOKEN to ask from elsewhere"
	}
	// A page that made its own name resolve to this machine sends that name.
	if !loopbackHost(r.Host) {
		return http.StatusForbidden, "without FLOWGATE_ADMIN_TOKEN changes and contents are only for localhost or a loopback address as Host; use one, or set FLOWGATE_ADMIN_TOKEN"
	}
	return 0, ""
}

func (a *authority) bears(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && a.knows(strings.TrimSpace(token))
}

// knows compares in a time that does not depend on the token, its length included.
// Without a token of its own it knows every one.
func (a *authority) knows(token string) bool {
	have, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.token))
	return subtle.ConstantTimeCompare(have[:], want[:]) == 1 || a.token == ""
}

func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && addr.Unmap().IsLoopback()
}
