package brokertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rabbitScripts is where Debian puts the server's own script. The one in PATH changes
// to the service's account and its directories.
const rabbitScripts = "/usr/lib/rabbitmq/bin"

// RabbitMQ starts a RabbitMQ server, whose user is guest and has that password. It has
// Erlang's port mapper to itself, and one processor, unless other arguments of Erlang's
// take that one's place.
func RabbitMQ(t testing.TB, erlang ...string) *Broker {
	t.Helper()
	script := filepath.Join(rabbitScripts, "rabbitmq-server")
	if _, err := os.Stat(script); err != nil {
		absent(t, "rabbitmq", err)
	}
	mapper, err := exec.LookPath("epmd")
	if err != nil {
		absent(t, "rabbitmq", err)
	}
	b := &Broker{
		t: t, dir: temporary(t), port: freePort(t),
		url: func(host string) string { return "amqp://guest:guest@" + host },
		answers: func(ctx context.Context, address string) error {
			return says(ctx, address, "AMQP\x00\x00\x09\x01", "\x01\x00\x00")
		},
	}
	if len(erlang) == 0 {
		erlang = []string{"+S", "1:1", "+sbwt", "none"}
	}
	mapperPort, nodePort := strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	empty := filepath.Join(b.dir, "empty")
	for name, text := range map[string]string{
		"empty":          "",
		"rabbitmq.conf":  "listeners.tcp.1 = 127.0.0.1:" + strconv.Itoa(b.port) + "\nmax_message_size = 1048576\nlog.console = true\nlog.file = false\ndisk_free_limit.absolute = 1MB\n",
		"plugins":        "[].\n",
		".erlang.cookie": Password,
	} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o400); err != nil {
			t.Fatalf("brokertest: %v", err)
		}
	}
	b.command = func() *exec.Cmd {
		cmd := exec.Command(script)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "LANG=C.UTF-8",
			"RABBITMQ_CONF_ENV_FILE=" + empty, "RABBITMQ_CONFIG_FILE=" + filepath.Join(b.dir, "rabbitmq.conf"),
			"RABBITMQ_NODENAME=flowgate@localhost",
			"RABBITMQ_DIST_PORT=" + nodePort, "ERL_EPMD_PORT=" + mapperPort, "ERL_EPMD_ADDRESS=127.0.0.1",
			"RABBITMQ_MNESIA_BASE=" + filepath.Join(b.dir, "mnesia"), "RABBITMQ_LOG_BASE=" + b.dir, "RABBITMQ_LOGS=-",
			"RABBITMQ_PID_FILE=" + filepath.Join(b.dir, "pid"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(b.dir, "plugins"),
			"RABBITMQ_GENERATED_CONFIG_DIR=" + filepath.Join(b.dir, "config"),
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} " + strings.Join(erlang, " "),
		}
		return cmd
	}
	mapping := exec.Command(mapper, "-port", mapperPort, "-address", "127.0.0.1")
	p := b.run(mapping)
	t.Cleanup(func() {
		b.Stop()
		b.end(p, syscall.SIGTERM)
	})
	b.await(net.JoinHostPort("127.0.0.1", mapperPort))
	b.Start()
	return b
}

// await waits until something listens: the server would start a port mapper of its
// own otherwise, which stays.
func (b *Broker) await(address string) {
	b.t.Helper()
	for end := time.Now().Add(startTimeout); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("brokertest: %v\n%s", fmt.Errorf("the port mapper: %w", errors.Unwrap(err)), b.log())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
