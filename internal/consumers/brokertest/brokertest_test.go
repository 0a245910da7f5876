package brokertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestBrokers runs each through its life.
func TestBrokers(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *Broker{
		"redis":    func(t *testing.T) *Broker { return Redis(t) },
		"rabbitmq": func(t *testing.T) *Broker { return RabbitMQ(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			before, pid := b.URL(), b.server.Process.Pid
			b.Freeze()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := b.answers(ctx, b.Addr()); err == nil {
				t.Error("it answers while it hangs")
			}
			b.Thaw()
			if err := b.answers(ctx, b.Addr()); err != nil {
				t.Errorf("it does not answer after Thaw: %v", err)
			}
			for how, end := range map[string]func(){"stop": b.Stop, "kill": b.Kill} {
				end()
				end() // again does nothing
				if conn, err := net.Dial("tcp", b.Addr()); err == nil {
					_ = conn.Close()
					t.Errorf("something listens at %s after %s", b.Addr(), how)
				}
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("the server's process %d is there after %s: %v", pid, how, err)
				}
				b.Start()
				pid = b.server.Process.Pid
			}
			if b.URL() != before {
				t.Errorf("the address changed from %s to %s", before, b.URL())
			}
		})
	}
}

// told is a test that notes how it was ended: the real one goes no further.
type told struct {
	testing.TB
	end string
}

func (*told) Helper()                             {}
func (t *told) Skipf(format string, args ...any)  { t.ends("skipped: " + fmt.Sprintf(format, args...)) }
func (t *told) Fatalf(format string, args ...any) { t.ends("failed: " + fmt.Sprintf(format, args...)) }

func (t *told) ends(how string) {
	if t.end == "" {
		t.end = how
	}
}

// TestAbsent: where a broker must be there, its absence is no reason to skip.
func TestAbsent(t *testing.T) {
	for require, want := range map[string]string{
		"": "skipped: needs redis: no such program", "postgres": "skipped: needs redis: no such program",
		"postgres,redis": "failed: FLOWGATE_TEST_REQUIRE lists redis: no such program",
	} {
		t.Setenv("FLOWGATE_TEST_REQUIRE", require)
		one := &told{TB: t}
		absent(one, "redis", errors.New("no such program"))
		if one.end != want {
			t.Errorf("FLOWGATE_TEST_REQUIRE=%s: %q, want %q", require, one.end, want)
		}
	}
}
