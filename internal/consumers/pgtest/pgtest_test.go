package pgtest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestCluster runs a server through its life.
func TestCluster(t *testing.T) {
	c := Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connect := func(u string) *pgx.Conn {
		t.Helper()
		conn, err := pgx.Connect(ctx, u)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}

	first, second := c.Database(t), c.Database(t)
	if first == second {
		t.Fatalf("two databases at %s", first)
	}
	conn := connect(first)
	if _, err := conn.Exec(ctx, "CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}

	before := c.URL()
	pid := c.server.Process.Pid
	c.Stop()
	if err := conn.Ping(ctx); err == nil {
		t.Error("a connection outlived its server")
	}
	u, err := url.Parse(before)
	if err != nil {
		t.Fatal(err)
	}
	if probe, err := net.Dial("tcp", u.Host); err == nil {
		_ = probe.Close()
		t.Errorf("something listens at %s after Stop", u.Host)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the server's process %d is there after Stop: %v", pid, err)
	}
	c.Stop() // again does nothing

	for name, again := range map[string]func(){"start": c.Start, "restart": c.Restart, "crash": func() { c.Kill(); c.Start() }} {
		again()
		if c.URL() != before {
			t.Errorf("%s: the address changed from %s to %s", name, before, c.URL())
		}
		conn := connect(first)
		var n int
		if err := conn.QueryRow(ctx, "SELECT n FROM kept").Scan(&n); err != nil || n != 7 {
			t.Errorf("%s: the table holds %d, %v; want 7", name, n, err)
		}
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	other := connect(second)
	defer func() { _ = other.Close(ctx) }()
	if _, err := other.Exec(ctx, "SELECT n FROM kept"); err == nil {
		t.Error("a table of one database is seen in another")
	}
}

// told is a test that notes how it was ended first: the real one goes no further.
type told struct {
	testing.TB
	end []string
}

func (*told) Helper()                 {}
func (t *told) Skipf(string, ...any)  { t.end = append(t.end, "skipped") }
func (t *told) Fatalf(string, ...any) { t.end = append(t.end, "failed") }

// TestAbsent: where PostgreSQL must be there, its absence is no reason to skip.
func TestAbsent(t *testing.T) {
	for require, want := range map[string]string{"": "skipped", "nats": "skipped", "postgresql": "skipped", "postgres": "failed", "nats,postgres": "failed"} {
		t.Setenv("FLOWGATE_TEST_REQUIRE", require)
		test := &told{}
		absent(test, errors.New("nowhere"))
		if test.end[0] != want {
			t.Errorf("FLOWGATE_TEST_REQUIRE=%s: the test %s, want %s", require, test.end[0], want)
		}
	}
}
