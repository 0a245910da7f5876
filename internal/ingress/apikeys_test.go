package ingress

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/bubble"
)

// keysFile writes a file of API keys, in one go as an operator should.
func keysFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, text)
	return path
}

func writeKeys(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

const acmeKey, globexKey = "k-acme-3f9a", "k-globex-77b1"

// A key is asked for over HTTP, and over NATS it must be right if there is one. What
// goes further than the door is a fingerprint.
func TestAPIKeys(t *testing.T) {
	path := keysFile(t, "# ours\n"+acmeKey+" acme\n"+globexKey+"\tglobex # theirs\n")
	var log bubble.Log
	w := newWeb(t, func(c *Config, d *Deps, _ *jetstream.StreamConfig) {
		c.APIKeysFile = path
		d.Logger = log.Logger(slog.LevelDebug)
	}).run()
	print := Fingerprint(acmeKey)
	said := "" // all that anyone was told
	for _, c := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"bearer", []string{"Authorization", "Bearer " + acmeKey}, 202},
		{"bearer in lower case", []string{"Authorization", "bearer  " + acmeKey + " "}, 202},
		{"X-Api-Key", []string{"X-Api-Key", acmeKey}, 202},
		{"as over NATS", []string{"Flowgate-Api-Key", acmeKey}, 202},
		{"twice the same", []string{"X-Api-Key", acmeKey, "Authorization", "Bearer " + acmeKey}, 202},
		{"none", nil, 401},
		{"empty", []string{"X-Api-Key", ""}, 401},
		{"another scheme", []string{"Authorization", "Basic " + acmeKey}, 401},
		{"unknown", []string{"X-Api-Key", acmeKey + "x"}, 401},
		{"the beginning of one", []string{"X-Api-Key", acmeKey[:5]}, 401},
		{"another tenant's", []string{"X-Api-Key", globexKey}, 403},
	} {
		w.limits.mu.Lock()
		w.limits.last = Identity{}
		w.limits.mu.Unlock()
		r := w.post("acme/t", "x", c.headers...)
		said += fmt.Sprint(r.header) + r.body
		if r.status != c.status {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
			continue
		}
		detail := map[int]string{401: "no valid API key; send it as Authorization: Bearer <key> or as X-Api-Key", 403: "the API key is not this tenant's"}[c.status]
		if r.Detail != detail || c.status != 202 && r.Reason != "forbidden" {
			t.Errorf("%s: says %q", c.name, r.Detail)
		}
		if got := r.header.Get("WWW-Authenticate"); (got == `Bearer realm="flowgate"`) != (c.status == 401) {
			t.Errorf("%s: WWW-Authenticate is %q", c.name, got)
		}
		if c.status == 202 {
			if got := w.limits.seen().APIKey; got != print {
				t.Errorf("%s: counted for %q, want %q", c.name, got, print)
			}
			said += fmt.Sprint(w.stored(r.Seq).Header)
		} else if w.limits.seen() != (Identity{}) {
			t.Errorf("%s: the limits were asked", c.name)
		}
	}

	js := w.producer()
	for _, c := range []struct {
		name string
		keys nats.Header
		good bool
	}{
		{"none", nil, true},
		{"right", nats.Header{"Flowgate-Api-Key": {acmeKey}}, true},
		{"oddly spelt", nats.Header{"FLOWGATE-api-KEY": {acmeKey}}, true},
		{"unknown", nats.Header{"Flowgate-Api-Key": {"x"}}, false},
		{"unknown, oddly spelt", nats.Header{"flowgate-api-key": {"x"}}, false},
		{"another tenant's", nats.Header{"Flowgate-Api-Key": {globexKey}}, false},
	} {
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "ingress.acme.t", Header: c.keys, Data: []byte("x")})
		if c.good {
			if err != nil {
				t.Fatalf("over NATS, %s: %v", c.name, err)
			}
			said += fmt.Sprint(w.stored(ack.Sequence).Header)
			if got := w.limits.seen().APIKey; (got == print) != (len(c.keys) > 0) {
				t.Errorf("over NATS, %s: counted for %q", c.name, got)
			}
			continue
		}
		if e := wantNAK(t, err, 403, 60403); e.Description != "the API key is not this tenant's" {
			t.Errorf("over NATS, %s: says %q", c.name, e.Description)
		}
		said += err.Error()
	}
	w.rest()
	if n := w.metric("flowgate_ingress_messages_total", "reason", "forbidden"); n != 9 {
		t.Errorf("%v counted as forbidden, want 9", n)
	}
	_ = w.stop()
	_ = w.rig.stop()
	for _, key := range []string{acmeKey, globexKey} {
		if strings.Contains(said, key) || strings.Contains(log.String(), key) {
			t.Errorf("the key %s went beyond the door:\n%s\n%s", key, said, log.String())
		}
	}
}

