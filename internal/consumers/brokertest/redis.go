package brokertest

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
)

// Password is the brokers' for their one user.
const Password = "throw-away"

// Redis starts a Redis server that writes each command to its log before it answers,
// with a password.
func Redis(t testing.TB, options ...string) *Broker {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		absent(t, "redis", err)
	}
	b := &Broker{
		t: t, dir: temporary(t), port: freePort(t),
		url: func(host string) string { return "redis://:" + Password + "@" + host },
		answers: func(ctx context.Context, address string) error {
			return says(ctx, address, "AUTH "+Password+"\r\n", "+OK")
		},
	}
	b.command = func() *exec.Cmd {
		return exec.Command(program, append([]string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(b.port), "--requirepass", Password,
			"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", b.dir,
		}, options...)...)
	}
	t.Cleanup(b.Stop)
	b.Start()
	return b
}
