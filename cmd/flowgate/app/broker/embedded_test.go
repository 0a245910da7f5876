package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

// forward does what the front door does with an admitted message: it goes to the
// backlog with the producer's own reply subject.
func forward(t *testing.T, nc *nats.Conn) {
	t.Helper()
	_, err := nc.QueueSubscribe("ingress.>", "flowgate", func(m *nats.Msg) {
		out := nats.NewMsg("flowgate.backlog." + strings.TrimPrefix(m.Subject, "ingress."))
		out.Reply, out.Header, out.Data = m.Reply, m.Header, m.Data
		if err := nc.PublishMsg(out); err != nil {
			t.Errorf("forward: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestUnmodifiedClientsPublish(t *testing.T) {
	b := listening(t)
	nc, js := gateway(t, b)
	if _, err := Ensure(t.Context(), js, testTopology()); err != nil {
		t.Fatal(err)
	}
	forward(t, nc)

	denied := make(chan error, 10)
	producer := client(t, b.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	pjs, err := jetstream.New(producer)
	if err != nil {
		t.Fatal(err)
	}
	ack, err := pjs.Publish(t.Context(), "ingress.acme.orders", []byte("sync"))
	if err != nil || ack.Stream != "FLOWGATE" || ack.Sequence != 1 {
		t.Fatalf("publish: %+v, %v", ack, err)
	}
	future, err := pjs.PublishAsync("ingress.acme.orders", []byte("async"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case ack = <-future.Ok():
		if ack.Sequence != 2 {
			t.Errorf("async publish: %+v", ack)
		}
	case err := <-future.Err():
		t.Fatalf("async publish: %v", err)
	case <-time.After(5 * time.Second):
		t.Fatal("async publish: no answer")
	}
	old, err := producer.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := old.Publish("ingress.acme.orders", []byte("legacy")); err != nil || ack.Sequence != 3 {
		t.Errorf("legacy publish: %+v, %v", ack, err)
	}
	// A message as large as FLOWGATE_INGRESS_MAX_PAYLOAD allows has room for our
	// headers.
	if max := producer.MaxPayload(); max != 1<<20+64<<10 {
		t.Errorf("max_payload is %d", max)
	}
	select {
	case err := <-denied:
		t.Errorf("an ordinary client was refused: %v", err)
	default:
	}
}

func TestClientsMayNothingElse(t *testing.T) {
	b := listening(t)
	nc, js := gateway(t, b)
	if _, err := Ensure(t.Context(), js, testTopology()); err != nil {
		t.Fatal(err)
	}
	denied := make(chan error, 10)
	producer := client(t, b.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	refused := func(what string) {
		t.Helper()
		if err := producer.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(2 * time.Second):
			t.Errorf("%s was not refused", what)
		}
	}
	for _, subject := range []string{
		"flowgate.backlog.acme.orders", "flowgate.dlq.acme.orders", "flowgate.pressure", "flowgate.admin.status",
		"$JS.API.STREAM.LIST", "$JS.API.STREAM.DELETE.FLOWGATE", "$JS.API.CONSUMER.MSG.NEXT.FLOWGATE.shaper",
		"$JS.ACK.FLOWGATE.shaper.1.1.1.1.0", "$KV.FLOWGATE_STATE.lease", "$SYS.REQ.SERVER.PING",
		"ingress", "anything", "_INBOX.someone.else",
	} {
		if err := producer.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		refused("publish to " + subject)
	}
	for _, subject := range []string{
		"ingress.>", "ingress.acme.>", "flowgate.>", "flowgate.backlog.>", ">", "$SYS.>", "$JS.EVENT.>", "$KV.>", "$SRV.>",
	} {
		if _, err := producer.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		refused("subscribe to " + subject)
	}
	info, err := js.Stream(t.Context(), "FLOWGATE")
	if err != nil || info.CachedInfo().State.Msgs != 0 {
		t.Errorf("the backlog after all that: %+v, %v", info, err)
	}
	// What they may: hear the pressure.
	sub, err := producer.SubscribeSync("flowgate.pressure")
	if err != nil {
		t.Fatal(err)
	}
	if err := producer.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("flowgate.pressure", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(5 * time.Second); err != nil {
		t.Errorf("pressure: %v", err)
	}
	if len(denied) > 0 {
		t.Errorf("refused: %v", <-denied)
	}
}

// `nats micro list|info|stats` ask $SRV.PING, $SRV.INFO.<name> and $SRV.STATS.<name>.
func TestClientsFindTheMicroService(t *testing.T) {
	b := listening(t)
	nc, _ := gateway(t, b)
	service, err := micro.AddService(nc, micro.Config{Name: "flowgate", Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Stop() }()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	admin := client(t, b.ClientURL())
	for _, subject := range []string{"$SRV.PING", "$SRV.PING.flowgate", "$SRV.INFO.flowgate", "$SRV.STATS.flowgate"} {
		m, err := admin.Request(subject, nil, 5*time.Second)
		if err != nil {
			t.Errorf("%s: %v", subject, err)
			continue
		}
		var got struct{ Name, Version string }
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Name != "flowgate" || got.Version != "1.2.3" {
			t.Errorf("%s answers %s", subject, m.Data)
		}
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
	conf := func(text string) string {
		path := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	storeIsAFile := t.TempDir()
	if err := os.WriteFile(filepath.Join(storeIsAFile, "jetstream"), nil, 0o600); err != nil {
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
			for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines+1; runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatalf("%d goroutines before, %d after", goroutines, runtime.NumGoroutine())
				}
			}
		})
	}
}

// child is the process of TestDataDirectoryInUse: a gateway's broker with 100
// messages, until it is killed.
func child(dir string) int {
	b, err := Start(context.Background(), testConfig(dir), quiet())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	nc, err := b.Connect("child")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	js, err := jetstream.New(nc)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	assets, err := Ensure(context.Background(), js, testTopology())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := Acquire(context.Background(), assets.State, "child", b.Embedded()); err != nil {
		fmt.Println(err)
		return 1
	}
	for range 100 {
		if _, err := js.Publish(context.Background(), "flowgate.backlog.acme.orders", []byte("x")); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("ready")
	select {}
}

func TestDataDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("child: %q, %v", line, err)
	}

	_, err = Start(t.Context(), testConfig(dir), quiet())
	wantError(t, err, dir, "in use", "process "+strconv.Itoa(cmd.Process.Pid), "FLOWGATE_DATA_DIR")

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	b := start(t, testConfig(dir))
	_, js := gateway(t, b)
	assets, err := Ensure(t.Context(), js, testTopology())
	if err != nil {
		t.Fatal(err)
	}
	if assets.Messages != 100 {
		t.Errorf("%d messages after SIGKILL, 100 were acknowledged", assets.Messages)
	}
	// The dead process's lease is taken at once, long before it would run out.
	began := time.Now()
	if _, err := Acquire(t.Context(), assets.State, "successor", b.Embedded()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the lease of a dead process took %s", took)
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
		_, err := b.Connect("test")
		wantError(t, err, "FLOWGATE_NATS_CONFIG", "FLOWGATE_NATS_USER")

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

func TestServerLogLines(t *testing.T) {
	var log lines
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	b, err := Start(t.Context(), cfg, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	producer := client(t, b.ClientURL())
	for range 1000 { // each is an error in the server's log
		if err := producer.Publish("forbidden", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := producer.Flush(); err != nil {
		t.Fatal(err)
	}
	producer.Close()
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if n := strings.Count(text, "forbidden"); n < 1 || n > 30 {
		t.Errorf("1,000 refused messages made %d lines", n)
	}
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "component=broker") {
			t.Errorf("a line without its component: %s", line)
		}
	}
	if strings.Contains(text, "level=INFO") {
		t.Errorf("the server's notices are for debugging:\n%s", text)
	}
	if strings.Contains(text, b.password) || strings.Contains(strings.ToLower(text), "plaintext") {
		t.Error("the log tells of passwords")
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
	bubble(t, func(t *testing.T) {
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
