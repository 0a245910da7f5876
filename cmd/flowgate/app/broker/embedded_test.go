package broker

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

func TestStartFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	conf := func(text string) string { return written(t, text) }
	storeIsAFile := t.TempDir()
	if err := os.WriteFile(filepath.Join(storeIsAFile, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lockIsADirectory := t.TempDir()
	if err := os.Mkdir(filepath.Join(lockIsADirectory, "flowgate.lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(busy.Addr().(*net.TCPAddr).Port)
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"port in use", func(c *Config) { c.Listen = busy.Addr().String() }, []string{"FLOWGATE_NATS_LISTEN", busy.Addr().String(), "in use"}},
		{"port in use, by the configuration file", func(c *Config) { c.ConfigFile = conf("listen: 127.0.0.1:" + port) }, []string{port, "in use"}},
		{"monitoring port in use", func(c *Config) { c.ConfigFile = conf("listen: 127.0.0.1:-1\nhttp: 127.0.0.1:" + port) }, []string{port, "in use"}},
		{"not an address", func(c *Config) { c.Listen = "4222" }, []string{"FLOWGATE_NATS_LISTEN", "4222", "host:port"}},
		{"an address that is not ours", func(c *Config) { c.Listen = "192.0.2.1:4222" }, []string{"FLOWGATE_NATS_LISTEN", "192.0.2.1:4222"}},
		{"data directory below a file", func(c *Config) { c.DataDir = filepath.Join(file, "data") }, []string{"FLOWGATE_DATA_DIR", file}},
		{"data directory is a file", func(c *Config) { c.DataDir = file }, []string{"FLOWGATE_DATA_DIR", file}},
		{"lock is a directory", func(c *Config) { c.DataDir = lockIsADirectory }, []string{"FLOWGATE_DATA_DIR", lockIsADirectory, "cannot be written"}},
		{"data directory in /proc", func(c *Config) { c.DataDir = "/proc/flowgate" }, []string{"FLOWGATE_DATA_DIR", "/proc/flowgate"}},
		{"data directory that takes no file", func(c *Config) { c.DataDir = "/proc/self" }, []string{"FLOWGATE_DATA_DIR", "/proc/self"}},
		{"store is a file", func(c *Config) { c.DataDir = storeIsAFile }, []string{"JetStream", storeIsAFile, "not a directory"}},
		{"no configuration file", func(c *Config) { c.ConfigFile = "/nowhere/nats.conf" }, []string{"FLOWGATE_NATS_CONFIG", "/nowhere/nats.conf"}},
		{"a mistake in the configuration file", func(c *Config) { c.ConfigFile = conf("lissten: 4222") }, []string{"FLOWGATE_NATS_CONFIG", "lissten"}},
		{"a cluster without a listener", func(c *Config) { c.ConfigFile = conf("cluster { name: c, listen: 127.0.0.1:-1 }") }, []string{"FLOWGATE_NATS_LISTEN=off", "cluster"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			cfg := testConfig(t.TempDir())
			tc.change(&cfg)
			began := time.Now()
			b, err := Start(t.Context(), cfg, quiet())
			if err == nil {
				_ = b.Close(t.Context())
			}
			wantError(t, err, tc.want...)
			if strings.Count(err.Error(), "\n") > 1 {
				t.Errorf("not one line:\n%v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			// Nothing is left: the directory is free, and so are the goroutines.
			if lock, err := lockDir(cfg.DataDir); err == nil {
				_ = lock.Close()
			} else if strings.Contains(err.Error(), "in use") {
				t.Error(err)
			}
			soon(t, "its goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+1 })
		})
	}
}

func TestMessagesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir)
	first, err := Start(t.Context(), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	_, js := gateway(t, first)
	before, err := Ensure(t.Context(), js, testTopology())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "flowgate.backlog.acme.orders", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is once
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, js = gateway(t, start(t, cfg))
	after, err := Ensure(t.Context(), js, testTopology())
	if err != nil {
		t.Fatal(err)
	}
	if after.Messages != 1 || after.Incarnation != before.Incarnation || !after.Created.Equal(before.Created) {
		t.Errorf("after a restart: %+v; before: %+v", after, before)
	}
	if _, err := os.Stat(filepath.Join(dir, "jetstream")); err != nil {
		t.Error(err)
	}
}

func TestDiskTooSmall(t *testing.T) {
	b := start(t, testConfig(t.TempDir()))
	if err := b.Disk(testTopology()); err != nil {
		t.Skipf("this machine's disk is small: %v", err)
	}
	top := testTopology()
	top.MaxBytes = 1 << 49
	wantError(t, b.Disk(top), strconv.FormatInt(top.Bytes(), 10), "FLOWGATE_BACKPRESSURE_MAX_BYTES", "free")
	// It is a warning for whoever calls Disk: the server does not refuse the stream.
	_, js := gateway(t, b)
	if _, err := Ensure(t.Context(), js, top); err != nil {
		t.Errorf("a bound above the disk: %v", err)
	}
}

func TestEmbeddedInABubble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := testConfig(t.TempDir())
		cfg.SyncEvery = time.Hour // the default wakes up 864,000 times a store in what follows
		b, err := Start(t.Context(), cfg, quiet())
		if err != nil {
			t.Fatal(err)
		}
		_, js := gateway(t, b)
		a, err := Ensure(t.Context(), js, testTopology())
		if err != nil {
			t.Fatal(err)
		}
		if b.ClientURL() != "" || !b.Embedded() {
			t.Errorf("url %q, embedded %v", b.ClientURL(), b.Embedded())
		}
		if _, err := js.Publish(t.Context(), "flowgate.backlog.acme.orders", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Consumer.Next(jetstream.FetchMaxWait(time.Second)); err != nil {
			t.Fatal(err)
		}
		// 24 hours without an ack: the broker hands it out again, so a fake clock works.
		time.Sleep(ackWait + time.Minute)
		again, err := a.Consumer.Next(jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Ack(); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A disk without room for a message is told before one comes.
func TestDiskFull(t *testing.T) {
	b := start(t, testConfig(t.TempDir()))
	if err := b.Room(); err != nil {
		t.Errorf("with room: %v", err)
	}
	b.cfg.MaxPayload = math.MaxInt - headroom
	wantError(t, b.Room(), "FLOWGATE_DATA_DIR", "bytes free", "make room")
}