// Without a file any key passes, and counts.
func TestAPIKeysUnlisted(t *testing.T) {
	w := newWeb(t).run()
	if r := w.post("acme/t", "", "X-Api-Key", "anything"); r.status != 202 || w.limits.seen().APIKey != Fingerprint("anything") {
		t.Errorf("%d %s, counted for %+v", r.status, r.body, w.limits.seen())
	}
	for _, h := range []nats.Header{{"Flowgate-Api-Key": {"a", "b"}}, {"Flowgate-Api-Key": {"a"}, "flowgate-api-key": {"b"}}} {
		_, err := w.producer().PublishMsg(t.Context(), &nats.Msg{Subject: "ingress.acme.t", Header: h})
		wantNAK(t, err, 400, 60400)
	}
}

func TestFingerprint(t *testing.T) {
	// printf %s secret | sha256sum
	if got := Fingerprint("secret"); got != "ak-2bb80d537b1da3e3" {
		t.Error(got)
	}
}

// At the start a file that cannot be used is an error which names the line.
func TestAPIKeysFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       ": no keys",
		"# nothing\n\n":                          ": no keys",
		"k1 acme\n\nk2\n":                        ":3: 1 words",
		"k1 acme k2 globex":                      ":1: 4 words",
		"k1 acme\nk2 a.b":                        `:2: tenant "a.b"`,
		"k1 acme\nk2 " + strings.Repeat("t", 65): ":2: tenant",
		"schlüssel acme":                         ":1: the key has a byte",
		"k1 acme\nk1 acme\nk1 globex\n":          ":3: this key is acme's already",
	} {
		path := keysFile(t, text)
		_, err := openAPIKeys(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), "FLOWGATE_INGRESS_API_KEYS_FILE: "+path+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		} else if strings.Contains(err.Error(), "k1") || strings.Contains(err.Error(), "schl") {
			t.Errorf("%q: the error shows a key: %v", text, err)
		}
	}
	if _, err := openAPIKeys(filepath.Join(t.TempDir(), "none"), nil); err == nil || !strings.Contains(err.Error(), "FLOWGATE_INGRESS_API_KEYS_FILE") {
		t.Errorf("a missing file: %v", err)
	}
	k, err := openAPIKeys(keysFile(t, "\r\n  k1 \t acme \r\n#k2 acme\nk#3 globex#\n"[:len("\r\n  k1 \t acme \r\n#k2 acme\nk#3 globex")]+" #c\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, tenant := range map[string]string{"k1": "acme", "k#3": "globex"} {
		if k.check(key, tenant) != keyGood || k.check(key, "x") != keyOfAnother || k.check(key+" ", tenant) != keyUnknown {
			t.Errorf("%s is not %s's", key, tenant)
		}
	}
	if k.check("#k2", "acme") != keyUnknown || k.check("k2", "acme") != keyUnknown {
		t.Error("a comment is a key")
	}
}

// A changed file is read again; one that is broken or gone leaves the keys as they
// were, says so once, and shows.
func TestAPIKeysReload(t *testing.T) {
	path := keysFile(t, "k1 acme\n")
	synctest.Test(t, func(t *testing.T) {
		var log bubble.Log
		k, err := openAPIKeys(path, log.Logger(slog.LevelInfo))
		if err != nil {
			t.Fatal(err)
		}
		reg := prometheus.NewRegistry()
		k.register(reg)
		r := &rig{t: t, registry: reg}
		go k.watch(t.Context())
		step := func(what, key string, stale float64, errors int) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			for _, candidate := range []string{"k1", "k2", "k3"} {
				if got := k.check(candidate, "acme") == keyGood; got != (candidate == key) {
					t.Errorf("%s: %s is good: %v", what, candidate, got)
				}
			}
			if got := r.metric("flowgate_ingress_api_keys_stale"); got != stale {
				t.Errorf("%s: stale is %v", what, got)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != errors {
				t.Errorf("%s: %d errors logged, want %d:\n%s", what, n, errors, log.String())
			}
		}
		step("at first", "k1", 0, 0)
		writeKeys(t, path, "k2 acme\n")
		step("changed", "k2", 0, 0)
		writeKeys(t, path, "k3\n")
		step("broken", "k2", 1, 1)
		_ = os.Remove(path)
		step("gone", "k2", 1, 2)
		writeKeys(t, path, "k3 acme\n")
		step("mended", "k3", 0, 2)
		if strings.Contains(log.String(), "k3") {
			t.Errorf("the log shows a key:\n%s", log.String())
		}
	})
}

func FuzzAPIKeysFile(f *testing.F) {
	f.Add("k1 acme\n# x\nk2 globex # y\n", "k1", "acme")
	f.Add("k1", "k1", "")
	f.Fuzz(func(t *testing.T, text, key, tenant string) {
		k := &APIKeys{}
		tenants, err := k.parse([]byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), ":") {
				t.Errorf("the error has no line: %v", err)
			}
			return
		}
		k.tenant.Store(&tenants)
		if k.check(key, tenant) == keyGood && (!ValidTenant(tenant) || !strings.Contains(text, key) || !strings.Contains(text, tenant)) {
			t.Errorf("%q is %q's in %q", key, tenant, text)
		}
	})
}
