package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/bubble"
)

// try runs the command line and returns what it wrote.
func try(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = cli{environ: environ, stdout: &out, stderr: &errs}.run(ctx, args)
	return code, out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args     string
		environ  string
		code     int
		out, err string // what is among it
	}{
		{"help", "", 0, "usage: flowgate [command]", ""},
		{"--help", "", 0, "usage: flowgate [command]", ""},
		{"help check", "", 0, "usage: flowgate check [--online]\n", ""},
		{"help chekc", "", 2, "", "unknown command \"chekc\"; `flowgate help` lists"},
		{"help dlq", "", 0, "dlq list [options]", ""},
		{"help dlq lst", "", 2, "", "dlq is followed by one of these:\n  dlq list"},
		{"help check x", "", 2, "", "\"x\" is not understood after check"},
		{"pause --for=99999999h", "", 2, "", "\"99999999h\" is too long: durations end at 2562047h"},
		{"serve -h", "", 0, "usage: flowgate serve\n", ""},
		{"env -h", "", 0, "usage: flowgate env", ""},
		{"version", "", 0, "flowgate ", ""},
		{"version --json", "", 0, `"version"`, ""},
		{"vesrion", "", 2, "", `unknown command "vesrion"`},
		{"version now", "", 2, "", `"now" is not understood after version`},
		{"env --format=xml", "", 2, "", "there are table, md, dotenv, json"},
		{"env --verbose", "", 2, "", "usage: flowgate env [--format"},
		{"env", "", 0, "FLOWGATE_SHAPER_RATE", ""},
		{"env --format=json", "FLOWGATE_SHAPER_RATE=12/m", 0, `"value": "12/m"`, ""},
		{"env --format=dotenv", "FLOWGATE_CONSUMER_URL=postgres://u:geheim@h/d", 0, "postgres://u:******@h/d", ""},
		{"env", "FLOWGATE_SHAPER_RATE=fast", 1, "fast", `FLOWGATE_SHAPER_RATE: "fast"`},
		{"check", "", 0, "refused at 10000, admitted again at 8000, never above 20000", ""},
		{"check", "FLOWGATE_SHAPER_RATE=fast", 1, "", `FLOWGATE_SHAPER_RATE: "fast"`},
		{"check", "FLOWGATE_BACKPRESSURE_HIGH=5;FLOWGATE_BACKPRESSURE_LOW=6", 1, "", "below FLOWGATE_BACKPRESSURE_HIGH=5"},
		{"check", "FLOWGATE_SHAPPER_RATE=1/s", 1, "", "did you mean FLOWGATE_SHAPER_RATE?"},
		{"serve", "FLOWGATE_SHAPER_RATE=fast;FLOWGATE_CONSUMER_TIMEOUT=10", 1, "", "FLOWGATE_CONSUMER_TIMEOUT"},
		{"", "FLOWGATE_SHAPER_RATE=fast", 1, "", "FLOWGATE_SHAPER_RATE"},
	} {
		t.Run(c.args+" "+c.environ, func(t *testing.T) {
			code, out, err := try(t, strings.Split(c.environ, ";"), strings.Fields(c.args)...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(err, c.err) {
				t.Errorf("exit %d, want %d\nstdout %s\nstderr %s", code, c.code, out, err)
			}
			if strings.Contains(out+err, "geheim") {
				t.Error("a password is shown")
			}
		})
	}
}

