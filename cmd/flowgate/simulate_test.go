package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/simulation"
)

// What docs/simulate.md shows is what the commands print.
func TestSimulateDocs(t *testing.T) {
	path, err := filepath.Abs("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```yaml\n")
	pattern, _, ok2 := strings.Cut(rest, "```\n")
	if !ok || !ok2 {
		t.Fatal("there is no pattern")
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("shop.yaml", []byte(pattern), 0o644); err != nil {
		t.Fatal(err)
	}
	n := 0
	blocks := regexp.MustCompile("(?s)```console\n\\$ flowgate ([^\n]*)\n(.*?)```\n")
	now := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
		n++
		parts := blocks.FindStringSubmatch(block)
		_, out, errs := asked(t, nil, "", shellWords(parts[1])...)
		for line := range strings.SplitSeq(strings.TrimSuffix(errs, "\n"), "\n") {
			if line != "" {
				out += line + "\n"
			}
		}
		if out != parts[2] && !*update {
			t.Errorf("flowgate %s prints\n%s\nand the page shows\n%s\nrun go test ./cmd/flowgate -run SimulateDocs -update", parts[1], out, parts[2])
		}
		return "```console\n$ flowgate " + parts[1] + "\n" + out + "```\n"
	})
	if n != 3 {
		t.Errorf("%d examples", n)
	}
	if *update {
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shellWords splits at spaces that are not quoted.
func shellWords(line string) (words []string) {
	quoted := false
	for _, part := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '\'' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}) {
		words = append(words, strings.ReplaceAll(part, "'", ""))
	}
	return words
}

func TestSimulateRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", "groups: [{tenant: a, phases: [{for: 5s, rate: 10/s}]}]")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "one file is needed", nil},
		{2, "one file is needed", []string{good, good}},
		{2, `"x" is not NAME=<value>`, []string{"--var", "x", good}},
		{2, `--consumer: "fast" is nothing of a consumer`, []string{"--consumer=fast=1", good}},
		{2, "--consumer: latency: \"fast\" is not a duration", []string{"--consumer=fast", good}},
		{2, `--consumer: a database has no "kneee"`, []string{"--consumer=latency=1ms,knee=2,kneee=1", good}},
		{2, `--producers: "lazy" is no behaviour`, []string{"--producers=lazy", good}},
		{2, `--producers: "1ns" is no behaviour`, []string{"--producers=1ns", good}},
		{2, `--pause: "x" is not <for>@<from>`, []string{"--pause=x", good}},
		{2, "--every: 1ms is not whole seconds", []string{"--every=1ms", good}},
		{2, "--for: it must be above 0", []string{"--for=0s", good}},
		{2, "--suggest needs --goal", []string{"--suggest", good}},
		{2, "--goal is for --suggest", []string{"--goal=no refusals", good}},
		{2, `"be fast" is no goal; there are`, []string{"--suggest", "--goal=be fast", good}},
		{1, "FLOWGATE_SHAPER_RAT: unknown variable; did you mean FLOWGATE_SHAPER_RATE?", []string{"--var", "SHAPER_RAT=5/s", good}},
		{1, "no such file", []string{filepath.Join(dir, "absent.yaml")}},
		{1, "empty.yaml is empty", []string{file("empty.yaml", "")}},
		{1, "two.yaml is neither a recording nor a pattern: a second document", []string{file("two.yaml", "groups: [{tenant: a, rate: 1/s}]\n---\nx")}},
		{1, "late.csv: nothing came in its first 10s; the first message is at 1h0m0s", []string{"--for=10s", file("late.csv", "at_us,tenant\n3600000000,a\n")}},
		{1, "rubbish is neither a recording nor a pattern", []string{file("rubbish", "\x00\x01rubbish")}},
		{1, `a group has no "rat"`, []string{file("misspelt.yaml", "groups: [{tenant: a, rat: 5/s}]")}},
		{1, "bad.csv: line 3: at_us", []string{file("bad.csv", "at_us,tenant\n1,a\nx,a\n2,a\n")}},
		{1, "nothing came", []string{file("none.csv", "at_us,tenant\n")}},
		{1, "--producers=recorded is for recordings", []string{"--producers=recorded", good}},
	} {
		code, out, errs := asked(t, nil, "", append([]string{"simulate"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%q: exit %d, want %d\nstdout %s\nstderr %s\nwant %s", c.args, code, c.code, out, errs, c.says)
		}
	}
}

// Who waits for a long simulation hears every few seconds how far it is.
func TestSimulateSaysHowFarItIs(t *testing.T) {
	var out strings.Builder
	now := time.Now()
	tell := progress(&out, func() time.Time { return now })
	for at := time.Duration(0); at < 100*time.Second; at += time.Second {
		tell(at)
		now = now.Add(100 * time.Millisecond)
	}
	if got := out.String(); got != "simulated 50s so far\n" {
		t.Errorf("%q, want one line in 10 s", got)
	}
}

// The environment's variables hold, --var before them, and JSON tells what is counted.
func TestSimulateVariables(t *testing.T) {
	const pattern = "groups: [{tenant: a, spacing: even, phases: [{for: 10s, rate: 50/s}]}]"
	run := func(args ...string) (r simulation.Result) {
		t.Helper()
		environ := []string{"FLOWGATE_LIMIT_TENANT=token-bucket:10/s,burst=1", "FLOWGATE_SHAPER_RATE=100/s"}
		code, out, errs := asked(t, environ, pattern, append([]string{"simulate", "--json", "--producers=forget", "-"}, args...)...)
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Fatalf("exit %d, %v: %s", code, err, errs)
		}
		return r
	}
	if r := run(); r.Offered != 500 || r.Refused["rate_limited"] != 400 || r.Delivered != 100 {
		t.Errorf("%+v", r)
	}
	if r := run("--var", "LIMIT_TENANT=unlimited"); len(r.Refused) != 0 || r.Delivered != 500 || r.Drain == nil {
		t.Errorf("%+v", r)
	}
	if r := run("--var=FLOWGATE_LIMIT_TENANT=unlimited", "--var=SHAPER_RATE=20/s", "--var=BACKPRESSURE_HIGH=50"); r.Refused["backlog"] == 0 || r.Depth.Peak < 50 || r.Depth.Peak > 51 || r.OverHigh == 0 {
		t.Errorf("%+v", r)
	}
}

