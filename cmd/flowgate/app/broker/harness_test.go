package broker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// childDir makes the test binary a gateway's broker on that data directory; see
// TestDataDirectoryInUse.
const childDir = "FLOWGATE_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func testConfig(dir string) Config {
	return Config{
		Name: "flowgate", DataDir: dir, Listen: Off,
		MaxPayload: 1 << 20, Ingress: "ingress", Pressure: "flowgate.pressure",
	}
}

func testTopology() Topology {
	return Topology{
		Stream: "FLOWGATE", DLQStream: "FLOWGATE_DLQ", StateBucket: "FLOWGATE_STATE", Consumer: "shaper",
		Backlog: "flowgate.backlog", DLQ: "flowgate.dlq", Ingress: "ingress",
		MaxMsgs: 20_000, MaxBytes: 1 << 30, DedupWindow: 2 * time.Minute, Replicas: 1,
		DLQMaxBytes: 256 << 20,
	}
}

// start starts a broker and stops it with the test.
func start(t *testing.T, cfg Config) *Broker {
	t.Helper()
	b, err := Start(t.Context(), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// listening starts a broker that clients can reach, on a free port.
func listening(t *testing.T) *Broker {
	t.Helper()
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	return start(t, cfg)
}

// gateway connects as the gateway does.
func gateway(t *testing.T, b *Broker) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := b.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// client connects as a producer does, over TCP.
func client(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	silent := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	nc, err := nats.Connect(url, append([]nats.Option{silent}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// written writes a configuration file.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func externalOptions(t *testing.T, store, config string) *server.Options {
	t.Helper()
	opts, err := server.ProcessConfigFile(written(t, fmt.Sprintf("listen: 127.0.0.1:-1\njetstream { store_dir: %q }\n%s\n", store, config)))
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog, opts.ConfigFile = true, true, ""
	return opts
}

// external starts a nats-server of somebody else's, with the configuration given.
func external(t *testing.T, config string) *server.Server {
	t.Helper()
	s, err := server.NewServer(externalOptions(t, t.TempDir(), config))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the external server is not ready")
	}
	return s
}

// toExternal is a broker that uses s.
func toExternal(t *testing.T, s *server.Server, change func(*Config)) *Broker {
	t.Helper()
	cfg := testConfig(t.TempDir())
	cfg.URL = s.ClientURL()
	if change != nil {
		change(&cfg)
	}
	return start(t, cfg)
}

// ensured is a topology that is there.
func ensured(t *testing.T, js jetstream.JetStream, top Topology) Assets {
	t.Helper()
	a, err := Ensure(t.Context(), js, top)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// soon waits for what another goroutine or the server is about to do.
func soon(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// wantError checks that err says all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error does not say %q:\n%v", w, err)
		}
	}
}
