package consumers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSQLitePaths(t *testing.T) {
	for name, file := range map[string]string{
		"question mark": "what?.db", "query": "a.db?mode=memory&cache=shared", "hash": "a#b.db", "percent": "100%.db", "escape": "a%20b.db",
		"spaces": " a b .db", "quote": "it's \"it\".db", "colon": "file:a.db", "plus": "a+b.db", "letters": "données-日本.db", "memory": ":memory:",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "in "+strings.TrimSuffix(file, ".db"))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, file)
			for n := 1; n <= 2; n++ { // the second finds what the first wrote
				s, err := OpenSQLite(t.Context(), path, Config{}, nil, quiet())
				if err != nil {
					t.Fatal(err)
				}
				deliver(t, s, aDelivery(n), Done)
				if n := scan[int](t, s.db, `SELECT count(*) FROM flowgate_messages WHERE seq <= ?`, n); n == 0 {
					t.Error("nothing stored")
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			files, err := filepath.Glob(filepath.Join(strings.NewReplacer("?", `\?`).Replace(dir), "*"))
			if err != nil || len(files) != 1 || files[0] != path {
				t.Errorf("files %q, %v; want %q alone", files, err, path)
			}
		})
	}
}

func TestSQLiteRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	s := openSQLite(t, "here.db", nil)
	// A later change of directory is no other database, even to a connection that is
	// made anew.
	t.Chdir(t.TempDir())
	deliver(t, s, aDelivery(1), Done)
	s.db.SetMaxIdleConns(0)
	deliver(t, s, aDelivery(1), Done)
	if n := scan[int](t, s.db, `SELECT count(*) FROM flowgate_messages`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

func TestSQLiteOpenFails(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign.db")
	db := reader(t, foreign)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE flowgate_messages (id text PRIMARY KEY, payload blob, note text)`); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path string
		says []string
	}{
		"no directory":    {filepath.Join(dir, "absent", "messages.db"), []string{"absent/messages.db", "its directory", "no such file"}},
		"file for a dir":  {filepath.Join(write("plain", nil), "messages.db"), []string{"plain", "not a directory"}},
		"a directory":     {dir, []string{dir, "unable to open"}},
		"no database":     {write("text.db", []byte(strings.Repeat("this is no database. ", 200))), []string{"text.db", "not a database"}},
		"missing columns": {foreign, []string{"foreign.db", "flowgate_messages", "tenant, topic, seq, attempt, headers, admitted_at, released_at, written_at", "rename"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := OpenSQLite(t.Context(), test.path, Config{}, nil, quiet())
			if err == nil {
				_ = s.Close()
			}
			wantError(t, err, test.says...)
		})
	}
	if text, err := os.ReadFile(filepath.Join(dir, "text.db")); err != nil || !strings.HasPrefix(string(text), "this is no database") {
		t.Errorf("the file that is no database was changed: %.20q, %v", text, err)
	}
}

func TestSQLiteExistingTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	db := reader(t, path)
	// Wider than ours, and stricter: a row may break a rule of the owner's.
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE flowgate_messages (
		written_at bigint, released_at bigint, admitted_at bigint, headers text, payload blob, attempt int, seq bigint,
		topic text, tenant text CHECK (tenant <> 'banned'), id text PRIMARY KEY, note text DEFAULT 'mine')`); err != nil {
		t.Fatal(err)
	}
	s := openSQLite(t, path, nil)
	batch := deliveries(5)
	batch[2].Tenant = "banned"
	answers := s.Deliver(t.Context(), batch)
	wantKinds(t, answers, Done, Done, Reject, Done, Done)
	wantError(t, answers[2], "CHECK")
	if n := scan[int](t, db, `SELECT count(*) FROM flowgate_messages WHERE note = 'mine' AND seq <> 3`); n != 4 {
		t.Errorf("%d neighbours stand, want 4", n)
	}
}

func TestSQLiteLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	pragma(t, s, "busy_timeout(50)") // in place of 5 s
	deliver(t, s, aDelivery(1), Done)
	lock := lockSQLite(t, path)
	wantError(t, deliver(t, s, aDelivery(2), Overload), "locked")
	wantKinds(t, s.Deliver(t.Context(), deliveries(3)), Overload, Overload, Overload)
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantKinds(t, s.Deliver(t.Context(), deliveries(3)), Done, Done, Done)
	if n := scan[int](t, reader(t, path), `SELECT count(*) FROM flowgate_messages`); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// TestSQLiteLockedPastTheTimeout has the attempt end before SQLite gives up: the
// message is still not at fault.
func TestSQLiteLockedPastTheTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	lock := lockSQLite(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	answers := s.Deliver(ctx, deliveries(2))
	wantKinds(t, answers, Overload, Overload)
	if !errors.Is(answers[0], context.DeadlineExceeded) {
		t.Errorf("the verdict does not tell the cause: %v", answers[0])
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantKinds(t, s.Deliver(t.Context(), deliveries(2)), Done, Done)
}

func TestSQLiteCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	lock := lockSQLite(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan []error)
	go func() { answers <- s.Deliver(ctx, deliveries(1)) }()
	waitWriting(t, s)
	cancel()
	for _, err := range <-answers { // though the lock is held
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, aDelivery(1), Done)
}

func pragma(t *testing.T, s *SQLite, pragma string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "PRAGMA "+pragma)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rows.Close(), rows.Err()); err != nil {
		t.Fatal(err)
	}
}

// TestSQLiteFaults makes the database fail as a whole: no message is to blame, none
// is stored in part, and all are taken once the fault is gone.
func TestSQLiteFaults(t *testing.T) {
	exec := func(statement string) func(*testing.T, *sql.DB) {
		return func(t *testing.T, db *sql.DB) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *sql.DB)
		says       string
	}{
		"disk full":     {exec("PRAGMA max_page_count = 1"), exec("PRAGMA max_page_count = 1000000"), "full"},
		"read-only":     {exec("PRAGMA query_only = 1"), exec("PRAGMA query_only = 0"), "readonly"},
		"table renamed": {exec("ALTER TABLE flowgate_messages RENAME TO away"), exec("ALTER TABLE away RENAME TO flowgate_messages"), "no such table"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openSQLite(t, filepath.Join(t.TempDir(), "messages.db"), nil)
			batch := deliveries(20)
			for i := range batch {
				batch[i].Payload = fmt.Appendf(nil, "%01000d", i)
			}
			fault.begin(t, s.db)
			for _, err := range s.Deliver(t.Context(), batch) {
				if Judge(err).Kind != Overload {
					t.Fatalf("verdict %v, want overload", err)
				}
				wantError(t, err, fault.says)
			}
			fault.end(t, s.db)
			if n := scan[int](t, s.db, `SELECT count(*) FROM flowgate_messages`); n != 0 {
				t.Errorf("%d rows stand of a transaction that failed", n)
			}
			for _, err := range s.Deliver(t.Context(), batch) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
