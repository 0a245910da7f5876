package consumers

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite writes messages to a table of a database file.
//
// It has one connection, and writes what is waiting in one transaction: the
// caller that finds nobody writing begins, and those that come meanwhile go
// together in the next. So concurrent callers share the cost of a commit, which is
// a sync of the disk: acknowledging a message follows its commit, and both must
// outlive a power cut.
//
// A table that is dropped, and a file that is removed or replaced, are made again at
// the next delivery: a file without a name would take rows that nobody can read.
type SQLite struct {
	path      string
	conflicts *conflicts

	// The writer's, of which there is one at a time.
	db      *sql.DB
	file    os.FileInfo // of the file that db has open; nil: none
	suspect bool        // the last transaction failed

	mu      sync.Mutex
	queue   []*sqliteCall
	writing bool
	closed  bool
	writer  sync.WaitGroup
}

// sqliteCall is one Deliver waiting for its transaction.
type sqliteCall struct {
	batch    []Delivery
	verdicts []error
	done     chan struct{}
}

const createSQLite = `CREATE TABLE IF NOT EXISTS ` + tableName + ` (
	id text PRIMARY KEY NOT NULL, tenant text NOT NULL, topic text NOT NULL,
	seq bigint NOT NULL, attempt int NOT NULL, payload blob NOT NULL, headers text NOT NULL,
	admitted_at bigint NOT NULL, released_at bigint NOT NULL, written_at bigint NOT NULL)`

const insertSQLite = `INSERT INTO ` + tableName + `
	(id, tenant, topic, seq, attempt, payload, headers, admitted_at, released_at, written_at)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

// sqliteBusy is how long a write waits for another process's lock.
const sqliteBusy = 5 * time.Second

// OpenSQLite opens the database file at path and makes the table if it is not
// there. Times in it are microseconds since 1970, UTC.
func OpenSQLite(ctx context.Context, path string, reg prometheus.Registerer, log *slog.Logger) (*SQLite, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite database %s: %w", path, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("sqlite database %s: its directory: %w", path, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("sqlite database %s: %s is not a directory", path, filepath.Dir(path))
	}
	s := &SQLite{path: path}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("sqlite database %s: %w", path, err)
	}
	s.conflicts = newConflicts(reg, log)
	return s, nil
}

// open opens the file and sees to the table.
func (s *SQLite) open(ctx context.Context) error {
	query := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", sqliteBusy.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)",
	}, "_txlock": {"immediate"}}
	// A file: URI, so that ? # and % in the path mean themselves.
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: s.path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	s.db = db
	err = s.prepare(ctx)
	if err == nil {
		s.file, err = os.Stat(s.path)
	}
	if err != nil {
		_ = db.Close()
		s.file = nil
	}
	return err
}

// current sees to it that db is the file of that name, with the table in it.
func (s *SQLite) current(ctx context.Context) error {
	info, err := os.Stat(s.path)
	switch {
	case s.file == nil, errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(info, s.file):
		_ = s.db.Close()
		return s.open(ctx)
	case s.suspect:
		return s.prepare(ctx)
	}
	return nil
}

func (s *SQLite) prepare(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, createSQLite); err != nil {
		return err
	}
	rows, err := s.db.QueryContext(ctx, `SELECT name FROM pragma_table_info('`+tableName+`')`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	have := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		have[name] = true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var missing []string
	for _, c := range columns {
		if !have[c] {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("table %s is there without the columns %s; rename it, or use another database", tableName, strings.Join(missing, ", "))
	}
	return nil
}

// Deliver implements Destination.
func (s *SQLite) Deliver(ctx context.Context, batch []Delivery) []error {
	call := &sqliteCall{batch: batch, verdicts: make([]error, len(batch)), done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return all(len(batch), Overloaded(0, errors.New("sqlite: closed")))
	}
	s.queue = append(s.queue, call)
	if !s.writing {
		s.writing = true
		s.writer.Go(s.write)
	}
	s.mu.Unlock()
	select {
	case <-call.done:
		return call.verdicts
	case <-ctx.Done():
		// It may be written all the same; a repeat changes nothing then. With one
		// writer, whoever waits for its turn too long is not to blame.
		return all(len(batch), Overloaded(0, fmt.Errorf("sqlite: not written in time: %w", ctx.Err())))
	}
}

// write works off the queue, a transaction for all that wait, until it is empty.
func (s *SQLite) write() {
	for {
		s.mu.Lock()
		calls := s.queue
		s.queue = nil
		if len(calls) == 0 {
			s.writing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		err := s.commit(calls)
		s.suspect = err != nil
		if err != nil {
			for _, c := range calls {
				for i := range c.verdicts {
					c.verdicts[i] = err
				}
			}
		}
		for _, c := range calls {
			close(c.done)
		}
	}
}

// commit writes the calls in one transaction. An error is every row's; a row's own
// is in its verdict.
func (s *SQLite) commit(calls []*sqliteCall) error {
	ctx := context.Background() // SQLite's own busy timeout bounds it
	if err := s.current(ctx); err != nil {
		return sqliteVerdict(err)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return sqliteVerdict(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	insert, err := tx.PrepareContext(ctx, insertSQLite)
	if err != nil {
		return sqliteVerdict(err)
	}
	defer func() { _ = insert.Close() }()
	for _, c := range calls {
		for i, d := range c.batch {
			// A statement that fails is undone alone; the transaction goes on.
			if err := s.insert(ctx, tx, insert, d); err != nil {
				v := sqliteVerdict(err)
				if Judge(v).Kind == Overload {
					return v
				}
				c.verdicts[i] = v
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return sqliteVerdict(err)
	}
	return nil
}

func (s *SQLite) insert(ctx context.Context, tx *sql.Tx, insert *sql.Stmt, d Delivery) error {
	payload := d.Payload
	if payload == nil {
		payload = []byte{}
	}
	r, err := insert.ExecContext(ctx, d.ID, d.Tenant, d.Topic, int64(d.Seq), d.Attempt, payload, headersJSON(d.Headers),
		d.AdmittedAt.UnixMicro(), d.ReleasedAt.UnixMicro(), time.Now().UnixMicro())
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	var there []byte
	if err := tx.QueryRowContext(ctx, `SELECT payload FROM `+tableName+` WHERE id = ?`, d.ID).Scan(&there); err != nil {
		return err
	}
	if !bytes.Equal(there, payload) {
		s.conflicts.note(d)
	}
	return nil
}

// sqliteVerdict sorts an error by SQLite's primary result code.
func sqliteVerdict(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return Overloaded(0, fmt.Errorf("sqlite: %w", err))
	}
	err = fmt.Errorf("sqlite: %w", err)
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return Permanent(err)
	}
	// Busy, locked, full, I/O, read-only, no table: the database's, not the row's.
	return Overloaded(0, err)
}

// Close waits for what is being written and closes the file.
func (s *SQLite) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.writer.Wait()
	return s.db.Close()
}

// all gives every message the same verdict.
func all(n int, err error) []error {
	verdicts := make([]error, n)
	for i := range verdicts {
		verdicts[i] = err
	}
	return verdicts
}
