package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// gate is a gateway that serves on free ports.
type gate struct{ nats, admin string }

func serve(t *testing.T, environ ...string) gate {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var out, errs lockedBuffer
	c := cli{environ: append([]string{"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0"}, environ...),
		stdout: &out, stderr: &errs}
	ended := make(chan int, 1)
	go func() { ended <- c.run(ctx, nil) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("the gateway exits with %d\n%s", code, errs.String())
		}
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		for line := range strings.SplitSeq(errs.String(), "\n") {
			var entry struct{ Msg, NATS, Admin string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "ready" {
				return gate{nats: entry.NATS, admin: entry.Admin}
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not ready:\n%s", errs.String())
		}
	}
}

// asked runs a command with something on its standard input.
func asked(t *testing.T, environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := cli{environ: environ, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	return c.run(ctx, args), out.String(), errs.String()
}

// since takes the times out of a table.
var since = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

func TestLimitsFromTheCommandLine(t *testing.T) {
	g := serve(t, "FLOWGATE_LIMIT_TENANT=token-bucket:100/s")
	environ := []string{"USER=ann", "FLOWGATE_ADMIN_LISTEN=" + g.admin, "FLOWGATE_SHAPER_RATE=fast", "FLOWGATE_NO_SUCH=1"}
	step := func(args []string, stdin string, code int, out, errs string) {
		t.Helper()
		c, o, e := asked(t, environ, stdin, args...)
		if c != code || since.ReplaceAllString(o, "<time>") != out || !strings.Contains(e, errs) || errs == "" && e != "" {
			t.Errorf("%q: exit %d, want %d\nstdout\n%s\nwant\n%s\nstderr %s, want %s", args, c, code, o, out, e, errs)
		}
	}
	words := strings.Fields

	step(words("limits list"), "", 0, `SCOPE   KEY  LIMIT               SOURCE       AUTHOR  REASON  SINCE
tenant  *    token-bucket:100/s  environment  -       -       -
`, "")
	step([]string{"limits", "set", "tenant", "acme", "token-bucket:1/h", "--reason=ticket 4711"}, "", 0, "tenant acme is limited to token-bucket:1/h\n", "")

	// It holds when the command has returned.
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
	if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err == nil || !strings.Contains(err.Error(), "tenant acme over token-bucket:1/h") {
		t.Errorf("the second message: %v", err)
	}

	// Flags before, between and after.
	step(words("limits set --author bob gateway token-bucket:5000/s"), "", 0, "gateway * is limited to token-bucket:5000/s\n", "")
	step(words("limits set ip --author=bob 192.0.2.7 unlimited"), "", 0, "ip 192.0.2.7 is limited to unlimited\n", "")
	step([]string{"limits", "set", "user", "a/b ü", "token-bucket:2/s"}, "", 0, "user a/b ü is limited to token-bucket:2/s\n", "")
	step([]string{"limits", "set", "tenant", "*", "token-bucket:50/s"}, "", 0, "tenant * is limited to token-bucket:50/s\n", "")
	step(words("limits list"), "", 0, `SCOPE    KEY        LIMIT                SOURCE                   AUTHOR  REASON       SINCE
gateway  *          token-bucket:5000/s  live                     bob     -            <time>
tenant   *          token-bucket:50/s    live                     ann     -            <time>
tenant   acme       token-bucket:1/h     live                     ann     ticket 4711  <time>
tenant   *          token-bucket:100/s   environment, overridden  -       -            -
user     a/b ü      token-bucket:2/s     live                     ann     -            <time>
ip       192.0.2.7  unlimited            live                     bob     -            <time>
`, "")
	step(words("limits list --scope=ip"), "", 0, `SCOPE  KEY        LIMIT      SOURCE  AUTHOR  REASON  SINCE
ip     192.0.2.7  unlimited  live    bob     -       <time>
`, "")
	step(words("limits delete gateway"), "", 0, "the limit of gateway * is deleted\n", "")
	step([]string{"limits", "delete", "user", "a/b ü"}, "", 0, "the limit of user a/b ü is deleted\n", "")
	step(words("limits delete tenant globex"), "", 1, "", "no such live limit for tenant globex")

	// What is listed as JSON can be applied, and then nothing changes.
	_, listed, _ := asked(t, environ, "", "limits", "list", "--json")
	step(words("limits apply -f -"), listed, 0, `unchanged  tenant  *          token-bucket:50/s
unchanged  tenant  acme       token-bucket:1/h
unchanged  ip      192.0.2.7  unlimited
0 added, 0 changed, 0 removed, 3 unchanged
`, "")
	file := filepath.Join(t.TempDir(), "limits.json")
	if err := os.WriteFile(file, []byte(`[
  {"scope":"tenant","key":"*","limit":"token-bucket:50/s"},
  {"scope":"tenant","key":"acme","limit":"token-bucket:9/s"},
  {"scope":"service","key":"orders","limit":"token-bucket:7/s","author":"eve","reason":"migration"}
]`), 0o600); err != nil {
		t.Fatal(err)
	}
	step([]string{"limits", "apply", "-f", file}, "", 0, `added      service  orders     token-bucket:7/s
changed    tenant   acme       token-bucket:9/s
removed    ip       192.0.2.7  unlimited
unchanged  tenant   *          token-bucket:50/s
1 added, 1 changed, 1 removed, 1 unchanged
`, "")
	step(words("limits list --scope service"), "", 0, `SCOPE    KEY     LIMIT             SOURCE  AUTHOR  REASON     SINCE
service  orders  token-bucket:7/s  live    eve     migration  <time>
`, "")
	for stdin, says := range map[string]string{
		`[{"scope":"tenant","key":"a.b","limit":"token-bucket:1/s"},{"scope":"tenant","key":"x","limit":"fast"}]`: "entry 1: key: \"a.b\" is not a tenant; it is 1 to 64 of A-Z a-z 0-9 _ -, or a glob like free-*\nentry 2: limit: \"fast\" is not a limit",
		`{}`: "to delete all, let it hold []",
		`[{"scope":"tenant","key":"x","limt":"token-bucket:1/s"}]`: "unknown field",
		`[] []`:   "something follows",
		`limits:`: "is not what `flowgate limits list --json` prints",
		"":        "is not what `flowgate limits list --json` prints",
		`[{"scope":"tenant","key":"x","limit":"token-bucket:1/s"},{"scope":"tenant","key":"x","limit":"token-bucket:1/s"}]`: "stands twice",
	} {
		step(words("limits apply -f -"), stdin, 1, "", says)
	}
	step(words("limits apply -f "+file+".none"), "", 1, "", "no such file")
	step(words("limits list --scope=service"), "", 0, `SCOPE    KEY     LIMIT             SOURCE  AUTHOR  REASON     SINCE
service  orders  token-bucket:7/s  live    eve     migration  <time>
`, "")
	step(words("limits apply -f -"), "[]", 0, `removed  service  orders  token-bucket:7/s
removed  tenant   *       token-bucket:50/s
removed  tenant   acme    token-bucket:9/s
0 added, 0 changed, 3 removed, 0 unchanged
`, "")
}

func TestLimitsWithAToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := serve(t, "FLOWGATE_ADMIN_TOKEN_FILE="+file)
	set := []string{"limits", "set", "tenant", "acme", "token-bucket:1/s"}
	for _, c := range []struct {
		environ string
		code    int
		says    string
	}{
		{"FLOWGATE_ADMIN_TOKEN=s3cr3t", 0, ""},
		{"FLOWGATE_ADMIN_TOKEN_FILE=" + file, 0, ""},
		{"", 1, "wants its token; set FLOWGATE_ADMIN_TOKEN"},
		{"FLOWGATE_ADMIN_TOKEN=wr0ng", 1, "has another token than FLOWGATE_ADMIN_TOKEN here"},
		{"FLOWGATE_ADMIN_TOKEN=wr ng", 1, "FLOWGATE_ADMIN_TOKEN: the token must be printable"},
		{"FLOWGATE_ADMIN_TOKEN_FILE=" + file + ".none", 1, "FLOWGATE_ADMIN_TOKEN_FILE: open"},
	} {
		code, out, errs := asked(t, []string{c.environ, "FLOWGATE_ADMIN_LISTEN=" + g.admin}, "", set...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Contains(out+errs, "s3cr3t") || strings.Contains(out+errs, "wr0ng") {
			t.Errorf("%s: exit %d\n%s%s", c.environ, code, out, errs)
		}
	}
	if code, _, errs := asked(t, nil, "", "limits", "list", "--addr="+g.admin); code != 0 {
		t.Errorf("a look without the token: %d %s", code, errs)
	}
}

func TestLimitsWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"limits", 2, "", "limits is followed by one of these:\n  limits list"},
		{"limits lst", 2, "", "limits set <scope> [<key>] <limit>"},
		{"limits --help", 0, "limits apply -f <file>", ""},
		{"help limits", 0, "limits apply -f <file>", ""},
		{"help limits set", 0, "usage: flowgate limits set <scope> [<key>] <limit> [options]\n", ""},
		{"limits apply -h", 0, "for standard input; all or none", ""},
		{"limits list acme", 2, "", `"acme" is not understood after limits list`},
		{"limits list --scope=x", 2, "", `there is no scope "x"`},
		{"limits list --addr=x", 2, "", `--addr: "x" is not an address`},
		{"limits list --addr=:0", 2, "", "port 0"},
		{"limits list --addr=127.0.0.1:99999", 2, "", "is not an address like 127.0.0.1:8081, or a URL"},
		{"limits list --addr=127.0.0.1:8081/", 2, "", "is not an address like 127.0.0.1:8081, or a URL"},
		{"limits list --addr=a/b:8081", 2, "", "is not an address like 127.0.0.1:8081, or a URL"},
		{"limits set user -bob token-bucket:1/s", 2, "", "flag provided but not defined: -bob; what is no option comes after --"},
		{"limits list --addr=http://u:geheim@h", 2, "", "the token comes from FLOWGATE_ADMIN_TOKEN"},
		{"limits set", 2, "", "usage: flowgate limits set"},
		{"limits set tenant token-bucket:1/s", 2, "", "the key is missing; '*' is the rule for every tenant"},
		{"limits set tennant acme token-bucket:1/s", 2, "", `there is no scope "tennant"`},
		{"limits set tenant acme fast", 2, "", `limit: "fast" is not a limit`},
		{"limits set tenant a.b token-bucket:1/s", 2, "", "is not a tenant"},
		{"limits set tenant acme token-bucket:1/s more", 2, "", "is not understood after the key"},
		{"limits set gateway x token-bucket:1/s", 2, "", "only the key *"},
		{"limits set api_key geheim token-bucket:1/s", 2, "", "flowgate limits fingerprint"},
		{"limits delete", 2, "", "the scope is missing"},
		{"limits delete tenant", 2, "", "the key is missing"},
		{"limits delete api_key geheim", 2, "", "flowgate limits fingerprint"},
		{"limits delete tenant -- -x", 1, "", "no gateway answers at http://127.0.0.1:1"},
		{"limits apply", 2, "", "-f is missing"},
		{"limits apply limits.json", 2, "", "the file is named with -f"},
		{"limits set --speed=1 tenant acme token-bucket:1/s", 2, "", "flag provided but not defined: -speed"},
		{"limits list", 1, "", "no gateway answers at http://127.0.0.1:1; start it, or name its admin address with --addr or FLOWGATE_ADMIN_LISTEN"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, out, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=127.0.0.1:1"}, "", strings.Fields(c.args)...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
				t.Errorf("exit %d, want %d\nstdout %s\nstderr %s", code, c.code, out, errs)
			}
			if strings.Contains(out+errs, "geheim") {
				t.Error("a secret is shown")
			}
		})
	}
	if code, _, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=off"}, "", "limits", "list"); code != 1 || !strings.Contains(errs, "--addr") {
		t.Errorf("without an address: %d %s", code, errs)
	}
}

