package app

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
)

// TestRetention has a gateway delete the old rows of its table.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kept.db")
	made, err := consumers.OpenSQLite(t.Context(), path, consumers.Config{}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_ = made.Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for id, age := range map[string]time.Duration{"old": time.Hour, "young": time.Minute} {
		if _, err := db.ExecContext(t.Context(), `INSERT INTO flowgate_messages VALUES (?, '', '', 1, 1, '', '{}', 0, 0, ?)`, id, time.Now().Add(-age).UnixMicro()); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := settings.Load([]string{
		"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_INGRESS_HTTP_LISTEN=off",
		"FLOWGATE_CONSUMER_URL=sqlite:" + path, "FLOWGATE_CONSUMER_RETENTION=30m",
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Config: cfg, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var left string
		if err := db.QueryRowContext(t.Context(), `SELECT group_concat(id) FROM flowgate_messages`).Scan(&left); err == nil && left == "young" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("rows %q, %v; want the young one", left, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
