package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestJSONLine(t *testing.T) {
	m := aDelivery(1)
	m.ID = "acme/a\"b\\c\x01\x7f\u2028\n\t\r"
	m.Payload = []byte(`{"x":"ü"}`)
	m.Headers = map[string][]string{"K": {"v", "bad\xff"}}
	const want = `{"id":"acme/a\"b\\c\u0001` + "\x7f\u2028" + `\n\t\r","tenant":"acme","topic":"orders.new","seq":1,"attempt":1,"payload":"{\"x\":\"ü\"}","headers":{"K":["v","bad` + "\uFFFD" + `"]},"admitted_at":"2026-11-12T13:14:15.161718Z","released_at":"2026-11-12T13:14:15.163218Z"}` + "\n"
	if diff := cmp.Diff(want, string(appendLine(nil, m))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m = aDelivery(2)
	m.Payload = []byte("\xff\x00")
	m.AdmittedAt = m.AdmittedAt.In(time.FixedZone("east", 3600))
	line := string(appendLine(nil, m))
	for _, part := range []string{`"payload_base64":"/wA="`, `"headers":{}`, `"admitted_at":"2026-11-12T13:14:15.161718Z"`} {
		if !strings.Contains(line, part) {
			t.Errorf("no %s in %s", part, line)
		}
	}
	if strings.Contains(line, `"payload":`) {
		t.Errorf("two payloads: %s", line)
	}
}

// lineRead is what a reader makes of a line.
type lineRead struct {
	ID, Tenant, Topic string
	Seq               uint64
	Attempt           int
	Payload           *string
	PayloadBase64     []byte `json:"payload_base64"`
	Headers           map[string][]string
	AdmittedAt        time.Time `json:"admitted_at"`
	ReleasedAt        time.Time `json:"released_at"`
}

// Whatever a message holds, a JSON parser reads it back, from one line.
func TestJSONLineIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		m := Delivery{
			ID: text.Draw(t, "id"), Tenant: text.Draw(t, "tenant"), Topic: text.Draw(t, "topic"),
			Seq: rapid.Uint64().Draw(t, "seq"), Attempt: rapid.Int().Draw(t, "attempt"), Payload: []byte(text.Draw(t, "payload")),
			Headers:    map[string][]string{rapid.String().Draw(t, "name"): rapid.SliceOf(text).Draw(t, "values")},
			AdmittedAt: time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "admitted")), ReleasedAt: time.Unix(0, 1),
		}
		line := appendLine(nil, m)
		if bytes.IndexByte(line, '\n') != len(line)-1 || !utf8.Valid(line) {
			t.Fatalf("not one line of UTF-8: %q", line)
		}
		var got lineRead
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		clean := func(s string) string { return string([]rune(s)) }
		if got.ID != clean(m.ID) || got.Tenant != clean(m.Tenant) || got.Topic != clean(m.Topic) || got.Seq != m.Seq || got.Attempt != m.Attempt || !got.AdmittedAt.Equal(m.AdmittedAt) {
			t.Fatalf("%+v from %+v", got, m)
		}
		if utf8.Valid(m.Payload) {
			if got.Payload == nil || *got.Payload != string(m.Payload) || got.PayloadBase64 != nil {
				t.Fatalf("payload %q: %q", m.Payload, line)
			}
		} else if got.Payload != nil || !bytes.Equal(got.PayloadBase64, m.Payload) {
			t.Fatalf("payload %q: %q", m.Payload, line)
		}
		for name, values := range m.Headers {
			for i, v := range values {
				if got.Headers[clean(name)][i] != clean(v) {
					t.Fatalf("header %q: %q of %q", name, got.Headers, values)
				}
			}
		}
	})
}

// writes notes each Write, and answers as it is told.
type writes struct {
	mu  sync.Mutex
	got [][]byte
	n   int // how much of the next Write succeeds, with err
	err error
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := len(p), w.err
	if err != nil {
		n = min(w.n, n)
	}
	w.got = append(w.got, bytes.Clone(p[:n]))
	return n, err
}

func (w *writes) all() string { return string(bytes.Join(w.got, nil)) }

// ids are those of the lines that can be read.
func lineIDs(t *testing.T, text string) (ids []string, torn int) {
	t.Helper()
	for line := range strings.Lines(text) {
		var got lineRead
		if json.Unmarshal([]byte(line), &got) != nil {
			torn++
			continue
		}
		ids = append(ids, got.ID)
	}
	return ids, torn
}