// What cannot be used stops the start with one clear line, and leaves nothing.
func TestStartFailsClearly(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ environ, want string }{
		"client port in use":  {"FLOWGATE_NATS_LISTEN=" + busy.Addr().String(), "FLOWGATE_NATS_LISTEN"},
		"admin port in use":   {"FLOWGATE_NATS_LISTEN=off;FLOWGATE_ADMIN_LISTEN=" + busy.Addr().String(), "FLOWGATE_ADMIN_LISTEN"},
		"HTTP port in use":    {"FLOWGATE_NATS_LISTEN=off;FLOWGATE_INGRESS_HTTP_LISTEN=" + busy.Addr().String(), "FLOWGATE_INGRESS_HTTP_LISTEN"},
		"no API keys":         {"FLOWGATE_NATS_LISTEN=off;FLOWGATE_INGRESS_API_KEYS_FILE=" + file, "FLOWGATE_INGRESS_API_KEYS_FILE"},
		"no HTTP certificate": {"FLOWGATE_NATS_LISTEN=off;FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0;FLOWGATE_INGRESS_HTTP_TLS_CERT=" + file + ";FLOWGATE_INGRESS_HTTP_TLS_KEY=" + file, "FLOWGATE_INGRESS_HTTP_TLS_CERT"},
		"no data directory":   {"FLOWGATE_DATA_DIR=" + file + "/data", "FLOWGATE_DATA_DIR"},
		"no such server":      {"FLOWGATE_NATS_URL=nats://127.0.0.1:1", "nats://127.0.0.1:1"},
		"no such directory":   {"FLOWGATE_NATS_LISTEN=off;FLOWGATE_CONSUMER_URL=sqlite:" + file + "/x/y.db", "sqlite database"},
		"not a database":      {"FLOWGATE_NATS_LISTEN=off;FLOWGATE_CONSUMER_URL=sqlite:" + os.Args[0], "sqlite database"},
		"no certificate file": {"FLOWGATE_NATS_URL=tls://127.0.0.1:1;FLOWGATE_NATS_TLS_CA=" + file + ".pem", "file.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			environ := []string{"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off"}
			overrides := strings.Split(c.environ, ";")
			for _, o := range overrides {
				key, _, _ := strings.Cut(o, "=")
				for i := range environ {
					if strings.HasPrefix(environ[i], key+"=") || key == "FLOWGATE_NATS_URL" && strings.HasPrefix(environ[i], "FLOWGATE_NATS_LISTEN") {
						environ[i] = ""
					}
				}
			}
			code, out, errs := try(t, append(environ, overrides...), "serve")
			lines := strings.Split(strings.TrimSpace(errs), "\n")
			if last := lines[len(lines)-1]; code != 1 || !strings.HasPrefix(last, "flowgate: ") || !strings.Contains(last, c.want) || len(lines) > 1 {
				t.Errorf("exit %d, stdout %q, stderr\n%s", code, out, errs)
			}
		})
	}
}

// What stops a start over a file that the configuration names, check says too, and all
// of it at once.
func TestCheckReadsTheFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("only-a-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := try(t, []string{"FLOWGATE_INGRESS_API_KEYS_FILE=" + file, "FLOWGATE_INGRESS_HTTP_TLS_CERT=" + file, "FLOWGATE_INGRESS_HTTP_TLS_KEY=" + file}, "check")
	if code != 1 || out != "" || !strings.Contains(errs, "API_KEYS_FILE: "+file+":1: 1 words") || !strings.Contains(errs, "HTTP_TLS_CERT") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if code, _, errs := try(t, []string{"FLOWGATE_INGRESS_API_KEYS_FILE=" + file + "x"}, "check"); code != 1 || !strings.Contains(errs, "no such file") {
		t.Errorf("a missing file: exit %d\n%s", code, errs)
	}
	if err := os.WriteFile(file, []byte("key acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := try(t, []string{"FLOWGATE_INGRESS_API_KEYS_FILE=" + file}, "check"); code != 0 {
		t.Errorf("a good one: exit %d\n%s", code, errs)
	}
}

func TestCheckOnline(t *testing.T) {
	code, out, errs := try(t, []string{"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=off"}, "check", "--online")
	if code != 0 || strings.Contains(out, "[-]") || strings.Count(out, "[+]") < 8 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	code, out, _ = try(t, []string{"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=off",
		"FLOWGATE_CONSUMER_URL=postgres://u:geheim@127.0.0.1:1/d"}, "check", "--online")
	if code != 1 || !strings.Contains(out, "[-] consumer") || strings.Contains(out, "geheim") {
		t.Errorf("without a database: exit %d\n%s", code, out)
	}
}

func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out, errs lockedBuffer
	c := cli{environ: []string{"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_HTTP_LISTEN=off"},
		stdout: &out, stderr: &errs}
	ended := make(chan int)
	go func() { ended <- c.run(ctx, nil) }()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(errs.String(), `"msg":"ready"`); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not ready:\n%s", errs.String())
		}
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d", code)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(errs.String()), "\n") {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" {
			t.Errorf("log line %q: %v", line, err)
		}
	}
}

// Without a collector there is no tracer; what is wrong with its variables is told and
// stops nothing.
func TestTheTracer(t *testing.T) {
	cfg, err := settings.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	const to = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, c := range []struct {
		environ []string
		log     string
	}{
		{nil, ""},
		{[]string{"OTEL_SERVICE_NAME=x"}, ""},
		{[]string{to, "OTEL_SDK_DISABLED=true"}, ""},
		{[]string{to, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "http/protobuf alone is supported"},
	} {
		var log bubble.Log
		if (cli{environ: c.environ}).tracer(cfg, log.Logger(slog.LevelDebug)) != nil || !strings.Contains(log.String(), c.log) || (log.String() == "") != (c.log == "") {
			t.Errorf("%v: the log says %q", c.environ, log.String())
		}
	}
}
