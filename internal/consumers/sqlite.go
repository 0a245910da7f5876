package consumers

import (
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
	_ "modernc.org/sqlite" // the driver
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
	insert    string    // what writes a message
	own       statement // one's own; empty: ours
	ordered   bool      // a batch is written in order, or not at all from a message on that waits
	conflicts *conflicts
	retention *retention

	// The writer's, of which there is one at a time.
	db      *sql.DB
	file    os.FileInfo // of the file that db has open; nil: none
	suspect bool        // the last transaction failed

	mu      sync.Mutex
	queue   []*sqliteCall
	pruning *sqlitePruning // waits for its turn; nil: none does
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
// there; with a statement of one's own there is no table of ours. Times in it are
// microseconds since 1970, UTC.
func OpenSQLite(ctx context.Context, path string, cfg Config, reg prometheus.Registerer, log *slog.Logger) (*SQLite, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite database %s: %w", path, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("sqlite database %s: its directory: %w", path, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("sqlite database %s: %s is not a directory", path, filepath.Dir(path))
	}
	s := &SQLite{path: path, insert: insertSQLite, ordered: cfg.Order == OrderTenant}
	if cfg.SQL != "" {
		if s.own, err = openStatement(cfg.SQL, sqliteSQL, log); err != nil {
			return nil, err
		}
		s.insert = s.own.text
	}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("sqlite database %s: %w", path, err)
	}
	s.conflicts = newConflicts(reg, log)
	s.retention = newRetention(time.Duration(cfg.Retention), s.prune, reg, log)
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

// prepare sees to the table. With a statement of one's own there is none of ours:
// then it is only asked whether this is a database.
func (s *SQLite) prepare(ctx context.Context) error {
	if s.own.text != "" {
		var n int
		return s.db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n)
	}
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
	s.wake()
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

// wake starts the writer if it is not at work; mu is held.
func (s *SQLite) wake() {
	if !s.writing {
		s.writing = true
		s.writer.Go(s.write)
	}
}

// write works off the queue, a transaction for all that wait, until it is empty. Old
// rows are deleted in between, a chunk at a time.
func (s *SQLite) write() {
	for {
		s.mu.Lock()
		calls, pruning := s.queue, s.pruning
		s.queue, s.pruning = nil, nil
		if len(calls) == 0 && pruning == nil {
			s.writing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if len(calls) > 0 {
			s.commit(calls)
			for _, c := range calls {
				close(c.done)
			}
		}
		if pruning != nil {
			pruning.deleted, pruning.err = s.deleteChunk(pruning.limit)
			close(pruning.done)
		}
	}
}

// Run deletes rows that are older than FLOWGATE_CONSUMER_RETENTION until ctx ends.
func (s *SQLite) Run(ctx context.Context) error { return s.retention.run(ctx) }

// Ping tells whether the database takes a statement of one's own.
func (s *SQLite) Ping(ctx context.Context) error {
	if s.own.text == "" {
		return nil
	}
	insert, err := s.db.PrepareContext(ctx, s.own.text)
	if err != nil {
		return fmt.Errorf("sqlite: FLOWGATE_CONSUMER_SQL: %w", err)
	}
	return insert.Close()
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
