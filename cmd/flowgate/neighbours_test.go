package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// somebodyElses starts a NATS server that is not the gateway's.
func somebodyElses(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

// streams lists the streams there are, with their limits in messages.
func streams(t *testing.T, url string) map[string]int64 {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	list := js.ListStreams(t.Context())
	for s := range list.Info() {
		found[s.Config.Name] = s.Config.MaxMsgs
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// On one NATS a name has one gateway, and a prefix one that answers it.
func TestTwoGatewaysOnOneNATS(t *testing.T) {
	url := somebodyElses(t)
	environ := func(more ...string) []string {
		return append([]string{"FLOWGATE_NATS_URL=" + url, "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off", "FLOWGATE_DATA_DIR=" + t.TempDir()}, more...)
	}
	run := func(environ []string) (stop func() int, log *lockedBuffer) {
		ctx, cancel := context.WithCancel(t.Context())
		log = &lockedBuffer{}
		ended := make(chan int, 1)
		go func() { ended <- cli{environ: environ, stdout: &bytes.Buffer{}, stderr: log}.run(ctx, nil) }()
		stop = func() int { cancel(); return <-ended }
		for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), `"msg":"ready"`); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not ready:\n%s", log.String())
			}
		}
		return stop, log
	}
	stop, _ := run(environ())
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"of another name on its subject": {environ("FLOWGATE_NAME=second"), "FLOWGATE_INGRESS_PREFIX"},
		"of another name, below it":      {environ("FLOWGATE_NAME=second", "FLOWGATE_INGRESS_PREFIX=ingress.acme"), "the gateway flowgate answers ingress.>"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := try(t, c.environ, "serve")
			if code != 1 || !strings.Contains(errs, c.want) || strings.Count(strings.TrimSpace(errs), "\n") > 0 {
				t.Errorf("exit %d\n%s", code, errs)
			}
		})
	}
	// One of the same name stands by, and ends in order when it is told to.
	waits := &lockedBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- cli{environ: environ("FLOWGATE_BACKPRESSURE_HIGH=5"), stdout: &bytes.Buffer{}, stderr: waits}.run(ctx, nil)
	}()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(waits.String(), "standing by"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not stand by:\n%s", waits.String())
		}
	}
	cancel()
	if n := <-code; n != 0 {
		t.Errorf("one that stood by ended with %d", n)
	}
	if names := streams(t, url); len(names) != 4 || names["FLOWGATE"] != 20_000 {
		t.Errorf("those who were refused left streams %v; want the first one's, with its own limit", names)
	}
	// Apart in name and prefix, they share the NATS.
	second, _ := run(environ("FLOWGATE_NAME=second", "FLOWGATE_INGRESS_PREFIX=other"))
	if code := second(); code != 0 {
		t.Errorf("the second one ended with %d", code)
	}
	if code := stop(); code != 0 {
		t.Errorf("the first one ended with %d", code)
	}
	// A name that was given back is taken at once.
	began := time.Now()
	again, _ := run(environ())
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a name that was given back took %s", took)
	}
	again()
}
