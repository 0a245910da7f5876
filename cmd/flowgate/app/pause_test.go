package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/bubble"
)

// shown is what the status and the metrics say of the pause.
func shown(r *running) (s Status, metric bool) {
	r.t.Helper()
	code, body, _ := ask(r, "GET", "/api/v1/status", "")
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != 200 {
		r.t.Fatalf("%d %s", code, body)
	}
	if s.Paused != (s.Pause != nil) || s.Paused != contains(body, `"pause":`) {
		r.t.Errorf("paused and not: %s", body)
	}
	_, body = get(r, "/metrics")
	return s, contains(body, "\nflowgate_shaper_paused 1\n") && !contains(body, "\nflowgate_shaper_paused 0\n")
}

// The owner of the database pauses: nothing more reaches it, producers are served until
// the backlog is full and are told when to come again, and afterwards it goes on at its
// pace.
func TestAPausedGateway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		environ := []string{"FLOWGATE_SHAPER_RATE=10/s", "FLOWGATE_BACKPRESSURE_HIGH=20"}
		r := startIn(t, dir, &sink{}, environ...)
		if s, metric := shown(r); s.Paused || metric {
			t.Errorf("paused at the start: %+v", s)
		}
		code, body, header := ask(r, "POST", "/api/v1/pause", `{"reason":"index build","author":"ann","for":"1h"}`)
		var answer PauseAnswer
		if err := json.Unmarshal([]byte(body), &answer); code != 200 || err != nil || !answer.Paused || answer.Was != nil ||
			answer.Pause.Author != "ann" || !answer.Pause.Until.Equal(answer.Pause.Since.Add(time.Hour)) || header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %s", code, body)
		}
		_, js := r.client()
		r.admitted(js, "acme", 20)
		if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err == nil {
			t.Error("admitted at the high watermark")
		} else if code, wait := refusal(err); code != 60503 || wait <= 0 {
			t.Errorf("refused with %d, wait %s", code, wait)
		}
		time.Sleep(10 * time.Minute)
		s, metric := shown(r)
		if !metric || s.Pause == nil || *s.Pause != *answer.Pause || s.DrainSeconds != nil || s.Depth.Waiting != 20 || len(r.sink.log()) != 0 {
			t.Errorf("metric %t, %d deliveries, %+v", metric, len(r.sink.log()), s)
		}
		if code, body := get(r, "/readyz"); code != 200 {
			t.Errorf("a paused gateway is not ready: %s", body)
		}

		// A restart, and whoever takes over, keeps to it.
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r = startIn(t, dir, r.sink, environ...)
		time.Sleep(10 * time.Minute)
		if s, metric := shown(r); !metric || s.Pause == nil || *s.Pause != *answer.Pause || len(r.sink.log()) != 0 {
			t.Errorf("after a restart: metric %t, %d deliveries, %+v", metric, len(r.sink.log()), s)
		}
		began := time.Now()
		if code, body, _ := ask(r, "POST", "/api/v1/resume", `{"author":"bob"}`); code != 200 || !contains(body, `"paused": false`) || !contains(body, `"reason": "index build"`) {
			t.Errorf("%d %s", code, body)
		}
		time.Sleep(3 * time.Second)
		if s, metric := shown(r); s.Paused || metric {
			t.Errorf("paused after resume: %+v", s)
		}
		if n := len(r.sink.log()); n != 20 {
			t.Fatalf("%d of 20 delivered", n)
		}
		for i, at := range r.sink.at {
			if least := time.Duration(i)*100*time.Millisecond - 5*time.Millisecond; at.Sub(began) < least {
				t.Errorf("delivery %d came %s after the end of the pause", i, at.Sub(began))
			}
		}
	})
}

func TestThePauseAPI(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		now := time.Now()
		at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
		for _, c := range []struct {
			path, body string
			code       int
			says       string
		}{
			{"resume", "", 200, `"paused": false`},
			{"pause", "", 200, `"author": "admin api"`},
			{"pause", "{}", 200, `"was": {`},
			{"pause", `{"until":"` + at(time.Hour) + `"}`, 200, `"until": "` + at(time.Hour) + `"`},
			{"pause", `{"until":"` + now.Add(time.Hour).In(time.FixedZone("", 7200)).Format(time.RFC3339) + `"}`, 200, `"until": "` + at(time.Hour) + `"`},
			{"pause", `{"for":"90m"}`, 200, `"until": "` + at(90*time.Minute) + `"`},
			{"resume", `{"reason":"done","author":"ann"}`, 200, `"was": {`},
			{"resume", `{}`, 200, `"paused": false`},
			// What is wrong.
			{"pause", `{"until":"` + at(-time.Hour) + `"}`, 400, "has passed; it is " + at(0)},
			{"pause", `{"until":"` + at(0) + `"}`, 400, "has passed"},
			{"pause", `{"until":"tomorrow"}`, 400, `is not a time like`},
			{"pause", `{"until":"10000-01-01T00:00:00Z"}`, 400, `is not a time like`},
			{"pause", `{"for":"10"}`, 400, "for:"},
			{"pause", `{"for":"-1m"}`, 400, "for:"},
			{"pause", `{"for":"0s"}`, 400, "for: 0s is not longer than nothing"},
			{"pause", `{"for":10}`, 400, "for accepts no number"},
			{"pause", `{"for":"10m","until":"` + at(time.Hour) + `"}`, 400, "for and until: one of them"},
			{"pause", `{"for":"10m","reason":"a\nb"}`, 400, "reason:"},
			{"pause", `{"author":"` + strings.Repeat("x", 101) + `"}`, 400, "author: 101 bytes"},
			{"pause", `{"untill":"x"}`, 400, "unknown field"},
			{"pause", `{`, 400, "ends too early"},
			{"pause", `[]`, 400, "accepts no array"},
			{"pause", `{}` + strings.Repeat(" ", 1<<20), 413, "over 1048576 bytes"},
			{"resume", `{"for":"10m"}`, 400, "unknown field"},
			{"resume", `{"author":"a\u0000b"}`, 400, "author:"},
		} {
			code, body, header := ask(r, "POST", "/api/v1/"+c.path, c.body)
			if code != c.code || !contains(body, c.says) {
				t.Errorf("%s %.60s: %d %.300s\nwant %d %s", c.path, c.body, code, body, c.code, c.says)
			}
			if code >= 300 && header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %.60s: no problem: %v", c.path, c.body, header)
			}
		}
		if s, _ := shown(r); s.Paused {
			t.Errorf("what is wrong paused: %+v", s.Pause)
		}
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			for _, path := range []string{"pause", "resume"} {
				if code, _, _ := ask(r, method, "/api/v1/"+path, ""); code != 405 {
					t.Errorf("%s %s: %d", method, path, code)
				}
			}
		}
	})
}

