package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// ask sends a request to the admin address as somebody on this machine does; change
// makes it another's.
func ask(r *running, method, path, body string, change ...func(*http.Request)) (int, string, http.Header) {
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.RemoteAddr, q.Host = "127.0.0.1:40000", "127.0.0.1:8081"
	for _, f := range change {
		f(q)
	}
	w := httptest.NewRecorder()
	r.running().adminHandler().ServeHTTP(w, q)
	return w.Code, w.Body.String(), w.Header()
}

// passes counts how many of n messages are admitted at this instant.
func passes(r *running, js jetstream.JetStream, tenant string, n int) int {
	r.t.Helper()
	admitted := 0
	for range n {
		_, err := js.Publish(r.t.Context(), "ingress."+tenant+".orders", nil)
		switch code, _ := refusal(err); {
		case err == nil:
			admitted++
		case code != 60429:
			r.t.Fatalf("refused otherwise: %v", err)
		}
	}
	return admitted
}

// The next message after the answer is decided on by the new rule, and so it is
// after a restart.
func TestALimitThatChangesWhileItRuns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		const configured = "FLOWGATE_LIMIT_TENANT=token-bucket:5/h"
		r := startIn(t, dir, &sink{}, configured)
		_, js := r.client()
		if n := passes(r, js, "acme", 10); n != 5 {
			t.Errorf("%d pass by the environment's limit", n)
		}
		code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/globex", `{"limit":"token-bucket:2/h","reason":"noisy","author":"ann"}`)
		var stored struct {
			Scope, Key, Limit, Author, Reason string
			At                                time.Time
		}
		if err := json.Unmarshal([]byte(body), &stored); code != 200 || err != nil || stored.Scope != "tenant" || stored.Key != "globex" ||
			stored.Limit != "token-bucket:2/h" || stored.Author != "ann" || stored.Reason != "noisy" || time.Since(stored.At) > time.Second {
			t.Errorf("%d %s, %v", code, body, err)
		}
		if n := passes(r, js, "globex", 10); n != 2 {
			t.Errorf("%d pass by the live limit", n)
		}
		if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/free-*", `{"limit":"token-bucket:3/h"}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if n := passes(r, js, "free-1", 10); n != 3 {
			t.Errorf("%d pass by the glob's limit", n)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r = startIn(t, dir, &sink{}, configured)
		_, js = r.client()
		for tenant, want := range map[string]int{"globex": 2, "free-2": 3, "other": 5} {
			if n := passes(r, js, tenant, 10); n != want {
				t.Errorf("after the restart %d pass of %s, want %d", n, tenant, want)
			}
		}
		if code, body, _ := ask(r, "DELETE", "/api/v1/limits/tenant/globex", ""); code != 204 || body != "" {
			t.Errorf("%d %s", code, body)
		}
		// What was used stays used: 2 of the 5.
		if n := passes(r, js, "globex", 10); n != 3 {
			t.Errorf("%d pass by the environment's limit after the live one was deleted", n)
		}
		// The scope's own rule.
		if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/*", `{"limit":"token-bucket:1/h"}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if n := passes(r, js, "new", 10); n != 1 {
			t.Errorf("%d pass by the live rule for every tenant", n)
		}
	})
}

func TestTheListOfLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:5/s")
		_, js := r.client()
		passes(r, js, "acme", 1)
		for path, body := range map[string]string{
			"tenant/*": `{"limit":"token-bucket:6/s"}`, "ip/192.0.2.7": `{"limit":"unlimited","reason":"ours"}`, "gateway/*": `{"limit":"token-bucket:9/s"}`,
		} {
			if code, answer, _ := ask(r, "PUT", "/api/v1/limits/"+path, body); code != 200 {
				t.Errorf("%s: %d %s", path, code, answer)
			}
		}
		if _, err := r.running().assets.Limits.PutString(t.Context(), "tenant.YWNtZQ", "{"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		code, body, header := ask(r, "GET", "/api/v1/limits", "")
		var list struct {
			Limits []struct {
				Scope, Key, Limit, Source, Author, Reason string
				InForce                                   bool `json:"in_force"`
				At                                        *time.Time
			}
			Broken []struct {
				Name, Error string
				Kept        bool
			}
			Keys map[string]int
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 || header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %s", code, body)
		}
		var lines []string
		for _, l := range list.Limits {
			lines = append(lines, fmt.Sprint(l.Scope, " ", l.Key, " ", l.Limit, " ", l.Source, " ", l.InForce, " ", l.Author, " ", l.Reason))
			if (l.At != nil) != (l.Source == "live") {
				t.Errorf("%s %s has the time %v", l.Scope, l.Key, l.At)
			}
		}
		want := []string{
			"gateway * token-bucket:9/s live true admin api ",
			"tenant * token-bucket:6/s live true admin api ",
			"tenant * token-bucket:5/s environment false  ",
			"ip 192.0.2.7 unlimited live true admin api ours",
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		if len(list.Broken) != 1 || list.Broken[0].Name != "tenant.YWNtZQ" || list.Broken[0].Kept || list.Broken[0].Error == "" {
			t.Errorf("broken: %+v", list.Broken)
		}
		if _, ok := list.Keys["tenant"]; !ok {
			t.Errorf("keys: %v", list.Keys)
		}
	})
}

// While the bucket cannot be followed the list and a metric say so; producers are served
// by the limits in force.
func TestABucketThatIsGoneIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		if _, err := r.running().assets.Limits.PutString(t.Context(), "tenant.YWNtZQ", "{"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		tells := func(stale string, broken int) {
			t.Helper()
			_, body, _ := ask(r, "GET", "/api/v1/limits", "")
			var list LimitList
			if err := json.Unmarshal([]byte(body), &list); err != nil || !strings.Contains(list.Stale, stale) || (list.Stale == "") != (stale == "") {
				t.Errorf("%v %s, want stale %q", err, body, stale)
			}
			_, body = get(r, "/metrics")
			for _, line := range []string{fmt.Sprintf("flowgate_limits_stale %v\n", one(stale != "")), fmt.Sprintf("flowgate_limits_broken %d\n", broken)} {
				if !contains(body, line) {
					t.Errorf("the metrics have no %s", line)
				}
			}
			if code, body := get(r, "/readyz"); code != 200 {
				t.Errorf("not ready: %s", body)
			}
		}
		tells("", 1)
		_, js := r.client()
		own, err := jetstream.New(r.running().js.Conn())
		if err != nil {
			t.Fatal(err)
		}
		if err := own.DeleteKeyValue(t.Context(), "FLOWGATE_LIMITS"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		tells("is gone: FLOWGATE_LIMITS", 1)
		if n := passes(r, js, "acme", 3); n != 3 {
			t.Errorf("%d of 3 pass", n)
		}
		if _, err := own.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "FLOWGATE_LIMITS"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		tells("", 0)
	})
}

func TestTheLimitsAPI(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		const good = `{"limit":"token-bucket:1/s"}`
		for _, c := range []struct {
			method, path, body string
			code               int
			says               string
		}{
			// Keys of every kind, as a URL carries them.
			{"PUT", "user/a%2Fb", good, 200, `"key": "a/b"`},
			{"PUT", "user/a%2F%2Fb", good, 200, `"key": "a//b"`},
			{"PUT", "user/%2F", good, 200, `"key": "/"`},
			{"DELETE", "user/%2F", "", 204, ""},
			{"PUT", "user/a/b", good, 200, `"key": "a/b"`},
			{"PUT", "user/", good, 400, "key: is empty"},
			{"PUT", "user/%2E%2E", good, 200, `"key": ".."`},
			{"PUT", "user/gr%C3%B6%C3%9Fe%20%F0%9F%90%9F", good, 200, `"key": "größe 🐟"`},
			{"PUT", "user/100%25%3Fx%23y", good, 200, `"key": "100%?x#y"`},
			{"PUT", "tenant/*", good, 200, `"key": "*"`},
			{"PUT", "tenant/%2A", good, 200, `"key": "*"`},
			{"PUT", "ip/2001:db8::7", good, 200, `"key": "2001:db8::7"`},
			{"PUT", "api_key/ak-0123456789abcdef", good, 200, `ak-0123456789abcdef`},
			{"DELETE", "user/a%2Fb", "", 204, ""},
			{"DELETE", "user/a%2Fb", "", 404, "no such live limit for user a/b"},
			{"DELETE", "tenant/never", "", 404, "no such live limit for tenant never"},
			{"DELETE", "tenant/a.b", "", 400, "not a tenant"},
			// What is wrong.
			{"PUT", "tennant/acme", good, 400, "it accepts gateway, service, tenant"},
			{"PUT", "tenant/a.b", good, 400, "not a tenant"},
			{"PUT", "gateway/x", good, 400, "only the key *"},
			{"PUT", "api_key/geheim", good, 400, "flowgate limits fingerprint"},
			{"PUT", "tenant/acme", `{"limit":"fast"}`, 400, "is not a limit"},
			{"PUT", "tenant/a.b", `{"limit":"fast"}`, 400, "not a tenant"}, // all of it
			{"PUT", "tenant/acme", `{}`, 400, "limit: is missing"},
			{"PUT", "tenant/acme", `{"limit":""}`, 400, "is not a limit"},
			{"PUT", "tenant/acme", `{"limit":null}`, 400, "limit: is missing"},
			{"PUT", "tenant/acme", `{"limt":"token-bucket:1/s"}`, 400, "unknown field"},
			{"PUT", "tenant/acme", `{"limit":"token-bucket:1/s","reason":"a\u0000b"}`, 400, "reason:"},
			{"PUT", "tenant/acme", `{"limit":"token-bucket:1/s"} {}`, 400, "something follows"},
			{"PUT", "tenant/acme", ``, 400, "it is empty"},
			{"PUT", "tenant/acme", `{`, 400, "cannot be read"},
			{"PUT", "tenant/acme", `{"limit":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "over 1048576 bytes"},
			{"PUT", "tenant/acme", good + strings.Repeat(" ", 1<<20), 413, "over 1048576 bytes"},
			{"PUT", "tenant/acme", `{"limit":"token-bucket:1/s","reason":"caf` + "\xe9" + `"}`, 400, "it is not UTF-8"},
			{"PUT", "tenant/acme", `{"limit":5}`, 400, "limit accepts no number"},
			{"PUT", "tenant/acme", `[]`, 400, "it accepts no array"},
			// The whole set.
			{"PUT", "", `{"limits":[{"scope":"user","key":"caf` + "\xe9" + `","limit":"token-bucket:1/s"}]}`, 400, "it is not UTF-8"},
			{"PUT", "", `{"limits":[{"scope":"user","key":5,"limit":"token-bucket:1/s"}]}`, 400, "key accepts no number"},
			{"PUT", "", `{"limits":[]}` + strings.Repeat(" ", 1<<21), 200, `"removed": [`},
			{"PUT", "", `{"limits":[]}` + strings.Repeat(" ", 1<<23), 413, "over 8388608 bytes"},
			{"PUT", "", `{"limits":[{}` + strings.Repeat(",{}", 1_000_000) + `]}`, 400, "it holds 1000002 objects"},
			{"PUT", "", `{"limits":[{}` + strings.Repeat(",{}", 999) + `]}`, 400, "the 900 entries after it were not looked at"},
			{"PUT", "", `{}`, 400, `to delete all, send {\"limits\":[]}`},
			{"PUT", "", `[]`, 400, "cannot be read"},
			{"PUT", "", `{"limits":[{"scope":"tenant","key":"a","limit":"x"},{"scope":"x","key":"a","limit":"token-bucket:1/s"}]}`, 400, `entry 2: scope: there is no`},
			{"PUT", "", `{"limits":[{"scope":"tenant","key":"a","limit":"token-bucket:1/s"},{"scope":"tenant","key":"a","limit":"token-bucket:1/s"}]}`, 400, "stands twice"},
			{"PUT", "", `{"limits":[{"scope":"tenant","key":"a","limit":"token-bucket:1/s"},{"scope":"tenant","key":"*","limit":"token-bucket:1/s"}]}`, 200, `"removed": [`},
			{"PUT", "", `{"limits":[]}`, 200, `"removed": [`},
		} {
			path := "/api/v1/limits"
			if c.path != "" {
				path += "/" + c.path
			}
			code, body, header := ask(r, c.method, path, c.body)
			if code != c.code || !strings.Contains(body, c.says) {
				t.Errorf("%s %s %.100s: %d %.400s\nwant %d %s", c.method, c.path, c.body, code, body, c.code, c.says)
			}
			if strings.Contains(body, "geheim") {
				t.Errorf("a secret is shown: %s", body)
			}
			if code < 300 {
				continue
			}
			var p map[string]any
			if err := json.Unmarshal([]byte(body), &p); err != nil || header.Get("Content-Type") != "application/problem+json" ||
				p["status"] != float64(code) || p["title"] != http.StatusText(code) || p["detail"] == "" {
				t.Errorf("%s %s: no problem: %v %s", c.method, c.path, header, body)
			}
		}
		if n := len(r.running().liveLimits.List()); n != 0 {
			t.Errorf("%d limits are left", n)
		}
	})
}

// Looking changes nothing, whatever the path; other methods are not known.
func TestOnlyPutAndDeleteChangeLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		for _, method := range []string{"GET", "HEAD", "POST", "PATCH", "OPTIONS"} {
			for _, path := range []string{"/api/v1/limits/tenant/acme", "/api/v1/limits"} {
				if path == "/api/v1/limits" && (method == "GET" || method == "HEAD") {
					continue
				}
				if code, _, _ := ask(r, method, path, `{"limit":"token-bucket:1/s"}`); code != 405 {
					t.Errorf("%s %s: %d", method, path, code)
				}
			}
		}
		if n := len(r.running().liveLimits.List()); n != 0 {
			t.Errorf("%d limits", n)
		}
	})
}