func TestStdoutWritesABatchAtOnce(t *testing.T) {
	w := &writes{}
	s := NewStdout(w)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				for _, err := range s.Deliver(t.Context(), deliveries(5)) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	if len(w.got) != 160 {
		t.Errorf("%d writes for 160 batches", len(w.got))
	}
	for _, one := range w.got {
		got, torn := lineIDs(t, string(one))
		if diff := cmp.Diff([]string{"acme/1", "acme/2", "acme/3", "acme/4", "acme/5"}, got); diff != "" || torn > 0 {
			t.Fatalf("a write of another form: %q", one)
		}
	}
}

// A full disk ends no process and loses no message: what went out whole is done, and
// the line that was torn is ended before the next.
func TestStdoutIsFull(t *testing.T) {
	w := &writes{}
	s := NewStdout(w)
	line := len(appendLine(nil, aDelivery(1)))
	w.n, w.err = line+10, syscall.ENOSPC
	answers := s.Deliver(t.Context(), deliveries(3))
	wantKinds(t, answers, Done, Overload, Overload)
	wantError(t, answers[1], "stdout", "no space left")
	w.n = 0
	wantKinds(t, s.Deliver(t.Context(), deliveries(2)[1:]), Overload)
	w.err = nil
	wantKinds(t, s.Deliver(t.Context(), deliveries(3)[1:]), Done, Done)
	wantKinds(t, s.Deliver(t.Context(), deliveries(1)), Done)
	got, torn := lineIDs(t, w.all())
	if diff := cmp.Diff([]string{"acme/1", "acme/2", "acme/3", "acme/1"}, got); diff != "" || torn != 1 {
		t.Errorf("%q", w.all())
	}
}

// A reader that stops holds deliveries up and not the gateway: Deliver ends with its
// context. When it reads again all goes on.
func TestStdoutIsNotRead(t *testing.T) {
	in, out := io.Pipe()
	s := NewStdout(out)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	hangs := s.Deliver(ctx, deliveries(2))
	wantKinds(t, hangs, Overload, Overload)
	wantError(t, hangs[0], "does its reader read?")
	wantKinds(t, s.Deliver(ctx, deliveries(1)), Overload) // behind it

	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(in)
		read <- string(text)
	}()
	deliver(t, s, aDelivery(9), Done)
	_ = out.Close()
	got, torn := lineIDs(t, <-read)
	if diff := cmp.Diff([]string{"acme/1", "acme/2", "acme/9"}, got); diff != "" || torn > 0 {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// A real pipe whose reader is gone, and a real device that is full.
func TestStdoutFaults(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	defer func() { _ = out.Close() }()
	if err := deliver(t, NewStdout(out), aDelivery(1), Overload); !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here:", err)
	}
	defer func() { _ = full.Close() }()
	if err := deliver(t, NewStdout(full), aDelivery(1), Overload); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}

func TestStdoutURL(t *testing.T) {
	wantError(t, ValidateURL("stdout:/dev/null"), "stdout:")
	cfg := testConfig()
	cfg.URL = "stdout:"
	_, err := Open(t.Context(), cfg, Deps{Logger: quiet()})
	wantError(t, err, "FLOWGATE_CONSUMER_URL", "standard output")
	var w bytes.Buffer
	d, err := Open(t.Context(), cfg, Deps{Logger: quiet(), Stdout: &w})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, d, aDelivery(1), Done)
	if got, _ := lineIDs(t, w.String()); len(got) != 1 || got[0] != "acme/1" {
		t.Errorf("%q", w.String())
	}
}

func BenchmarkStdout(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	m := aDelivery(1)
	m.Payload = bytes.Repeat([]byte("payload "), 32)
	m.Headers = map[string][]string{"Nats-Msg-Id": {"1"}, "traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // as a delivery has
	defer cancel()
	for _, n := range []int{1, 100} {
		batch := make([]Delivery, n)
		for i := range batch {
			batch[i] = m
		}
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			s := NewStdout(null)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Deliver(ctx, batch)[0]; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/msg")
		})
	}
	b.Run("line", func(b *testing.B) {
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			buf = appendLine(buf[:0], m)
		}
	})
	b.Run("line with encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(lineRead{ID: m.ID, Tenant: m.Tenant, Topic: m.Topic, Seq: m.Seq, PayloadBase64: m.Payload, Headers: m.Headers, AdmittedAt: m.AdmittedAt}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
