package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/descriptors"
)

// Clients cannot take what the store needs to open its files.
func TestConnectionsAreBounded(t *testing.T) {
	cfg := testConfig(t.TempDir())
	opts, _, err := cfg.options()
	if err != nil {
		t.Fatal(err)
	}
	if opts.MaxConn != descriptors.Share(2) {
		t.Errorf("%d connections, want %d", opts.MaxConn, descriptors.Share(2))
	}
	cfg.ConfigFile = filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(cfg.ConfigFile, []byte("max_connections: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if opts, _, err = cfg.options(); err != nil || opts.MaxConn != 7 {
		t.Errorf("%d connections, want the file's: %v", opts.MaxConn, err)
	}
}

func TestConfigurationFile(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nats.conf")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("its users sign in, the gateway among them", func(t *testing.T) {
		write(fmt.Sprintf(`
			listen: 127.0.0.1:-1
			jetstream { store_dir: %q }
			accounts {
			  GW { jetstream: enabled, users: [ { user: gate, password: "s3cret" } ] }
			  $SYS { users: [ { user: admin, password: "adm1n" } ] }
			}`, elsewhere))
		cfg := testConfig(t.TempDir())
		cfg.ConfigFile = conf
		b := start(t, cfg)
		began := time.Now()
		_, err := b.Connect("test")
		wantError(t, err, "FLOWGATE_NATS_CONFIG", "FLOWGATE_NATS_USER")
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("the server's own words are lost: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}

		cfg.DataDir = t.TempDir()
		cfg.User, cfg.Password = "gate", "s3cret"
		b = start(t, cfg)
		_, js := gateway(t, b)
		if _, err := Ensure(t.Context(), js, testTopology()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(cfg.DataDir, "jetstream")); err != nil {
			t.Errorf("the store is not in the data directory: %v", err)
		}
		if _, err := os.Stat(elsewhere); err == nil {
			t.Error("the file's store directory was used")
		}
		if nc, err := nats.Connect(b.ClientURL()); err == nil {
			nc.Close()
			t.Error("a client without a user got in")
		}
	})
	t.Run("without users the connection is taken as it is", func(t *testing.T) {
		write("listen: 127.0.0.1:-1\nserver_name: mine\nmax_payload: 64KB")
		cfg := testConfig(t.TempDir())
		cfg.ConfigFile = conf
		b := start(t, cfg)
		nc, js := gateway(t, b)
		if _, err := Ensure(t.Context(), js, testTopology()); err != nil {
			t.Fatal(err)
		}
		if nc.ConnectedServerName() != "mine" {
			t.Errorf("server name %q", nc.ConnectedServerName())
		}
		if got := b.Payload(nc); got != 60<<10 {
			t.Errorf("producers may send %d bytes of the file's 65536", got)
		}
		if !b.Embedded() {
			t.Error("a server alone is not embedded")
		}
	})
	t.Run("what it does not say comes from the variables", func(t *testing.T) {
		write("server_name: mine")
		cfg := testConfig(t.TempDir())
		cfg.ConfigFile, cfg.Listen = conf, "127.0.0.1:0"
		b := start(t, cfg)
		if url := b.ClientURL(); !strings.HasPrefix(url, "nats://127.0.0.1:") || strings.HasSuffix(url, ":4222") {
			t.Errorf("it listens at %s", url)
		}
		if b.opts.SyncInterval != 100*time.Millisecond {
			t.Errorf("sync interval %s", b.opts.SyncInterval)
		}
	})
	t.Run("a cluster is not this process's alone", func(t *testing.T) {
		write("listen: 127.0.0.1:-1\nserver_name: one\ncluster { name: c, listen: 127.0.0.1:-1, routes: [nats://127.0.0.1:1] }")
		cfg := testConfig(t.TempDir())
		cfg.ConfigFile = conf
		b, err := Start(t.Context(), cfg, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if b.Embedded() {
			t.Error("a member of a cluster would take the lease of another member at once")
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSync(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		always bool
		every  time.Duration
	}{
		{"default", func(*Config) {}, false, 100 * time.Millisecond},
		{"period", func(c *Config) { c.SyncEvery = time.Second }, false, time.Second},
		{"always", func(c *Config) { c.SyncAlways = true }, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			tc.change(&cfg)
			b := start(t, cfg)
			got := b.server.JetStreamConfig()
			if got.SyncAlways != tc.always || !tc.always && got.SyncInterval != tc.every {
				t.Errorf("the server syncs every %s, always %v", got.SyncInterval, got.SyncAlways)
			}
		})
	}
}
