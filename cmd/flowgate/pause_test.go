package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

// statusOf asks the gateway, as a page does.
func statusOf(t *testing.T, g gate) (s app.Status) {
	t.Helper()
	answer, err := http.Get("http://" + g.admin + "/api/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPauseFromTheCommandLine(t *testing.T) {
	g := serve(t)
	environ := []string{"USER=ann", "FLOWGATE_ADMIN_LISTEN=" + g.admin}
	step := func(out string, args ...string) {
		t.Helper()
		c, o, e := asked(t, environ, "", args...)
		if c != 0 || !regexp.MustCompile("^"+out+"\n$").MatchString(o) || e != "" {
			t.Errorf("%q: exit %d\nstdout %s\nwant %s\nstderr %s", args, c, o, out, e)
		}
	}
	const at = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`
	step("deliveries were not paused", "resume")
	step("deliveries are paused until `flowgate resume`", "pause", "--reason=index build")
	nc, err := nats.Connect(g.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err != nil {
		t.Error(err)
	}
	if s := statusOf(t, g); !s.Paused || s.Pause == nil || s.Pause.Author != "ann" || s.Pause.Reason != "index build" || !s.Pause.Until.IsZero() {
		t.Errorf("%+v", s)
	}
	step("deliveries are paused until 2999-01-01T00:00:00Z; they were already, since "+at, "pause", "--until", "2999-01-01T01:00:00+01:00", "--author=bob")
	step("deliveries are paused until "+at+"; they were already, since "+at, "pause", "--for=10h", "--author=bob", "--reason=disk")
	if s := statusOf(t, g); !s.Paused || s.Pause.Author != "bob" || time.Until(s.Pause.Until) > 10*time.Hour || s.Depth.Total != 1 {
		t.Errorf("%+v", s)
	}
	step("deliveries go on; they were paused since "+at+" by bob: disk", "resume", "--reason=done")
	step("deliveries were not paused", "resume")
	for end := time.Now().Add(20 * time.Second); statusOf(t, g).Depth.Total != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not delivered after the pause: %+v", statusOf(t, g))
		}
	}
}

func TestPauseWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"pause now", 2, `"now" is not understood after pause`},
		{"pause --for=10", 2, "for:"},
		{"pause --for=-1m", 2, "for:"},
		{"pause --for=1m --until=2999-01-01T00:00:00Z", 2, "one of them says when"},
		{"pause --until=tomorrow", 2, `until: "tomorrow" is not a time like 2026-03-01T06:00:00Z`},
		{"pause --reason=" + strings.Repeat("x", 501), 2, "reason: 501 bytes"},
		{"pause --author=\x01", 2, "author:"},
		{"pause --addr=x", 2, "is not an address"},
		{"pause", 1, "no gateway answers at http://127.0.0.1:1"},
		{"resume --for=1m", 2, "flag provided but not defined: -for"},
		{"resume --author=\x01", 2, "author:"},
		{"resume", 1, "no gateway answers at http://127.0.0.1:1"},
		{"weights", 2, "weights is followed by one of these:"},
		{"weights list acme", 2, `"acme" is not understood`},
		{"weights set acme", 2, "a tenant and its weight are needed"},
		{"weights set acme 1 2", 2, "a tenant and its weight are needed"},
		{"weights set acme heavy", 2, `weight: "heavy" is not a whole number`},
		{"weights set acme 0", 2, "must be 1 to 1000"},
		{"weights set acme 1001", 2, "must be 1 to 1000"},
		{"weights set a.b 1", 2, "is no tenant"},
		{"weights delete", 2, "one tenant is needed"},
		{"weights delete free-*", 2, "is no tenant"},
		{"weights delete -- -x", 1, "no gateway answers at http://127.0.0.1:1"},
	} {
		code, out, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=127.0.0.1:1"}, "", strings.Fields(c.args)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%.60s: exit %d, want %d\n%s%s\nwant %s", c.args, code, c.code, out, errs, c.says)
		}
	}
	for _, help := range []string{"pause -h", "help pause", "resume --help", "help weights set", "weights --help"} {
		if code, out, errs := asked(t, nil, "", strings.Fields(help)...); code != 0 || !strings.Contains(out, "[options]") || errs != "" {
			t.Errorf("%s: exit %d %s%s", help, code, out, errs)
		}
	}
}

// What answers there may be something else, or nothing.
func TestPauseAtAnotherServer(t *testing.T) {
	commands := []string{"pause", "resume", "weights list", "weights set acme 2", "weights delete acme"}
	for name, answer := range map[string]string{"a page": "<html>", "a JSON of its own": `{"status":"ok"}`, "the other's": `{"paused":true}`, "neither": `{"paused":false,"pause":{}}`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		for _, command := range commands {
			code, out, errs := asked(t, nil, "", append(strings.Fields(command), "--addr", s.URL)...)
			if code != 1 || out != "" || !strings.Contains(errs, "does not answer as a gateway's admin address does") {
				t.Errorf("%s at %s: exit %d %s%s", command, name, code, out, errs)
			}
		}
		s.Close()
	}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	for _, command := range commands {
		says := "the change may be made all the same: `flowgate weights list` shows it"
		if !strings.HasPrefix(command, "weights") {
			says = "the change may be made all the same: doing it again is safe"
		}
		_, _, errs := asked(t, nil, "", append(strings.Fields(command), "--addr", s.URL)...)
		if strings.Contains(errs, says) == (command == "weights list") {
			t.Errorf("%s without an answer: %s", command, errs)
		}
	}
}

func TestPauseWithAToken(t *testing.T) {
	g := serve(t, "FLOWGATE_ADMIN_TOKEN=s3cr3t")
	for _, command := range []string{"pause", "weights set acme 2", "weights delete acme", "resume"} {
		for environ, want := range map[string]int{"FLOWGATE_ADMIN_TOKEN=s3cr3t": 0, "FLOWGATE_ADMIN_TOKEN=wr0ng": 1, "": 1} {
			code, out, errs := asked(t, []string{environ, "FLOWGATE_ADMIN_LISTEN=" + g.admin}, "", strings.Fields(command)...)
			if code != want || strings.Contains(out+errs, "s3cr3t") || want == 1 && !strings.Contains(errs, "FLOWGATE_ADMIN_TOKEN") {
				t.Errorf("%s with %q: exit %d %s%s", command, environ, code, out, errs)
			}
		}
	}
}

func TestWeightsFromTheCommandLine(t *testing.T) {
	g := serve(t, "FLOWGATE_SHAPER_WEIGHTS=acme=5,globex=2")
	environ := []string{"USER=ann", "FLOWGATE_ADMIN_LISTEN=" + g.admin}
	step := func(args []string, code int, out, errs string) {
		t.Helper()
		c, o, e := asked(t, environ, "", args...)
		if c != code || since.ReplaceAllString(o, "<time>") != out || !strings.Contains(e, errs) || errs == "" && e != "" {
			t.Errorf("%q: exit %d, want %d\nstdout\n%s\nwant\n%s\nstderr %s, want %s", args, c, code, o, out, e, errs)
		}
	}
	words := strings.Fields
	step([]string{"weights", "set", "acme", "9", "--reason=ticket 4711"}, 0, "tenant acme has the weight 9\n", "")
	step(words("weights set --author=bob new 3"), 0, "tenant new has the weight 3\n", "")
	step(words("weights list"), 0, `TENANT  WEIGHT  SOURCE                   AUTHOR  REASON       SINCE
acme    9       live                     ann     ticket 4711  <time>
acme    5       environment, overridden  -       -            -
globex  2       environment              -       -            -
new     3       live                     bob     -            <time>
`, "")
	step(words("limits list --scope=ip"), 0, "SCOPE  KEY  LIMIT  SOURCE  AUTHOR  REASON  SINCE\n", "")
	step(words("limits apply -f /dev/null"), 1, "", "is not what")
	step(words("weights delete acme"), 0, "the weight of tenant acme is deleted\n", "")
	step(words("weights delete acme"), 1, "", "no such live weight for tenant acme")
	_, listed, _ := asked(t, environ, "", "weights", "list", "--json")
	var list app.WeightList
	if err := json.Unmarshal([]byte(listed), &list); err != nil || len(list.Weights) != 3 || !list.Weights[0].InForce || list.Weights[0].Weight != 5 {
		t.Errorf("%v %s", err, listed)
	}
}