// Every try at a real gateway is written, and what is simulated of it is what happened.
func TestRecordFromTheCommandLine(t *testing.T) {
	const limit = "FLOWGATE_LIMIT_TENANT=fixed-window:5/h"
	g := serve(t, limit)
	file := filepath.Join(t.TempDir(), "try.csv.gz")
	ctx, stop := context.WithCancel(t.Context())
	var out, errs lockedBuffer
	ended := make(chan int, 1)
	go func() {
		c := cli{environ: []string{"FLOWGATE_ADMIN_LISTEN=" + g.admin}, stdout: &out, stderr: &errs}
		ended <- c.run(ctx, []string{"record", file})
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if info, err := os.Stat(file); err == nil && info.Size() > 0 { // it has begun
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no recording: %s", errs.String())
		}
	}
	nc, err := nats.Connect(g.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 12 {
		if _, err := js.Publish(t.Context(), "ingress.acme.orders.new", make([]byte, 100+i), jetstream.WithMsgID(fmt.Sprint("secret-", i%8)), jetstream.WithRetryAttempts(0)); err != nil {
			refused++
		}
	}
	time.Sleep(1500 * time.Millisecond) // they are sent each second
	stop()
	if code := <-ended; code != 0 || !strings.Contains(errs.String(), "12 tries in ") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	text, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	r, err := arrivals.ReadRecording(text)
	if err != nil || len(r.Tries) != 12 || r.Cut != "" || r.Missing != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, try := range r.Tries {
		if try.Tenant != "acme" || try.Topic != "orders.new" || try.Bytes != 100+i || try.Again != (i >= 8) {
			t.Errorf("%d: %+v", i, try)
		}
	}
	code, said, failed := asked(t, []string{limit}, "", "simulate", "--json", "--producers=recorded", file)
	var s simulation.Result
	if err := json.Unmarshal([]byte(said), &s); err != nil || code != 0 || int(s.Refused["rate_limited"]) != refused || refused != 7 {
		t.Errorf("%d refused, predicted %v; exit %d %s", refused, s.Refused, code, failed)
	}
	if code, _, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=" + g.admin}, "", "record", file); code != 1 || !strings.Contains(errs, "is there already") {
		t.Errorf("over a file: exit %d, %s", code, errs)
	}
}

// What could not be written is an error, also if the recording's end came as it should.
func TestKeepTellsWhatItCouldNotWrite(t *testing.T) {
	head, rest := "at_us,tenant\n", "1,acme\n# until 1000000\n"
	for _, packed := range []bool{false, true} {
		k, err := keep(full{}, packed, []byte(head), bufio.NewReader(strings.NewReader(rest)))
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("packed %v: %v, want no space", packed, err)
		}
		var out bytes.Buffer
		if k, err = keep(&out, packed, []byte(head), bufio.NewReader(strings.NewReader(rest))); err != nil || k.end != io.EOF || k.tries != 1 || k.until != time.Second {
			t.Errorf("packed %v: %+v, %v", packed, k, err)
		}
		if r, err := arrivals.ReadRecording(&out); err != nil || len(r.Tries) != 1 || r.Cut != "" {
			t.Errorf("packed %v: %+v, %v", packed, r, err)
		}
	}
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestRecordNeedsTheToken(t *testing.T) {
	g := serve(t, "FLOWGATE_ADMIN_TOKEN=sesame")
	for environ, want := range map[string]struct {
		code int
		says string
	}{
		"": {1, "wants its token"}, "FLOWGATE_ADMIN_TOKEN=sesame": {0, "0 tries in 1.5"},
	} {
		code, out, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=" + g.admin, environ}, "", "record", "--for=1500ms", "-")
		if until, _, _ := arrivals.Until(out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:]); code == 0 && until < 1500*time.Millisecond {
			t.Errorf("the recording goes to %s, want all of 1.5 s", until)
		}
		if code != want.code || !strings.Contains(errs, want.says) || code == 0 && !strings.HasPrefix(out, "at_us,tenant") {
			t.Errorf("%q: exit %d\n%s%s", environ, code, out, errs)
		}
	}
	absent := filepath.Join(t.TempDir(), "absent", "a.csv")
	if code, _, errs := asked(t, []string{"FLOWGATE_ADMIN_LISTEN=" + g.admin, "FLOWGATE_ADMIN_TOKEN=sesame"}, "", "record", "--for=1s", absent); code != 1 || errs != "flowgate: open "+absent+": no such file or directory\n" {
		t.Errorf("a file that cannot be: exit %d, %s", code, errs)
	}
	for _, args := range [][]string{{"record"}, {"record", "a", "b"}, {"record", "--for=x", "a"}, {"record", "--for=0", "a"}} {
		if code, _, errs := asked(t, nil, "", args...); code != 2 {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}
