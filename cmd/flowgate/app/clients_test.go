package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The README's producers, as they stand in docs/clients, with a real gateway: what is
// refused is repeated after the hint under the same id and stored once; what waiting
// cannot help ends them.
func TestPlainClients(t *testing.T) {
	for _, c := range []struct {
		name    string
		program func(t *testing.T) []string
	}{
		{"go", goProgram}, {"python", pythonProgram}, {"node", nodeProgram},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := c.program(t)
			r := start(t, "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_LIMIT_TENANT=token-bucket:5/s,burst=2", "FLOWGATE_SHAPER_RATE=unlimited",
				"FLOWGATE_INGRESS_TENANTS=acme")
			url, _ := r.Addr()
			out, noted, err := runProgram(t, program, url, "ingress.acme.orders", "order", "6")
			if err != nil || strings.Count(out, "FLOWGATE ") != 6 {
				t.Fatalf("%v\n%s\n%s", err, out, noted)
			}
			if !strings.Contains(noted, ": 60429: tenant acme over token-bucket:5/s,burst=2; retry_after_ms=") {
				t.Errorf("it was not refused, or did not read why:\n%s", noted)
			}
			if admitted, refused := r.tries(); admitted != 6 || refused < 1 || refused > 12 {
				t.Errorf("%v admitted and %v refused of 6 messages one by one", admitted, refused)
			}
			for end := time.Now().Add(time.Minute); len(r.sink.log()) < 6 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			ids := delivered(r.sink.log())
			for i := range 6 {
				if ids[fmt.Sprintf("acme/order-%d", i)] != 1 {
					t.Errorf("delivered: %v", ids)
				}
			}
			_, before := r.tries()
			if out, noted, err := runProgram(t, program, url, "ingress.globex.orders", "order", "1"); err == nil || !strings.Contains(out+noted, "not allowed") {
				t.Errorf("a tenant that is not allowed: %v\n%s\n%s", err, out, noted)
			}
			if _, after := r.tries(); after != before+1 {
				t.Errorf("what is forbidden was tried %v times", after-before)
			}
		})
	}
}

const clientsDir = "../../../docs/clients"

func goProgram(t *testing.T) []string {
	program := filepath.Join(t.TempDir(), "publish")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, clientsDir+"/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []string{program}
}

func pythonProgram(t *testing.T) []string {
	python := installed(t, "python", "python3")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import nats.js").CombinedOutput(); err != nil {
		lacking(t, "python", "pip install nats-py", out)
	}
	return []string{python, "-B", clientsDir + "/python/publish.py"}
}

func nodeProgram(t *testing.T) []string {
	node := installed(t, "node", "node")
	if _, err := os.Stat(clientsDir + "/node/node_modules"); err != nil {
		lacking(t, "node", "npm ci, in docs/clients/node", []byte(err.Error()))
	}
	return []string{node, clientsDir + "/node/publish.mjs"}
}

// installed finds a program, and ends the test without it.
func installed(t *testing.T, what, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		lacking(t, what, "install "+program, []byte(err.Error()))
	}
	return path
}

func lacking(t *testing.T, what, remedy string, out []byte) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("FLOWGATE_TEST_REQUIRE"), ","), what) {
		t.Fatalf("FLOWGATE_TEST_REQUIRE lists %s, which needs: %s\n%s", what, remedy, out)
	}
	t.Skipf("needs: %s", remedy)
}

// runProgram gives what a program printed and what it noted.
func runProgram(t *testing.T, program []string, args ...string) (out, noted string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], append(program[1:len(program):len(program)], args...)...)
	cmd.WaitDelay = 10 * time.Second
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}
