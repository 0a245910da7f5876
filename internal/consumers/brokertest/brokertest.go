// Package brokertest starts real message brokers for tests, each in a temporary
// directory and on ports of its own, which tests may stop and start again:
//
//	broker := brokertest.RabbitMQ(t)
//	use(broker.URL())
//	broker.Stop()  // connections are refused
//	broker.Start() // the same data at the same address
//
// The programs must be installed, in PATH or where Debian puts them; whether services
// of their packages run makes no difference. If one is not, the test is skipped; or
// fails, if FLOWGATE_TEST_REQUIRE lists redis or rabbitmq.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds how long a broker takes until it answers, on a slow machine.
const startTimeout = 2 * time.Minute

// Broker is a server that ends with its test. Start, Stop, Kill, Freeze and Thaw are
// the test's own goroutine's.
type Broker struct {
	t       testing.TB
	dir     string
	port    int
	url     func(host string) string
	command func() *exec.Cmd
	// answers asks the server; nil once it serves.
	answers func(ctx context.Context, address string) error
	server  *process // nil: not running
}

// process is a program that runs.
type process struct {
	*exec.Cmd
	ended chan error
}

// absent ends a test that lacks a program.
func absent(t testing.TB, name string, why error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("FLOWGATE_TEST_REQUIRE"), ","), name) {
		t.Fatalf("FLOWGATE_TEST_REQUIRE lists %s: %v", name, why)
	}
	t.Skipf("needs %s: %v", name, why)
}

// temporary makes a directory that goes with the test.
func temporary(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "brokertest")
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("brokertest: %v", err)
		}
	})
	return dir
}

// freePort finds a port below those that the system gives to connections, so that
// it stays free while the server is stopped.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("brokertest: no free port")
	return 0
}

// run starts a program, which ends with the test if the test is killed.
func (b *Broker) run(cmd *exec.Cmd) *process {
	b.t.Helper()
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatalf("brokertest: %v", err)
	}
	defer func() { _ = log.Close() }()
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, log, log
	// A group of its own: an interrupt at the terminal leaves the order of stopping to
	// the test, and a script's own children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithTest(cmd.SysProcAttr)
	p := &process{cmd, make(chan error, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the program ends with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			p.ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		b.t.Fatalf("brokertest: start %s: %v", cmd.Path, err)
	}
	return p
}

// end sends a signal to the program's group and waits for the program.
func (b *Broker) end(p *process, signal syscall.Signal) {
	b.t.Helper()
	if err := syscall.Kill(-p.Process.Pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		b.t.Errorf("brokertest: stop: %v", err)
	}
	select {
	case <-p.ended:
	case <-time.After(startTimeout):
		b.t.Errorf("brokertest: %s did not end on %s; it is killed\n%s", p.Path, signal, b.log())
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
}

func (b *Broker) log() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// Addr is the address, host:port.
func (b *Broker) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// URL is how to connect, without a path.
func (b *Broker) URL() string { return b.url(b.Addr()) }

// Start starts the server and waits until it answers; if it runs, it does nothing.
func (b *Broker) Start() {
	b.t.Helper()
	if b.server != nil {
		return
	}
	b.server = b.run(b.command())
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := b.answers(ctx, b.Addr())
		if err == nil {
			return
		}
		select {
		case gone := <-b.server.ended:
			b.server = nil
			b.t.Fatalf("brokertest: the server ended: %v\n%s", gone, b.log())
		case <-ctx.Done():
			b.t.Fatalf("brokertest: the server does not answer: %v\n%s", err, b.log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop shuts the server down in order. If it does not run, it does nothing.
func (b *Broker) Stop() { b.stop(syscall.SIGTERM) }

// Kill ends the server as a crash does.
func (b *Broker) Kill() { b.stop(syscall.SIGKILL) }

func (b *Broker) stop(signal syscall.Signal) {
	b.t.Helper()
	if b.server != nil {
		b.end(b.server, signal)
		b.server = nil
		b.gone()
	}
}

// gone waits until nothing listens: a script's own child may end after the script.
func (b *Broker) gone() {
	b.t.Helper()
	for end := time.Now().Add(startTimeout); ; {
		conn, err := net.Dial("tcp", b.Addr())
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(end) {
			b.t.Fatalf("brokertest: something listens at %s still", b.Addr())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Freeze lets the server hang: it keeps its connections and answers nothing.
func (b *Broker) Freeze() { b.signal(syscall.SIGSTOP) }

// Thaw lets it go on.
func (b *Broker) Thaw() { b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) {
	b.t.Helper()
	if err := syscall.Kill(-b.server.Process.Pid, s); err != nil {
		b.t.Fatalf("brokertest: %s: %v", s, err)
	}
}

// says sends a line and wants an answer that begins so.
func says(ctx context.Context, address, line, want string) error {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(line)); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(answer[:n]), want) {
		return fmt.Errorf("it answers %q", answer[:n])
	}
	return nil
}
