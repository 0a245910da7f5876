package broker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// child is the process of TestDataDirectoryInUse: a gateway's broker with 100
// messages, until it is killed.
func child(dir string) int {
	b, err := Start(context.Background(), testConfig(dir), quiet())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	nc, err := b.Connect("child")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	js, err := jetstream.New(nc)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	assets, err := Ensure(context.Background(), js, testTopology())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := Acquire(context.Background(), assets.State, "child", b.Embedded(), nil); err != nil {
		fmt.Println(err)
		return 1
	}
	for range 100 {
		if _, err := js.Publish(context.Background(), "flowgate.backlog.acme.orders", []byte("x")); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("ready")
	select {}
}

func TestDataDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("child: %q, %v", line, err)
	}

	_, err = Start(t.Context(), testConfig(dir), quiet())
	wantError(t, err, dir, "in use", "process "+strconv.Itoa(cmd.Process.Pid), "FLOWGATE_DATA_DIR")

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	b := start(t, testConfig(dir))
	_, js := gateway(t, b)
	assets, err := Ensure(t.Context(), js, testTopology())
	if err != nil {
		t.Fatal(err)
	}
	if assets.Messages != 100 {
		t.Errorf("%d messages after SIGKILL, 100 were acknowledged", assets.Messages)
	}
	// The dead process's lease is taken at once, long before it would run out.
	began := time.Now()
	if _, err := Acquire(t.Context(), assets.State, "successor", b.Embedded(), nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the lease of a dead process took %s", took)
	}
}

func TestTheLockGoesWithItsBroker(t *testing.T) {
	dir := t.TempDir()
	b, err := Start(t.Context(), testConfig(dir), quiet())
	if err != nil {
		t.Fatal(err)
	}
	// Also within a process; a long text of an earlier holder does not show through.
	_, err = Start(t.Context(), testConfig(dir), quiet())
	wantError(t, err, "in use", "process "+strconv.Itoa(os.Getpid())+";")
	// The refused one took nothing away from the first.
	_, js := gateway(t, b)
	ensured(t, js, testTopology())
	_, err = Start(t.Context(), testConfig(dir), quiet())
	wantError(t, err, "in use")
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "flowgate.lock")
	if err := os.WriteFile(path, []byte("12345678901234567890 was here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, testConfig(dir))
	_, err = Start(t.Context(), testConfig(dir), quiet())
	wantError(t, err, "process "+strconv.Itoa(os.Getpid())+";")
}

// Gateways of different names may share a directory if their NATS is elsewhere.
func TestAnotherServerNeedsNoLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := external(t, "")
	for range 2 {
		b := toExternal(t, s, func(c *Config) { c.DataDir = dir })
		if _, err := b.Connect("test"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the database has no directory: %v", err)
	}
	start(t, testConfig(dir))
}

func TestADataDirectoryWithoutTheRightToWrite(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), testConfig(dir), quiet())
	wantError(t, err, dir, "cannot be written", "FLOWGATE_DATA_DIR")
	_, err = Start(t.Context(), testConfig(filepath.Join(dir, "data")), quiet())
	wantError(t, err, dir, "cannot be made", "FLOWGATE_DATA_DIR")
}