// What answers there may be something else.
func TestLimitsAtAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"a page":            {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "does not answer as a gateway's admin address does"},
		"not found":         {http.NotFound, "404 Not Found; is it a gateway's admin address?"},
		"a redirect":        {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, "302 Found; is it"},
		"a JSON of its own": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"status":"ok"}`)) }, "does not answer as a gateway's admin address does"},
		"a bad proxy":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, "502 Bad Gateway; is it"},
	} {
		s := httptest.NewServer(c.answer)
		for _, command := range []string{"list", "delete tenant acme", "set tenant acme token-bucket:1/s", "apply -f -"} {
			code, out, errs := asked(t, nil, "[]", append(strings.Fields("limits "+command), "--addr", s.URL+"/")...)
			if code != 1 || out != "" || !strings.Contains(errs, c.says) {
				t.Errorf("%s at %s: exit %d %s%s", command, name, code, out, errs)
			}
		}
		s.Close()
	}
}

// What was in the bucket and was no limit goes too, and is named.
func TestApplySaysWhatItCleared(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"added":[],"changed":[],"removed":[],"unchanged":[],"cleared":["tenant.broken"]}`))
	}))
	defer s.Close()
	code, out, errs := asked(t, nil, "[]", "limits", "apply", "-f", "-", "--addr", s.URL)
	if want := "cleared  tenant.broken    it was no limit\n0 added, 0 changed, 0 removed, 0 unchanged\n"; code != 0 || out != want {
		t.Errorf("exit %d %q %s", code, out, errs)
	}
}

