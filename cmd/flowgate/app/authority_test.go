package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/flowgate/flowgate/internal/bubble"
)

func TestWhoMayChangeSomething(t *testing.T) {
	type request = func(*http.Request)
	from := func(addr string) request { return func(q *http.Request) { q.RemoteAddr = addr } }
	host := func(name string) request { return func(q *http.Request) { q.Host = name } }
	header := func(name, value string) request { return func(q *http.Request) { q.Header.Set(name, value) } }
	all := func(list ...request) request {
		return func(q *http.Request) {
			for _, f := range list {
				f(q)
			}
		}
	}
	nothing := all()
	remote := all(from("192.0.2.1:40000"), host("gate.example.org"))
	for _, c := range []struct {
		name, token string
		request     request
		code        int
		says        string
	}{
		{"from this machine", "", nothing, 200, ""},
		{"over IPv6", "", all(from("[::1]:40000"), host("[::1]:8081")), 200, ""},
		{"an IPv4 address in IPv6's form", "", from("[::ffff:127.0.0.1]:40000"), 200, ""},
		{"localhost", "", host("localhost:8081"), 200, ""},
		{"localhost without a port", "", host("LOCALHOST"), 200, ""},
		{"a token that nobody asked for", "", header("Authorization", "Bearer x"), 200, ""},
		{"from elsewhere", "", remote, 403, "FLOWGATE_ADMIN_TOKEN"},
		{"from elsewhere, saying localhost", "", from("192.0.2.1:40000"), 403, "FLOWGATE_ADMIN_TOKEN"},
		{"from nowhere", "", from("@"), 403, "FLOWGATE_ADMIN_TOKEN"},
		{"a name that resolves to this machine", "", host("evil.example.org:8081"), 403, "FLOWGATE_ADMIN_TOKEN"},
		{"a name that looks like it", "", host("localhost.example.org:8081"), 403, "FLOWGATE_ADMIN_TOKEN"},
		{"no host", "", host(""), 403, "FLOWGATE_ADMIN_TOKEN"},
		{"through a proxy here", "", header("X-Forwarded-For", "192.0.2.1"), 403, "through a proxy (X-Forwarded-For)"},
		{"through a proxy here, after an empty line", "", func(q *http.Request) { q.Header["X-Forwarded-For"] = []string{"", "192.0.2.1"} }, 403, "through a proxy (X-Forwarded-For)"},
		{"through a proxy here that says nothing", "", header("Via", ""), 403, "through a proxy (Via)"},
		{"a page of another origin", "", all(header("Sec-Fetch-Site", "cross-site"), header("Origin", "https://evil.example.org")), 403, "another origin"},
		{"a page of another port", "", header("Origin", "http://127.0.0.1:9999"), 403, "another origin"},
		{"its own page", "", all(header("Sec-Fetch-Site", "same-origin"), header("Origin", "http://127.0.0.1:8081")), 200, ""},

		{"the token, from elsewhere", "s3cr3t", all(remote, header("Authorization", "Bearer s3cr3t")), 200, ""},
		{"the token, through a proxy", "s3cr3t", all(remote, header("Authorization", "bearer s3cr3t"), header("X-Forwarded-For", "192.0.2.1")), 200, ""},
		{"no token, from this machine", "s3cr3t", nothing, 401, "Authorization: Bearer"},
		{"a wrong one", "s3cr3t", header("Authorization", "Bearer s3cr3x"), 401, "Authorization: Bearer"},
		{"a part of it", "s3cr3t", header("Authorization", "Bearer s3cr3"), 401, "Authorization: Bearer"},
		{"an empty one", "s3cr3t", header("Authorization", "Bearer "), 401, "Authorization: Bearer"},
		{"another scheme", "s3cr3t", header("Authorization", "Basic s3cr3t"), 401, "Authorization: Bearer"},
		{"without a scheme", "s3cr3t", header("Authorization", "s3cr3t"), 401, "Authorization: Bearer"},
		{"a page of another origin that has it", "s3cr3t", all(header("Authorization", "Bearer s3cr3t"), header("Sec-Fetch-Site", "cross-site")), 403, "another origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var environ []string
				if c.token != "" {
					environ = []string{"FLOWGATE_ADMIN_TOKEN=" + c.token}
				}
				r := start(t, environ...)
				for _, change := range []struct{ method, path, body string }{
					{"PUT", "/api/v1/limits/tenant/acme", `{"limit":"token-bucket:1/s"}`},
					{"PUT", "/api/v1/limits", `{"limits":[{"scope":"tenant","key":"acme","limit":"token-bucket:2/s"}]}`},
					{"DELETE", "/api/v1/limits/tenant/acme", ""},
					{"PUT", "/api/v1/weights/acme", `{"weight":2}`},
					{"DELETE", "/api/v1/weights/acme", ""},
					{"POST", "/api/v1/pause", ""},
					{"POST", "/api/v1/resume", ""},
				} {
					code, body, got := ask(r, change.method, change.path, change.body, c.request)
					if code == 204 {
						code = 200
					}
					if code != c.code || c.says != "" && !strings.Contains(body, c.says) {
						t.Errorf("%s %s: %d %s", change.method, change.path, code, body)
					}
					if (got.Get("WWW-Authenticate") != "") != (code == 401) {
						t.Errorf("%d with WWW-Authenticate %q", code, got.Get("WWW-Authenticate"))
					}
					if strings.Contains(body, "s3cr3t") {
						t.Errorf("the token is shown: %s", body)
					}
				}
				if n := len(r.running().liveLimits.List()) + len(r.running().liveLimits.Weights()); n != 0 {
					t.Errorf("%d limits and weights are left", n)
				}
				// Looking is everybody's.
				for _, path := range []string{"limits", "weights", "status"} {
					if code, body, _ := ask(r, "GET", "/api/v1/"+path, "", c.request); code != 200 {
						t.Errorf("a look at %s: %d %s", path, code, body)
					}
				}
			})
		})
	}
}
