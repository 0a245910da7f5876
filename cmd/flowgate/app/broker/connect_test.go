package broker

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/bubble"
)

func TestNewEnough(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.14.0": true, "2.14.0-RC.2": true, "2.15.3": true, "2.100.0": true, "3.0.0": true, "10.1.0": true,
		"2.13.9": false, "2.12.4": false, "2.9.25": false, "2.1.4": false, "1.14.0": false, "1.99.99": false,
		"": false, "2": false, "2.x.1": false, "nightly": false,
	} {
		err := newEnough(version)
		if (err == nil) != ok {
			t.Errorf("%q: %v, want new enough: %v", version, err, ok)
		}
		if err != nil && (!strings.Contains(err.Error(), `"`+version+`"`) || !strings.Contains(err.Error(), "2.14")) {
			t.Errorf("it does not tell both versions: %v", err)
		}
	}
}

// oldServer says it has that version, and otherwise no more than a client needs to
// connect. The channel is closed when a client has left.
func oldServer(t *testing.T, version string) (url string, left <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	gone := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "INFO {\"server_id\":\"old\",\"version\":%q,\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n", version)
		for in := bufio.NewScanner(c); in.Scan(); {
			if in.Text() == "PING" {
				fmt.Fprint(c, "PONG\r\n")
			}
		}
		close(gone)
	}()
	return "nats://" + l.Addr().String(), gone
}

func TestAnOldServerIsRefused(t *testing.T) {
	cfg := testConfig(t.TempDir())
	var left <-chan struct{}
	cfg.URL, left = oldServer(t, "2.12.4")
	_, err := start(t, cfg).Connect("test")
	wantError(t, err, cfg.URL, `"2.12.4"`, "2.14", "FLOWGATE_NATS_URL")
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Error("the connection to it was left open")
	}
}

func TestNoServer(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.URL = "nats://gate:s3cret@127.0.0.1:1"
	b := start(t, cfg)
	if got := b.ClientURL(); got != "nats://127.0.0.1:1" {
		t.Errorf("producers are told %q", got)
	}
	_, err := b.Connect("test")
	wantError(t, err, "NATS", "127.0.0.1:1")
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows the password: %v", err)
	}
}

func TestNothingShowsPasswords(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"nats://127.0.0.1:4222", "nats://127.0.0.1:4222"},
		{"127.0.0.1:4222", "nats://127.0.0.1:4222"},
		{"nats://gate:s3cret@a:4222", "nats://a:4222"},
		{"nats://s3cret@a:4222", "nats://a:4222"}, // a token
		{"gate:s3cret@a:4222", "nats://a:4222"},
		{"tls://gate:s3@cret@a:4222", "tls://a:4222"},
		{"nats://gate:s3cret@a:1, nats://gate:s3cret@b:2", "nats://a:1,nats://b:2"},
		{"nats://gate:s3cret/x@a:4222", "(a URL that does not parse)"},
		{"nats://gate:%s3cret@a:4222", "(a URL that does not parse)"},
		{"nats://gate:s3 cret@a:4222", "(a URL that does not parse)"},
		// These parse, as a host called gate.
		{"nats://gate:77/s3cret@a:4222", "(a URL that does not parse)"},
		{"nats://gate:77#s3cret@a:4222", "(a URL that does not parse)"},
		{"nats://gate:77?s3cret@a:4222", "(a URL that does not parse)"},
	} {
		if got := redact(tc.url); got != tc.want {
			t.Errorf("%s is shown as %s, want %s", tc.url, got, tc.want)
		}
	}
	for _, url := range []string{
		"nats://gate:s3cret/x@127.0.0.1:1", "nats://gate:%s3cret@127.0.0.1:1", "nats://gate:s3 cret@127.0.0.1:1",
		"nats://gate:s3cret@127.0.0.1:port",
	} {
		cfg := testConfig(t.TempDir())
		cfg.URL = url
		_, err := start(t, cfg).Connect("test")
		wantError(t, err, "FLOWGATE_NATS_URL", "parse")
		for _, part := range []string{"s3", "cret"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error shows of the password %q: %v", url, part, err)
			}
		}
	}
}

