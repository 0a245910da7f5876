package consumers

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/bubble"
)

// openSQLite opens a database file and closes it with the test.
func openSQLite(t *testing.T, path string, reg prometheus.Registerer) *SQLite {
	t.Helper()
	s, err := OpenSQLite(t.Context(), path, Config{}, reg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// reader opens the file as another program does, with SQLite's own defaults.
func reader(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func scan[T any](t *testing.T, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestSQLiteTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	d := aDelivery(7)
	d.Attempt = 3
	d.Headers = map[string][]string{"K": {"v"}, "Many": {"a", "b"}, "Odd": {"\xff\x00<é"}}
	before := time.Now()
	deliver(t, s, d, Done)
	after := time.Now()
	// What is called stored must outlive a power cut, and another program's lock is
	// waited for.
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
		if got := scan[string](t, s.db, "PRAGMA "+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}

	db := reader(t, path)
	var columns []string
	rows, err := db.QueryContext(t.Context(), `SELECT name || ' ' || lower(type) || CASE pk WHEN 1 THEN ' primary key' ELSE '' END FROM pragma_table_info('flowgate_messages')`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c string
		if err := rows.Scan(&c); err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	if diff := cmp.Diff([]string{
		"id text primary key", "tenant text", "topic text", "seq bigint", "attempt int", "payload blob", "headers text",
		"admitted_at bigint", "released_at bigint", "written_at bigint",
	}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}

	var row struct {
		id, tenant, topic, headers        string
		seq, attempt                      int
		payload                           []byte
		admitted, released, written       int64
		payloadType, headersType, timeTyp string
	}
	if err := db.QueryRowContext(t.Context(), `SELECT id, tenant, topic, seq, attempt, payload, headers, admitted_at, released_at, written_at,
		typeof(payload), typeof(headers), typeof(admitted_at) FROM flowgate_messages`).Scan(
		&row.id, &row.tenant, &row.topic, &row.seq, &row.attempt, &row.payload, &row.headers, &row.admitted, &row.released, &row.written,
		&row.payloadType, &row.headersType, &row.timeTyp); err != nil {
		t.Fatal(err)
	}
	if row.id != "acme/7" || row.tenant != "acme" || row.topic != "orders.new" || row.seq != 7 || row.attempt != 3 || string(row.payload) != "payload 7" {
		t.Errorf("row %+v", row)
	}
	if row.payloadType != "blob" || row.headersType != "text" || row.timeTyp != "integer" {
		t.Errorf("types %s, %s, %s; want blob, text, integer", row.payloadType, row.headersType, row.timeTyp)
	}
	var headers map[string][]string
	if err := json.Unmarshal([]byte(row.headers), &headers); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"K": {"v"}, "Many": {"a", "b"}, "Odd": {"\uFFFD\uFFFD<é"}}, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if v := scan[string](t, db, `SELECT json_extract(headers, '$.Many[1]') FROM flowgate_messages`); v != "b" {
		t.Errorf("JSON in the database gives %q", v)
	}
	if want := int64(1794489255161718); row.admitted != want || row.released != want+1500 {
		t.Errorf("times %d and %d; want the microseconds %d and %d", row.admitted, row.released, want, want+1500)
	}
	if at := time.UnixMicro(row.written); at.Before(before.Truncate(time.Microsecond)) || at.After(after) {
		t.Errorf("written at %s, between %s and %s", at, before, after)
	}
}

func TestSQLitePayloadsStandAsTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := map[string][]byte{
		"nul": []byte("a\x00b\x00"), "invalid UTF-8": {0xff, 0xfe, 0xc3}, "every byte": all,
		"empty": {}, "nil": nil, "a MiB": bytes.Repeat([]byte{0, 1, 0xff, '\''}, 1<<18), "number": []byte("0123"),
	}
	for name, p := range payloads {
		d := aDelivery(1)
		d.ID, d.Payload = "acme/"+name, p
		deliver(t, s, d, Done)
		deliver(t, s, d, Done) // and is known again
	}
	db := reader(t, path)
	for name, p := range payloads {
		if got := scan[[]byte](t, db, `SELECT payload FROM flowgate_messages WHERE id = ?`, "acme/"+name); !bytes.Equal(got, p) {
			t.Errorf("%s: stored %d bytes %.20q, want %d bytes %.20q", name, len(got), got, len(p), p)
		}
		if typ := scan[string](t, db, `SELECT typeof(payload) FROM flowgate_messages WHERE id = ?`, "acme/"+name); typ != "blob" {
			t.Errorf("%s: stored as %s", name, typ)
		}
	}
}

func TestSQLiteRepeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	reg := prometheus.NewRegistry()
	log := &bubble.Log{}
	s, err := OpenSQLite(t.Context(), path, Config{}, reg, log.Logger(slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	conflicts := func(want float64) {
		t.Helper()
		wantSamples(t, reg, map[string]float64{"flowgate_consumer_conflicts_total": want})
	}
	d := aDelivery(1)
	deliver(t, s, d, Done)
	again := d
	again.Attempt, again.Seq, again.ReleasedAt = 2, 99, d.ReleasedAt.Add(time.Hour)
	deliver(t, s, again, Done)
	conflicts(0)

	other := again
	other.Payload = []byte("another payload")
	deliver(t, s, other, Done)
	conflicts(1)
	if !strings.Contains(log.String(), "id=acme/1") {
		t.Errorf("the log does not name the id:\n%s", log)
	}

	// In one batch, with one that is new and one twice.
	wantKinds(t, s.Deliver(t.Context(), []Delivery{other, aDelivery(2), aDelivery(2), aDelivery(3)}), Done, Done, Done, Done)
	conflicts(2)

	db := reader(t, path)
	if n := scan[int](t, db, `SELECT count(*) FROM flowgate_messages`); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	if got := scan[string](t, db, `SELECT payload || seq || '/' || attempt FROM flowgate_messages WHERE id = 'acme/1'`); got != "payload 11/1" {
		t.Errorf("the first row became %q", got)
	}
}

func TestSQLiteConcurrentDeliveries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	const writers, each = 32, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := w*each + i
				// Half alone, half with one that another writer has too.
				batch := []Delivery{aDelivery(n + 1)}
				if i%2 == 1 {
					batch = append(batch, aDelivery((n+each)%(writers*each)+1))
				}
				for j, err := range s.Deliver(t.Context(), batch) {
					if err != nil {
						t.Errorf("%s: %v", batch[j].ID, err)
					}
				}
			}
		})
	}
	wg.Wait()
	db := reader(t, path)
	rows, err := db.QueryContext(t.Context(), `SELECT seq, payload FROM flowgate_messages ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	next := 1
	for ; rows.Next(); next++ {
		var seq int
		var payload string
		if err := rows.Scan(&seq, &payload); err != nil {
			t.Fatal(err)
		}
		if seq != next || payload != "payload "+strconv.Itoa(next) {
			t.Fatalf("row %d has seq %d and %q", next, seq, payload)
		}
	}
	if next != writers*each+1 {
		t.Errorf("%d rows, want %d", next-1, writers*each)
	}
}

func TestSQLiteCloseWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	lock := lockSQLite(t, path)
	answers := make(chan error, 1)
	go func() { answers <- s.Deliver(t.Context(), deliveries(1))[0] }()
	waitWriting(t, s)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("Close did not wait for the write: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-answers; err != nil {
		t.Errorf("the write that Close waited for: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	if n := scan[int](t, reader(t, path), `SELECT count(*) FROM flowgate_messages`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	deliver(t, s, aDelivery(2), Overload) // closed: an orderly answer
}

// lockSQLite takes the write lock of a database, as another program may.
func lockSQLite(t *testing.T, path string) *sql.Tx {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// waitWriting waits until the writer has taken all that is queued.
func waitWriting(t *testing.T, s *SQLite) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		taken := s.writing && len(s.queue) == 0
		s.mu.Unlock()
		if taken {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was written")
		}
	}
}
