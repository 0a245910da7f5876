package consumers

import (
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

// ownPostgres opens a destination with a statement of one's own.
func ownPostgres(t *testing.T, url, statement string) *Postgres {
	t.Helper()
	p, err := OpenPostgres(Config{URL: url, Concurrency: 2, Timeout: 10 * time.Second, SQL: statement}, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func postgresOwn(t *testing.T, u string) {
	db := connect(t, u)
	db.do(`CREATE TABLE events (id text PRIMARY KEY, tenant text, topic text, seq numeric, attempt smallint, body jsonb, raw bytea, plain text,
		headers jsonb, admitted timestamptz, released timestamp, n int)`)
	const insert = `INSERT INTO events AS e VALUES (:id, :tenant, :topic, :seq, :attempt, convert_from(:payload, 'UTF8')::jsonb, :payload, :seq,
		:headers, :admitted_at, :released_at, 1) ON CONFLICT (id) DO UPDATE SET n = e.n + 1 -- counts repeats`
	for _, mode := range []string{"", "?default_query_exec_mode=exec", "?default_query_exec_mode=simple_protocol"} {
		db.do(`DELETE FROM events`)
		if mode == "?default_query_exec_mode=simple_protocol" {
			db.do(`SET timezone = 'UTC'`)
		}
		p := ownPostgres(t, u+mode, insert)
		if err := p.Ping(t.Context()); err != nil {
			t.Errorf("%s: ping: %v", mode, err)
		}
		batch := deliveries(30)
		for i := range batch {
			batch[i].Payload, batch[i].Headers = fmt.Appendf(nil, `{"n": %d}`, i+1), map[string][]string{"K": {"v"}}
		}
		want := make([]VerdictKind, len(batch))
		batch[7].Payload, want[7] = []byte("no JSON"), Reject
		batch[9].Payload, want[9] = []byte("\xff"), Reject
		wantKinds(t, p.Deliver(t.Context(), batch), want...)
		deliver(t, p, batch[0], Done)
		deliver(t, p, batch[7], Reject)
		wantKinds(t, p.Deliver(t.Context(), batch[:2]), Done, Done)
		db.wantText("28", `SELECT count(*) FROM events`)
		db.wantText(`acme/1|acme|orders.new|1|1|{"n": 1}|{"n": 1}|1|{"K": ["v"]}|3`,
			`SELECT concat_ws('|', id, tenant, topic, seq, attempt, body, convert_from(raw, 'UTF8'), plain, headers, n) FROM events WHERE id = 'acme/1'`)
		db.wantText("2026-11-12 13:14:15.161718|2026-11-12 13:14:15.163218", `SELECT concat_ws('|', admitted AT TIME ZONE 'UTC', released) FROM events WHERE id = 'acme/1'`)
	}
	db.wantText("true", `SELECT to_regclass('flowgate_messages') IS NULL`) // ours is not made

	// A payload goes into whatever the statement takes it for, and what does not fit is
	// the row's fault, not the statement's.
	for _, typ := range []string{"jsonb", "text", "uuid", "int", "bytea"} {
		db.do(`DROP TABLE IF EXISTS typed`, `CREATE TABLE typed (id text PRIMARY KEY, v `+typ+`)`)
		body := map[string]string{"jsonb": `[1]`, "text": "é", "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "int": "12", "bytea": "\x00\xff"}[typ]
		for _, mode := range []string{"", "?default_query_exec_mode=exec"} {
			p := ownPostgres(t, u+mode, `INSERT INTO typed VALUES (:id, :payload::`+typ+`) ON CONFLICT DO NOTHING`)
			good, bad := aDelivery(1), aDelivery(2)
			good.Payload, bad.Payload = []byte(body), []byte("\x00 no")
			deliver(t, p, good, Done)
			if typ != "bytea" {
				wantKinds(t, p.Deliver(t.Context(), []Delivery{bad, good}), Reject, Done)
				deliver(t, p, bad, Reject)
			}
		}
		db.wantText("1", `SELECT count(*) FROM typed`)
	}
}

// postgresOwnFaults: a statement that does not work is no message's fault, is told by
// name, and works once the database is as it says.
func postgresOwnFaults(t *testing.T, u string) {
	db := connect(t, u)
	for statement, test := range map[string]struct{ code, mend string }{
		`INSERT INTO absent VALUES (:id)`:                              {"42P01", `CREATE TABLE absent (id text)`},
		`INSERT INTO narrow (id, seq) VALUES (:id, :seq)`:              {"42703", `ALTER TABLE narrow ADD seq bigint`},
		`INSERT INTO keyless VALUES (:id) ON CONFLICT (id) DO NOTHING`: {"42P10", `ALTER TABLE keyless ADD PRIMARY KEY (id)`},
		`INSERT INTO keyless VALUES (:id) WHERE`:                       {"42601", ""},
		`INSERT INTO keyless SELECT absent_function(:id, :payload)`:    {"42883", ""},
		`INSERT INTO keyless SELECT :id::text WHERE 'x'::int = :seq`:   {"22P02", ""}, // not the rows' though its class is
	} {
		for _, mode := range []string{"", "?default_query_exec_mode=exec"} {
			if mode != "" && test.code == "22P02" {
				continue // there nothing tells what is the statement's
			}
			db.do(`DROP TABLE IF EXISTS narrow, keyless, absent`, `CREATE TABLE narrow (id text)`, `CREATE TABLE keyless (id text)`)
			p := ownPostgres(t, u+mode, statement)
			for range 2 {
				answers := p.Deliver(t.Context(), deliveries(3))
				wantKinds(t, answers, Overload, Overload, Overload)
				wantError(t, answers[2], test.code, "FLOWGATE_CONSUMER_SQL")
				wantError(t, deliver(t, p, aDelivery(1), Overload), test.code, "FLOWGATE_CONSUMER_SQL")
			}
			if test.code != "42P10" { // which the server sees when it plans
				wantError(t, p.Ping(t.Context()), test.code, "FLOWGATE_CONSUMER_SQL")
			}
			if test.mend != "" {
				db.do(test.mend)
				wantKinds(t, p.Deliver(t.Context(), deliveries(3)), Done, Done, Done)
			}
		}
	}
	// A column that changes its type under a prepared statement costs one attempt.
	db.do(`CREATE TABLE changing (id text, v bigint)`)
	p := ownPostgres(t, u, `INSERT INTO changing VALUES (:id, :seq)`)
	deliver(t, p, aDelivery(1), Done)
	db.do(`ALTER TABLE changing ALTER v TYPE date USING NULL`, `ALTER TABLE changing ALTER v TYPE text`)
	failed := 0
	for p.Deliver(t.Context(), deliveries(2))[0] != nil {
		if failed++; failed > 2 {
			t.Fatal("the statement stays broken")
		}
	}
}

// TestOwnStatementWithoutID is warned of: repeats are the statement's affair.
func TestOwnStatementWithoutID(t *testing.T) {
	for statement, warns := range map[string]bool{`INSERT INTO t VALUES (:payload)`: true, `INSERT INTO t VALUES (:id)`: false} {
		log := &bubble.Log{}
		s, err := OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "own.db"), Config{SQL: statement}, nil, log.Logger(slog.LevelInfo))
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		if got := strings.Contains(log.String(), "does not use :id"); got != warns {
			t.Errorf("%s: warned %v, want %v", statement, got, warns)
		}
	}
}

func ownSQLite(t *testing.T, path string, cfg Config) *SQLite {
	t.Helper()
	s, err := OpenSQLite(t.Context(), path, cfg, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func execSQLite(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestSQLiteOwnStatement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.db")
	s := ownSQLite(t, path, Config{SQL: `INSERT INTO events VALUES (:id, :tenant, :topic, :seq, :attempt, json(:payload), :headers, :admitted_at, :released_at, 1)
		ON CONFLICT (id) DO UPDATE SET n = n + 1 RETURNING n;`})
	// No such table yet: nobody's message's fault.
	answers := s.Deliver(t.Context(), deliveries(2))
	wantKinds(t, answers, Overload, Overload)
	wantError(t, answers[0], "FLOWGATE_CONSUMER_SQL", "no such table")
	wantError(t, s.Ping(t.Context()), "FLOWGATE_CONSUMER_SQL", "no such table")

	db := reader(t, path)
	execSQLite(t, db, `CREATE TABLE events (id text PRIMARY KEY, tenant, topic, seq, attempt, body, headers, admitted, released, n)`)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	batch := deliveries(10)
	want := make([]VerdictKind, len(batch))
	for i := range batch {
		batch[i].Payload = fmt.Appendf(nil, `{"n": %d}`, i+1)
	}
	batch[4].Payload, want[4] = []byte("no JSON"), Retry // SQLite does not say whether it is the row's for ever
	wantKinds(t, s.Deliver(t.Context(), batch), want...)
	wantKinds(t, s.Deliver(t.Context(), batch[:2]), Done, Done)
	if n := scan[int](t, db, `SELECT count(*) FROM events`); n != 9 {
		t.Errorf("%d rows, want 9", n)
	}
	got := scan[string](t, db, `SELECT concat_ws('|', id, tenant, topic, seq, attempt, body, headers, admitted, released, n) FROM events WHERE seq = 1`)
	if want := `acme/1|acme|orders.new|1|1|{"n":1}|{}|1794489255161718|1794489255163218|2`; got != want {
		t.Errorf("row %s, want %s", got, want)
	}
	if n := scan[int](t, db, `SELECT count(*) FROM sqlite_schema WHERE name = 'flowgate_messages'`); n != 0 {
		t.Error("our table was made beside one's own statement")
	}
}

// TestSQLiteRolledBack has rows that take the whole transaction with them.
func TestSQLiteRolledBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	s := openSQLite(t, path, nil)
	db := reader(t, path)
	execSQLite(t, db, `CREATE TRIGGER t BEFORE INSERT ON flowgate_messages WHEN NEW.tenant = 'banned' BEGIN SELECT RAISE(ROLLBACK, 'out'); END`)
	for _, bad := range [][]int{{0}, {5}, {9}, {2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		execSQLite(t, db, `DELETE FROM flowgate_messages`)
		batch, want := deliveries(10), make([]VerdictKind, 10)
		for _, i := range bad {
			batch[i].Tenant, want[i] = "banned", Reject
		}
		wantKinds(t, s.Deliver(t.Context(), batch), want...)
		if n := scan[int](t, db, `SELECT count(*) FROM flowgate_messages`); n != 10-len(bad) {
			t.Errorf("bad %v: %d rows", bad, n)
		}
	}
}

func TestSQLiteOrder(t *testing.T) {
	for name, raise := range map[string]string{"abort": "json('x')", "rollback": "RAISE(ROLLBACK, 'x')"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "messages.db")
			s := ownSQLite(t, path, Config{Order: OrderTenant})
			db := reader(t, path)
			banned := strings.Replace(raise, "json('x')", "RAISE(ABORT, 'x')", 1)
			execSQLite(t, db, `CREATE TRIGGER b BEFORE INSERT ON flowgate_messages WHEN NEW.topic = 'banned' BEGIN SELECT `+banned+`; END`,
				`CREATE TRIGGER r BEFORE INSERT ON flowgate_messages WHEN NEW.topic = 'raise' BEGIN SELECT json('x'); END`)
			inOrder(t, s, func() { execSQLite(t, db, `DELETE FROM flowgate_messages`) }, func() string {
				return scan[string](t, db, `SELECT coalesce(group_concat(seq, ' ' ORDER BY rowid), '') FROM flowgate_messages`)
			})
		})
	}
}