// What cannot be read pauses: no delivery at all rather than one that was not to be.
func TestAStoredPauseThatCannotBeReadIsShown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		if _, err := r.running().assets.State.PutString(t.Context(), "pause", "yes"); err != nil {
			t.Fatal(err)
		}
		_, js := r.client()
		time.Sleep(time.Second)
		r.admitted(js, "acme", 3)
		time.Sleep(time.Minute)
		if s, metric := shown(r); !metric || s.Pause == nil || !contains(s.Pause.Reason, "cannot be read; resume removes it") || len(r.sink.log()) != 0 {
			t.Errorf("metric %t, %d deliveries, %+v", metric, len(r.sink.log()), s.Pause)
		}
		if code, body, _ := ask(r, "POST", "/api/v1/resume", ""); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		time.Sleep(time.Second)
		if n := len(r.sink.log()); n != 3 {
			t.Errorf("%d of 3 delivered", n)
		}
	})
}

// Over NATS the account's permissions say who may; a token, if there is one, is asked
// for all the same.
func TestPauseOverNATS(t *testing.T) {
	for _, token := range []string{"", "s3cr3t"} {
		t.Run("token "+token, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var environ []string
				if token != "" {
					environ = []string{"FLOWGATE_ADMIN_TOKEN=" + token}
				}
				r := start(t, environ...)
				nc := r.running().js.Conn()
				request := func(name, body, token string) (code string, said string) {
					t.Helper()
					m := &nats.Msg{Subject: "flowgate.admin." + name, Data: []byte(body), Header: nats.Header{}}
					if token != "" {
						m.Header.Set(TokenHeader, token)
					}
					answer, err := nc.RequestMsg(m, 5*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					said = answer.Header.Get("Nats-Service-Error") + string(answer.Data)
					if contains(said, "s3cr3t") {
						t.Errorf("the token is shown: %s", said)
					}
					return answer.Header.Get("Nats-Service-Error-Code"), said
				}
				if token != "" {
					for _, wrong := range []string{"", "s3cr3", "s3cr3x"} {
						for _, name := range []string{"pause", "resume"} {
							if code, said := request(name, "", wrong); code != "401" || !contains(said, "Flowgate-Admin-Token") {
								t.Errorf("%s with %q: %s %s", name, wrong, code, said)
							}
						}
					}
					if s, _ := shown(r); s.Paused {
						t.Error("paused without the token")
					}
				}
				for _, c := range []struct{ name, body, code, says string }{
					{"resume", "", "", `"paused":false`},
					{"pause", `{"reason":"night","for":"1h"}`, "", `"author":"nats"`},
					{"pause", `{"for":"1"}`, "400", "for:"},
					{"pause", `{`, "400", "cannot be read"},
					{"status", "", "", `"reason":"night"`},
					{"resume", "", "", `"reason":"night"`},
					{"resume", `{"author":"a\nb"}`, "400", "author:"},
				} {
					if code, said := request(c.name, c.body, token); code != c.code || !contains(said, c.says) {
						t.Errorf("%s %s: %s %s", c.name, c.body, code, said)
					}
				}
				// A client of the embedded server may not: nobody hears it.
				producer, _ := r.client()
				m := &nats.Msg{Subject: "flowgate.admin.pause", Header: nats.Header{TokenHeader: {token}}}
				if answer, err := producer.RequestMsg(m, time.Second); err == nil {
					t.Errorf("a producer paused: %s", answer.Data)
				}
				if s, _ := shown(r); s.Paused {
					t.Error("paused by a producer")
				}
			})
		})
	}
}

// When a pause ends, by the ways to say it.
func TestAPauseByItsForm(t *testing.T) {
	now := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		body PauseBody
		want string
	}{
		{PauseBody{}, "0001-01-01T00:00:00Z"},
		{PauseBody{For: "10m"}, "2026-03-01T06:10:00Z"},
		{PauseBody{Until: "2026-03-01T08:00:00+01:00"}, "2026-03-01T07:00:00Z"},
	} {
		p, err := c.body.Pause(now)
		if got := fmt.Sprint(p.Until.Format(time.RFC3339), err); got != c.want+"<nil>" {
			t.Errorf("%+v: %s, want %s", c.body, got, c.want)
		}
	}
}
