//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// topAddr makes TestTopChild show a gateway on its terminal.
const topAddr = "FLOWGATE_TEST_TOP_ADDR"

func TestTopChild(t *testing.T) {
	addr := os.Getenv(topAddr)
	if addr == "" {
		return // TestTopOnATerminal runs it
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as the process does
	defer stop()
	os.Exit(cli{environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}.run(ctx, []string{"top", "--addr", addr}))
}

// terminal is top on a terminal of its own.
type terminal struct {
	t       *testing.T
	pty     *os.File
	out     lockedBuffer
	was     *term.State
	process *os.Process
	ended   chan error
	drained chan struct{}
	columns uint16
}

func startTop(t *testing.T, addr string) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	x := &terminal{t: t, pty: master, ended: make(chan error, 1), drained: make(chan struct{}), columns: 100}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 30, Cols: x.columns}); err != nil {
		t.Fatal(err)
	}
	if x.was, err = term.GetState(int(slave.Fd())); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTopChild$")
	cmd.Env = append(os.Environ(), topAddr+"="+addr, "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	// Its controlling terminal, so that it hears of its size.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.process = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = slave.Close()
		_ = master.Close()
		<-x.drained
	})
	go func() { x.ended <- cmd.Wait() }()
	go func() {
		defer close(x.drained)
		buffer := make([]byte, 32<<10)
		for {
			n, err := master.Read(buffer)
			_, _ = x.out.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	return x
}

var escapes = regexp.MustCompile(`\x1b(\[[0-9;?<>=$]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>])`)

// shows waits until the screen, drawn anew at another size, holds all words.
func (x *terminal) shows(words ...string) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		from := len(x.out.String())
		x.columns ^= 1
		if err := pty.Setsize(x.pty, &pty.Winsize{Rows: 30, Cols: x.columns}); err != nil {
			x.t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		text := escapes.ReplaceAllString(x.out.String()[from:], "")
		missing := ""
		for _, w := range words {
			if !strings.Contains(text, w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("no %q in\n%q", missing, text)
		}
	}
}

// ends sends a key, or SIGTERM for none, and wants the process to be done with, and the terminal as it was.
func (x *terminal) ends(key string) {
	x.t.Helper()
	if key == "" {
		if err := x.process.Signal(syscall.SIGTERM); err != nil {
			x.t.Fatal(err)
		}
	} else if _, err := x.pty.WriteString(key); err != nil {
		x.t.Fatal(err)
	}
	select {
	case err := <-x.ended:
		if err != nil {
			x.t.Errorf("%q: %v\n%s", key, err, x.out.String())
		}
	case <-time.After(10 * time.Second):
		x.t.Fatalf("it does not end by %q", key)
	}
	now, err := term.GetState(int(x.pty.Fd()))
	if err != nil {
		x.t.Fatal(err)
	}
	if *now != *x.was {
		x.t.Errorf("%q: the terminal is left as %+v, it was %+v", key, now, x.was)
	}
	time.Sleep(100 * time.Millisecond) // what it said last is read
	out := x.out.String()
	if in, off := strings.LastIndex(out, "\x1b[?1049h"), strings.LastIndex(out, "\x1b[?1049l"); in < 0 || off < in {
		x.t.Errorf("%q: the screen is not given back", key)
	}
	if hidden, shown := strings.LastIndex(out, "\x1b[?25l"), strings.LastIndex(out, "\x1b[?25h"); shown < hidden {
		x.t.Errorf("%q: the cursor is not shown again", key)
	}
}

// On a terminal top fills the screen, follows its size, says that the gateway is away and
// comes back by itself, and leaves the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	g := serve(t, "FLOWGATE_SHAPER_RATE=1/h")
	published(t, g, "ingress.acme.orders", 7)
	published(t, g, "ingress.globex.orders", 3)
	f := newFickle(t, g)
	x := startTop(t, f.URL)
	x.shows("normal", "TENANT", "acme", "globex", "10 of 10,000", "by depth")
	if _, err := x.pty.WriteString("r"); err != nil {
		t.Fatal(err)
	}
	x.shows("by refused")
	f.away.Store(true)
	x.shows("AWAY since", "acme")
	f.away.Store(false)
	x.shows("normal", "acme", "by refused")
	if before := x.out.String(); strings.Count(before, "AWAY since") == 0 {
		t.Error("it never was away")
	}
	x.ends("q")

	y := startTop(t, f.URL)
	y.shows("TENANT")
	y.ends("\x03")

	away := startTop(t, "127.0.0.1:1")
	away.shows("AWAY since", "no gateway answers at http://127.0.0.1:1")
	away.ends("")
}