func TestTheLogShowsNoToken(t *testing.T) {
	s := external(t, `authorization { token: "s3cret" }`)
	var log bubble.Log
	cfg := testConfig(t.TempDir())
	cfg.URL = strings.Replace(s.ClientURL(), "nats://", "nats://s3cret@", 1)
	b, err := Start(t.Context(), cfg, log.Logger(slog.LevelDebug))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	nc, _ := gateway(t, b)
	id, err := nc.GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DisconnectClientByID(id); err != nil {
		t.Fatal(err)
	}
	soon(t, "the log tells of the new connection", func() bool { return strings.Contains(log.String(), "reconnected to NATS") })
	if text := log.String(); !strings.Contains(text, "connection=test") || !strings.Contains(text, s.Addr().String()) {
		t.Errorf("the log does not tell which connection, and where to:\n%s", text)
	}
	var found strings.Builder
	for _, f := range b.CheckOnline(t.Context(), testTopology()) {
		fmt.Fprintln(&found, f.Name, f.Detail, f.Err, f.Fix)
	}
	for what, text := range map[string]string{"the log": log.String(), "check": found.String()} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s shows the token:\n%s", what, text)
		}
	}
}

func TestSigningIn(t *testing.T) {
	s := external(t, `authorization { user: gate, password: "s3cret" }`)
	for _, tc := range []struct {
		name, user, password string
		ok                   bool
	}{
		{"as the right user", "gate", "s3cret", true},
		{"as nobody", "", "", false},
		{"with another password", "gate", "w0rd", false},
	} {
		_, err := toExternal(t, s, func(c *Config) { c.User, c.Password = tc.user, tc.password }).Connect("test")
		if tc.ok && err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if !tc.ok {
			wantError(t, err, s.ClientURL(), "FLOWGATE_NATS_USER", "FLOWGATE_NATS_PASSWORD")
			if err != nil && (strings.Contains(err.Error(), "w0rd") || strings.Contains(err.Error(), "FLOWGATE_NATS_CONFIG")) {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
	}
}

// An operator who changes a password by mistake and puts it back finds the gateway
// still there; the client library gives up at the second refusal by default.
func TestRightsThatComeBack(t *testing.T) {
	store := t.TempDir()
	users := func(password string) *server.Options {
		return externalOptions(t, store, `authorization { user: gate, password: "`+password+`" }`)
	}
	s, err := server.NewServer(users("s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	var log bubble.Log
	cfg := testConfig(t.TempDir())
	cfg.URL, cfg.User, cfg.Password = s.ClientURL(), "gate", "s3cret"
	b, err := Start(t.Context(), cfg, log.Logger(slog.LevelDebug))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	nc, _ := gateway(t, b)
	if err := s.ReloadOptions(users("changed")); err != nil {
		t.Fatal(err)
	}
	soon(t, "three refusals", func() bool { return strings.Count(log.String(), "authorization violation") > 2 })
	if err := nc.Publish("ingress.acme.orders", nil); err == nil {
		t.Error("what is published while the connection is down is kept for later, and its producer waits")
	}
	if err := s.ReloadOptions(users("s3cret")); err != nil {
		t.Fatal(err)
	}
	soon(t, "connected again", func() bool { return nc.Status() == nats.CONNECTED && nc.Flush() == nil })
}

func TestPayload(t *testing.T) {
	for _, tc := range []struct {
		server           string
		configured, want int
	}{
		{"max_payload: 4MB", 1 << 20, 1 << 20},
		{"max_payload: 1MB", 1 << 20, 1<<20 - 4<<10}, // the server's limit counts our headers
		{"max_payload: 1MB", 1000, 1000},
		{"max_payload: 5000", 1 << 20, 5000 - 4<<10},
	} {
		b := toExternal(t, external(t, tc.server), func(c *Config) { c.MaxPayload = tc.configured })
		nc, _ := gateway(t, b)
		if got := b.Payload(nc); got != tc.want {
			t.Errorf("%s, configured %d: producers may send %d, want %d", tc.server, tc.configured, got, tc.want)
		}
	}
	embedded := start(t, testConfig(t.TempDir()))
	nc, _ := gateway(t, embedded)
	if got := embedded.Payload(nc); got != 1<<20 {
		t.Errorf("the embedded server leaves %d bytes of the configured %d", got, 1<<20)
	}
}

// A connection that its user closed is not kept, or one that is opened anew each
// minute would fill the memory.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	b := start(t, testConfig(t.TempDir()))
	for range 20 {
		nc, _ := gateway(t, b)
		nc.Close()
	}
	soon(t, "all are forgotten", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.opened) == 0 })
}
