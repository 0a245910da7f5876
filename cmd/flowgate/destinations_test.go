package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// serving runs `flowgate serve` with its own broker and returns a producer's connection.
func serving(t *testing.T, stdout io.Writer, environ ...string) *nats.Conn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log := &lockedBuffer{}
	ended := make(chan int, 1)
	environ = append([]string{
		"FLOWGATE_DATA_DIR=" + t.TempDir(), "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
	}, environ...)
	go func() { ended <- cli{environ: environ, stdout: stdout, stderr: log}.run(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("exit %d\n%s", code, log.String())
		}
		if strings.Contains(log.String(), "hunter2") {
			t.Errorf("the log shows a secret:\n%s", log.String())
		}
	})
	var ready struct{ NATS string }
	for end := time.Now().Add(30 * time.Second); ready.NATS == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not ready:\n%s", log.String())
		}
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, `"msg":"ready"`) {
				if err := json.Unmarshal([]byte(line), &ready); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	nc, err := nats.Connect(ready.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// publish has messages admitted; their ids are their payloads too.
func publish(t *testing.T, nc *nats.Conn, ids ...string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := js.Publish(t.Context(), "ingress.acme.orders.new", []byte(id), jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
}

// arrived waits until the list has n.
func arrived(t *testing.T, n int, list func() []string) []string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got := list(); len(got) >= n {
			slices.Sort(got)
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d arrived", len(list()), n)
		}
	}
}

// Signed, with a password, through an overload: each message arrives, and the overload
// costs none of them an attempt.
func TestServeToHTTP(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string
	refused := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mu.Lock()
		defer mu.Unlock()
		if refused < 3 {
			refused++
			w.WriteHeader(503)
			return
		}
		_, password, _ := req.BasicAuth()
		if err := hook.Verify(body, req.Header); err != nil || password != "hunter2" || req.Header.Get("Flowgate-Attempt") != "1" || req.URL.Path != "/in" {
			t.Errorf("%s %v: %v", req.URL, req.Header, err)
		}
		got = append(got, req.Header.Get("Flowgate-Id")+"="+string(body))
	}))
	t.Cleanup(s.Close)
	nc := serving(t, io.Discard, "FLOWGATE_CONSUMER_URL="+strings.Replace(s.URL, "http://", "http://gate:hunter2@", 1)+"/in",
		"FLOWGATE_CONSUMER_HTTP_SECRET="+secret, "FLOWGATE_CONSUMER_BACKOFF=1ms", "FLOWGATE_CONSUMER_MAX_ATTEMPTS=1", "FLOWGATE_CONSUMER_BATCH=2")
	publish(t, nc, "a", "b", "c")
	all := arrived(t, 3, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) })
	if want := []string{"acme/a=a", "acme/b=b", "acme/c=c"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

// A client of the embedded server, without signing in, is the consumer: it replies, and a
// refusal of it is the message's.
func TestServeToNATS(t *testing.T) {
	nc := serving(t, io.Discard, "FLOWGATE_CONSUMER_URL=nats:out?ack=reply", "FLOWGATE_CONSUMER_BACKOFF=1ms")
	var mu sync.Mutex
	var got []string
	if _, err := nc.Subscribe("out.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		line := m.Subject + "=" + string(m.Data) + "#" + m.Header.Get("Flowgate-Attempt")
		got = append(got, line)
		answer := ""
		if string(m.Data) == "b" && m.Header.Get("Flowgate-Attempt") == "1" {
			answer = `{"error":{"code":500,"description":"try again"}}`
		}
		if err := m.Respond([]byte(answer)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	publish(t, nc, "a", "b")
	all := arrived(t, 3, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) })
	if want := []string{"out.acme.orders.new=a#1", "out.acme.orders.new=b#1", "out.acme.orders.new=b#2"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
	if err := nc.LastError(); err != nil {
		t.Errorf("the client was refused: %v", err)
	}
}

func TestServeToStdout(t *testing.T) {
	out := &lockedBuffer{}
	nc := serving(t, out, "FLOWGATE_CONSUMER_URL=stdout:")
	publish(t, nc, "a", "b")
	all := arrived(t, 2, func() (ids []string) {
		for line := range strings.Lines(out.String()) {
			var m struct{ ID, Payload string }
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			ids = append(ids, m.ID+"="+m.Payload)
		}
		return ids
	})
	if want := []string{"acme/a=a", "acme/b=b"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

// On a NATS of one's own a stream that holds the subjects is the consumer.
func TestServeIntoAStream(t *testing.T) {
	url := somebodyElses(t)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = serving(t, io.Discard, "FLOWGATE_CONSUMER_URL=nats:out?ack=reply", "FLOWGATE_NATS_URL="+url, "FLOWGATE_CONSUMER_BATCH=10")
	publish(t, nc, "a", "b", "c")
	arrived(t, 3, func() []string {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return make([]string, info.State.Msgs)
	})
	m, err := stream.GetMsg(t.Context(), 1)
	if err != nil || m.Header.Get("Nats-Msg-Id") != "acme/a" || m.Subject != "out.acme.orders.new" {
		t.Errorf("%+v, %v", m, err)
	}
}
