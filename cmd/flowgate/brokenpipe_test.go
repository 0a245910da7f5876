package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// pipeDir makes TestBrokenPipeChild a gateway on that data directory, which ends with
// its standard input.
const pipeDir = "FLOWGATE_TEST_PIPE_DIR"

func TestBrokenPipeChild(t *testing.T) {
	dir := os.Getenv(pipeDir)
	if dir == "" {
		return // TestAReaderThatGoesAway runs it
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	environ := []string{
		"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_CONSUMER_URL=stdout:", "FLOWGATE_CONSUMER_BACKOFF=10ms",
	}
	os.Exit(cli{environ: environ, stdout: os.Stdout, stderr: os.Stderr}.run(ctx, nil))
}

// `flowgate | head -1`: the messages wait, and the process lives.
func TestAReaderThatGoesAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBrokenPipeChild$")
	child.Env = append(os.Environ(), pipeDir+"="+t.TempDir())
	stdin, err1 := child.StdinPipe()
	stderr, err2 := child.StderrPipe()
	out, in, err3 := os.Pipe()
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	child.Stdout = in
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	defer func() {
		_ = child.Process.Kill() // if it has not ended
		_ = child.Wait()
	}()

	log := bufio.NewScanner(stderr)
	until := func(text string) string {
		t.Helper()
		for log.Scan() {
			if strings.Contains(log.Text(), text) {
				return log.Text()
			}
		}
		t.Fatalf("the gateway ended before it said %q", text)
		return ""
	}
	var ready struct{ NATS string }
	if err := json.Unmarshal([]byte(until(`"msg":"ready"`)), &ready); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(ready.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	publish(t, nc, "a")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, `"id":"acme/a"`) {
		t.Fatalf("%q, %v", line, err)
	}
	_ = out.Close()
	publish(t, nc, "b")
	until("broken pipe")
	publish(t, nc, "c") // it still takes what comes
	_ = stdin.Close()
	until(`"msg":"stopped"`)
}
