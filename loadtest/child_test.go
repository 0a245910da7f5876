package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// childLog makes the test binary a gateway that notes every delivery it starts in
// that file, before it hands it to its consumer.
const childLog = "FLOWGATE_TEST_CHILD_LOG"

func TestMain(m *testing.M) {
	if path := os.Getenv(childLog); path != "" {
		if err := child(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == trial.Command {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := trial.Gateway(ctx, os.Environ(), os.Stdin, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childFileSize bounds the files that the child may write, in bytes, as a full disk
// does, until the parent lifts it.
const childFileSize = "FLOWGATE_TEST_FILE_SIZE"

// childFailEvery has the child's consumer fail the first attempt at every so many
// messages; 0: at none.
const childFailEvery = "FLOWGATE_TEST_FAIL_EVERY"

func child(path string) error {
	if text := os.Getenv(childFileSize); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return err
		}
		signal.Ignore(unix.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY}); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := settings.Load(os.Environ())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o750); err != nil {
		return err
	}
	inner, err := consumers.Open(ctx, cfg.Consumer, consumers.Deps{DataDir: cfg.DataDir, Logger: log})
	if err != nil {
		return err
	}
	failEvery, _ := strconv.ParseUint(os.Getenv(childFailEvery), 10, 64)
	a, err := app.New(app.Options{Config: cfg, Logger: log, Destination: noted{inner, file, failEvery}})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// noted writes a line for each delivery before it is made and one after; what the
// kernel has survives a SIGKILL.
type noted struct {
	consumers.Destination
	log       *os.File
	failEvery uint64
}

func (n noted) Deliver(ctx context.Context, batch []consumers.Delivery) []error {
	for _, d := range batch {
		n.note("start", d, d.ReleasedAt)
	}
	defer func() {
		for _, d := range batch {
			n.note("end", d, time.Now())
		}
	}()
	fails := func(d consumers.Delivery) bool { return n.failEvery > 0 && d.Seq%n.failEvery == 0 && d.Attempt == 1 }
	var good []consumers.Delivery
	for _, d := range batch {
		if !fails(d) {
			good = append(good, d)
		}
	}
	verdicts := n.Destination.Deliver(ctx, good)
	for i, d := range batch {
		if fails(d) {
			verdicts = slices.Insert(verdicts, i, errors.New("the first attempt fails"))
		}
	}
	return verdicts
}

func (n noted) note(what string, d consumers.Delivery, at time.Time) {
	if _, err := fmt.Fprintf(n.log, "%s %s %d %d %d\n", what, d.ID, d.Attempt, at.UnixNano(), os.Getpid()); err != nil {
		panic(err)
	}
}

// start is one delivery that was started.
type start struct {
	id      string
	attempt int
	at      int64
	life    int   // the process that made it, counted
	process int   // and its number
	end     int64 // when its consumer was done with it; 0: never
}

// readStarts gives the deliveries of a log, in its order.
func readStarts(t *testing.T, path string) []*start {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var starts []*start
	lives := map[string]int{}
	open := map[string]*start{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.Fields(lines.Text())
		if len(parts) != 5 {
			t.Fatalf("line %q", lines.Text())
		}
		attempt, err1 := strconv.Atoi(parts[2])
		at, err2 := strconv.ParseInt(parts[3], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("line %q", lines.Text())
		}
		if parts[0] == "end" {
			open[parts[1]].end = at
			continue
		}
		if _, ok := lives[parts[4]]; !ok {
			lives[parts[4]] = len(lives)
		}
		process, err := strconv.Atoi(parts[4])
		if err != nil {
			t.Fatalf("line %q", lines.Text())
		}
		s := &start{id: parts[1], attempt: attempt, at: at, life: lives[parts[4]], process: process}
		open[s.id] = s
		starts = append(starts, s)
	}
	return starts
}

// process is a gateway in a process of its own.
type process struct {
	*exec.Cmd
	ended chan error
}

// startProcess starts it; output goes to the test's.
func startProcess(t *testing.T, name string, environ ...string) *process {
	t.Helper()
	cmd := exec.Command(name)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// kill ends it as a crash does.
func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// freeAddr is a loopback address that nothing listened on just now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// eventually waits for a condition of another process, which has no event.
func eventually(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
