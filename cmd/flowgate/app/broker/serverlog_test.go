package broker

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

func TestServerLogLines(t *testing.T) {
	var log bubble.Log
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	b, err := Start(t.Context(), cfg, log.Logger(slog.LevelDebug))
	if err != nil {
		t.Fatal(err)
	}
	producer := client(t, b.ClientURL())
	for range 1000 { // each is an error in the server's log
		if err := producer.Publish("forbidden", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := producer.Flush(); err != nil {
		t.Fatal(err)
	}
	producer.Close()
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if n := strings.Count(text, "forbidden"); n < 1 || n > 30 {
		t.Errorf("1,000 refused messages made %d lines", n)
	}
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "component=broker") {
			t.Errorf("a line without its component: %s", line)
		}
	}
	if strings.Contains(text, "level=INFO") {
		t.Errorf("the server's notices are for debugging:\n%s", text)
	}
	if strings.Contains(text, b.password) || strings.Contains(strings.ToLower(text), "plaintext") {
		t.Error("the log tells of passwords")
	}
}

// A reply that comes late, or after another, is no error; what else is refused is one.
func TestALateReplyIsNoError(t *testing.T) {
	var log bubble.Log
	cfg := testConfig(t.TempDir())
	cfg.Listen, cfg.Deliveries, cfg.Replies = "127.0.0.1:0", "out", time.Minute
	b, err := Start(t.Context(), cfg, log.Logger(slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close(t.Context()) }()
	nc, _ := gateway(t, b)
	consumer := client(t, b.ClientURL())
	sub, err := consumer.SubscribeSync("out.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := consumer.Flush(); err != nil {
		t.Fatal(err)
	}
	inbox := nc.NewInbox()
	if err := nc.PublishRequest("out.acme.orders", inbox, nil); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := consumer.Publish("forbidden", nil); err != nil {
		t.Fatal(err)
	}
	if err := consumer.Flush(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Contains(text, inbox) || !strings.Contains(text, "forbidden") {
		t.Errorf("the log:\n%s", text)
	}
}
