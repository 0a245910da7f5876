package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flowgate/flowgate/internal/bubble"
)

// weights is what the outlet shares the rate by.
func weights(r *running) string {
	synctest.Wait()
	return r.running().shaper.Weights().String()
}

// A weight holds when it is answered, before the environment's, for this life and the
// next; a set of limits leaves it alone.
func TestAWeightThatChangesWhileItRuns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		const configured = "FLOWGATE_SHAPER_WEIGHTS=acme=5,globex=2"
		r := startIn(t, dir, &sink{}, configured)
		holds := func(want string) {
			t.Helper()
			if got := weights(r); got != want {
				t.Errorf("in force is %s, want %s", got, want)
			}
		}
		change := func(method, path, body string) {
			t.Helper()
			if code, answer, _ := ask(r, method, "/api/v1/"+path, body); code >= 300 {
				t.Errorf("%s %s: %d %s", method, path, code, answer)
			}
		}
		holds("acme=5,globex=2")
		change("PUT", "weights/acme", `{"weight":9,"reason":"ticket 4711","author":"ann"}`)
		if got := r.running().shaper.Weights().String(); got != "acme=9,globex=2" {
			t.Errorf("when it is answered %s is in force", got)
		}
		change("PUT", "weights/new", `{"weight":3}`)
		change("PUT", "limits/tenant/acme", `{"limit":"token-bucket:1/s"}`)
		change("PUT", "limits", `{"limits":[]}`)
		holds("acme=9,globex=2,new=3")
		if _, body, _ := ask(r, "GET", "/api/v1/limits", ""); contains(body, "weight") {
			t.Errorf("weights among the limits: %s", body)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r = startIn(t, dir, &sink{}, configured)
		holds("acme=9,globex=2,new=3")
		change("DELETE", "weights/acme", "")
		change("DELETE", "weights/new", "")
		holds("acme=5,globex=2")
	})
}

// What others write to the bucket is in force at once, and what is none changes
// nothing and is listed.
func TestWeightsOfTheBucket(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHAPER_WEIGHTS=acme=5")
		bucket := r.running().assets.Limits
		for name, value := range map[string]string{
			"weight.YWNtZQ":   `{"weight":7,"author":"ann","reason":"by hand"}`, // acme
			"weight.Z2xvYmV4": `{"weight":0}`,                                   // globex
			"weight.****":     `{"weight":1}`,
		} {
			if _, err := bucket.PutString(t.Context(), strings.ReplaceAll(name, "*", "_"), value); err != nil {
				t.Fatal(err)
			}
		}
		if got := weights(r); got != "acme=7" {
			t.Errorf("in force is %s", got)
		}
		if _, err := bucket.PutString(t.Context(), "weight.YWNtZQ", `{"weight":"many"}`); err != nil {
			t.Fatal(err)
		}
		if got := weights(r); got != "acme=7" {
			t.Errorf("after a broken one %s is in force", got)
		}
		code, body, _ := ask(r, "GET", "/api/v1/weights", "")
		var list WeightList
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 {
			t.Fatalf("%d %s", code, body)
		}
		var lines []string
		for _, w := range list.Weights {
			lines = append(lines, fmt.Sprint(w.Tenant, " ", w.Weight, " ", w.Source, " ", w.InForce, " ", w.Author, " ", w.Reason, " ", !w.At.IsZero()))
		}
		if got, want := strings.Join(lines, "\n"), "acme 7 live true ann by hand true\nacme 5 environment false   false"; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		var broken []string
		for _, b := range list.Broken {
			broken = append(broken, fmt.Sprint(b.Name, " ", b.Kept, " ", b.Error != ""))
		}
		if got, want := strings.Join(broken, "\n"), "weight.YWNtZQ true true\nweight.Z2xvYmV4 false true\nweight.____ false true"; got != want {
			t.Errorf("broken:\n%s\nwant\n%s", got, want)
		}
		_, metrics := get(r, "/metrics")
		for _, line := range []string{"\nflowgate_shaper_weights_broken 3\n", "\nflowgate_limits_broken 0\n"} {
			if !contains(metrics, line) {
				t.Errorf("the metrics have no %s", line)
			}
		}
	})
}

func TestTheWeightsAPI(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		for _, c := range []struct {
			method, path, body string
			code               int
			says               string
		}{
			{"PUT", "acme", `{"weight":1000,"reason":"big"}`, 200, `"author": "admin api"`},
			{"GET", "", "", 200, `"reason": "big"`},
			{"DELETE", "acme", "", 204, ""},
			{"DELETE", "acme", "", 404, "no such live weight for tenant acme"},
			{"DELETE", "a.b", "", 400, "is no tenant"},
			{"PUT", "acme", `{"weight":0}`, 400, "must be 1 to 1000"},
			{"PUT", "acme", `{"weight":1001}`, 400, "must be 1 to 1000"},
			{"PUT", "acme", `{"weight":-1}`, 400, "weight accepts no number"},
			{"PUT", "acme", `{"weight":1.5}`, 400, "weight accepts no number"},
			{"PUT", "acme", `{"weight":"5"}`, 400, "weight accepts no string"},
			{"PUT", "acme", `{}`, 400, "weight: is missing"},
			{"PUT", "acme", ``, 400, "it is empty"},
			{"PUT", "acme", `{"wieght":1}`, 400, "unknown field"},
			{"PUT", "acme", `{"weight":1,"reason":"a\nb"}`, 400, "reason:"},
			{"PUT", "a.b", `{"weight":1}`, 400, "is no tenant"},
			{"PUT", "free-*", `{"weight":1}`, 400, "is no tenant"},
			{"PUT", strings.Repeat("x", 65), `{"weight":1}`, 400, "is no tenant"},
			{"POST", "acme", `{"weight":1}`, 405, ""},
			{"GET", "", "", 200, `"weights": []`},
		} {
			path := "/api/v1/weights"
			if c.path != "" {
				path += "/" + c.path
			}
			code, body, header := ask(r, c.method, path, c.body)
			if code != c.code || !contains(body, c.says) {
				t.Errorf("%s %s %s: %d %s\nwant %d %s", c.method, c.path, c.body, code, body, c.code, c.says)
			}
			if code >= 300 && code != http.StatusMethodNotAllowed && header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: no problem: %v", c.method, c.path, header)
			}
		}
	})
}
