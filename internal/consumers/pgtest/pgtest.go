// Package pgtest starts real PostgreSQL servers for tests, each with a cluster of
// its own in a temporary directory, which tests may stop and start again:
//
//	db := pgtest.Start(t)
//	use(db.URL())
//	db.Stop()  // connections are refused
//	db.Start() // the same data at the same address
//
// The program must be installed, in PATH or where Debian puts it. If it is not, the
// test is skipped; or fails, if FLOWGATE_TEST_REQUIRE lists postgres.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout bounds how long a server takes until it answers, on a slow machine.
const startTimeout = 60 * time.Second

// password is the superuser's; connections over TCP need it.
const password = "throw-away"

// Cluster is a PostgreSQL server that ends with its test. Start, Stop, Kill and
// Restart are the test's own goroutine's.
type Cluster struct {
	t         testing.TB
	bin       string // directory of the programs
	dir       string
	port      int
	account   *syscall.Credential // nil: our own
	databases atomic.Int64
	server    *exec.Cmd // nil: not running
	ended     chan error
	crashed   bool
}

// Start makes a cluster and starts it.
func Start(t testing.TB) *Cluster {
	t.Helper()
	bin, err := find()
	if err != nil {
		absent(t, err)
	}
	c := &Cluster{t: t, bin: bin}
	if os.Getuid() == 0 {
		// The server refuses to run as root.
		if c.account, err = account("postgres"); err != nil {
			absent(t, err)
		}
	}
	if err := c.make(); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	c.Start()
	return c
}

// absent ends a test that has no PostgreSQL.
func absent(t testing.TB, why error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("FLOWGATE_TEST_REQUIRE"), ","), "postgres") {
		t.Fatalf("FLOWGATE_TEST_REQUIRE lists postgres: %v", why)
	}
	t.Skipf("needs PostgreSQL: %v", why)
}

// find gives the directory of the programs: PATH's, or the newest version's.
func find() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("neither postgres and initdb in PATH nor /usr/lib/postgresql/*/bin/initdb")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

func account(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("as root the server runs as %s: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("uid of %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("gid of %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// make makes the cluster's files. t.TempDir will not do: its parents may be closed
// to the server's account.
func (c *Cluster) make() error {
	dir, err := os.MkdirTemp(os.TempDir(), "pgtest")
	if err != nil {
		return err
	}
	c.dir = dir
	c.t.Cleanup(func() {
		c.Stop()
		if err := os.RemoveAll(dir); err != nil {
			c.t.Errorf("pgtest: %v", err)
		}
	})
	pwfile := filepath.Join(dir, "password")
	if err := os.WriteFile(pwfile, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	if c.account != nil {
		for _, path := range []string{dir, pwfile} {
			if err := os.Chown(path, int(c.account.Uid), int(c.account.Gid)); err != nil {
				return err
			}
		}
	}
	// The password in plain: to hash it takes a client 0.2 s under the race detector.
	initdb := c.command("initdb", "-D", c.data(), "-U", "postgres", "--pwfile", pwfile,
		"--auth-host=password", "--auth-local=trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	c.port, err = freePort()
	return err
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Dir = c.dir
	// A group of its own: an interrupt at the terminal leaves the order of stopping
	// to the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.account}
	endWithTest(cmd.SysProcAttr)
	return cmd
}

// freePort finds a port below those that the system gives to connections, so that
// it stays free while the server is stopped.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// URL is how to connect, as the superuser and with the password.
func (c *Cluster) URL() string { return c.url("postgres") }

func (c *Cluster) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)), Path: "/" + database,
	}
	return u.String()
}

// Database makes an empty database of a name of its own and gives its URL, so that
// tests can share a server.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	name := fmt.Sprintf("test%d", c.databases.Add(1))
	// Out of template0: nothing else connects to that one, so tests may be parallel.
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return c.url(name)
}

// launch starts the server.
func (c *Cluster) launch() {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = log.Close() }()
	server := c.command("postgres", "-D", c.data(), "-p", strconv.Itoa(c.port), "-k", c.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "shared_buffers=16MB", "-c", "max_connections=50", "-c", "autovacuum=off")
	server.Stdout, server.Stderr = log, log
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The server ends with the thread that started it; see endWithTest.
		runtime.LockOSThread()
		err := server.Start()
		started <- err
		if err == nil {
			ended <- server.Wait()
		}
	}()
	if err := <-started; err != nil {
		c.t.Fatalf("pgtest: start the server: %v", err)
	}
	c.server, c.ended = server, ended
}

// Start starts the server and waits until it answers; if it runs, it does nothing.
func (c *Cluster) Start() {
	c.t.Helper()
	if c.server != nil {
		return
	}
	c.launch()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.URL())
		if err == nil {
			_ = conn.Close(ctx)
			c.crashed = false
			return
		}
		select {
		case gone := <-c.ended:
			c.server = nil
			if c.crashed && ctx.Err() == nil {
				c.launch() // sessions of the one that was killed are there still
				continue
			}
			c.t.Fatalf("pgtest: the server ended: %v\n%s", gone, c.log())
		case <-ctx.Done():
			c.t.Fatalf("pgtest: the server does not answer: %v\n%s", err, c.log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Cluster) log() string {
	text, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop shuts the server down as an administrator does who does not wait: clients
// are cut off (57P01), what is committed stays. If it does not run, it does nothing.
func (c *Cluster) Stop() { c.end(syscall.SIGINT) }

// Kill ends the server as a crash does: at once, and the next start recovers.
func (c *Cluster) Kill() { c.end(syscall.SIGQUIT) }

// Crash kills the server, which has no time to end its sessions: they notice by
// themselves.
func (c *Cluster) Crash() {
	c.t.Helper()
	c.end(syscall.SIGKILL)
	c.crashed = true
}

// KillSession kills the process of one session: the server ends all others too, and
// recovers.
func (c *Cluster) KillSession(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// Restart is Stop and Start.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.Stop()
	c.Start()
}

func (c *Cluster) end(signal syscall.Signal) {
	c.t.Helper()
	if c.server == nil {
		return
	}
	if err := c.server.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Errorf("pgtest: stop the server: %v", err)
	}
	select {
	case <-c.ended:
	case <-time.After(startTimeout):
		c.t.Errorf("pgtest: the server did not stop on %s; it is killed\n%s", signal, c.log())
		_ = c.server.Process.Kill()
		<-c.ended
	}
	c.server = nil
}