// A change that has no answer may be made all the same.
func TestAChangeWithoutAnAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	const says = "the change may be made all the same: `flowgate limits list` shows it"
	for command, want := range map[string]bool{"list": false, "delete tenant acme": true, "set tenant acme token-bucket:1/s": true, "apply -f -": true} {
		code, out, errs := asked(t, nil, "[]", append(strings.Fields("limits "+command), "--addr", s.URL)...)
		if code != 1 || out != "" || strings.Contains(errs, says) != want {
			t.Errorf("%s: exit %d %s%s", command, code, out, errs)
		}
	}
}

// An address to listen on at every interface is reached on this machine.
func TestTheAddressOfAGateway(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8081": "http://127.0.0.1:8081", "0.0.0.0:8081": "http://127.0.0.1:8081", ":8081": "http://127.0.0.1:8081",
		"[::]:8081": "http://[::1]:8081", "[::1]:8081": "http://[::1]:8081", "gate:8081": "http://gate:8081",
		"https://gate.example.org/flowgate/": "https://gate.example.org/flowgate",
	} {
		if got, err := baseURL(addr); got != want || err != nil {
			t.Errorf("%s is reached at %s, %v; want %s", addr, got, err, want)
		}
	}
	g := serve(t)
	_, port, err := net.SplitHostPort(g.admin)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=0.0.0.0:" + port}, "", "limits", "set", "tenant", "acme", "token-bucket:1/s"); code != 0 {
		t.Errorf("%d %s", code, errs)
	}
}

func TestFingerprint(t *testing.T) {
	for _, c := range []struct {
		stdin string
		code  int
		says  string
	}{
		{"abc", 0, "ak-ba7816bf8f01cfea\n"}, {"abc\n", 0, "ak-ba7816bf8f01cfea\n"}, {"abc\r\n", 0, "ak-ba7816bf8f01cfea\n"},
		{"", 1, "one API key"}, {"\n", 1, "one API key"}, {"geheim\ngeheim\n", 1, "one API key"},
	} {
		code, out, errs := asked(t, nil, c.stdin, "limits", "fingerprint")
		if code != c.code || !strings.Contains(out+errs, c.says) || strings.Contains(out+errs, "geheim") {
			t.Errorf("%q: exit %d %s%s", c.stdin, code, out, errs)
		}
	}
}
