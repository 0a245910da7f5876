package consumers

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// errRolledBack says that a row took the whole transaction with it.
var errRolledBack = errors.New("sqlite: a row rolled its transaction back")

// commit writes the calls in one transaction and judges their rows. In SQLite a
// statement that fails is undone alone and the transaction goes on, so one execution
// finds every bad row. A row that ends the transaction (RAISE(ROLLBACK), INSERT OR
// ROLLBACK) has all written a second time, each row in a transaction of its own.
func (s *SQLite) commit(calls []*sqliteCall) {
	err := s.transact(calls)
	if errors.Is(err, errRolledBack) {
		s.apart(calls)
		return
	}
	s.suspect = err != nil
	if err != nil {
		for _, c := range calls {
			for i := range c.verdicts {
				c.verdicts[i] = err
			}
		}
	}
}

// apart writes each row in a transaction of its own, until the database fails.
func (s *SQLite) apart(calls []*sqliteCall) {
	var failed error
	for _, c := range calls {
		waits := false
		for i := range c.batch {
			switch {
			case failed != nil:
				c.verdicts[i] = failed
				continue
			case waits:
				c.verdicts[i] = c.held(i)
				continue
			}
			c.verdicts[i] = nil
			row := &sqliteCall{batch: c.batch[i : i+1], verdicts: c.verdicts[i : i+1]}
			if err := s.transact([]*sqliteCall{row}); err != nil && !errors.Is(err, errRolledBack) {
				failed, c.verdicts[i] = err, err
			}
			waits = s.ordered && Judge(c.verdicts[i]).Kind == Retry
		}
	}
	s.suspect = failed != nil
}

// held is the verdict on a row that was not tried since one before it has to be
// written first.
func (c *sqliteCall) held(i int) error {
	return Held(fmt.Errorf("sqlite: a message before %s has to be tried again first", c.batch[i].ID))
}

// transact writes the calls in one transaction. An error is every row's; a row's own
// is in its verdict.
func (s *SQLite) transact(calls []*sqliteCall) error {
	ctx := context.Background() // SQLite's own busy timeout bounds it
	if err := s.current(ctx); err != nil {
		return sqliteVerdict(err)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return sqliteVerdict(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	insert, err := tx.PrepareContext(ctx, s.insert)
	if err != nil {
		if s.own.text != "" {
			err = fmt.Errorf("FLOWGATE_CONSUMER_SQL: %w", err)
		}
		return Overloaded(0, fmt.Errorf("sqlite: %w", err))
	}
	defer func() { _ = insert.Close() }()
	for _, c := range calls {
		waits := false
		for i, d := range c.batch {
			if waits {
				c.verdicts[i] = c.held(i)
				continue
			}
			err := s.writeRow(ctx, tx, insert, d)
			if err == nil {
				continue
			}
			v := s.rowVerdict(ctx, tx, err)
			kind := Judge(v).Kind
			if kind == Overload {
				return v
			}
			c.verdicts[i] = v
			waits = s.ordered && kind == Retry
			// Within a transaction there is no other: if this begins one, ours is gone.
			if _, err := tx.ExecContext(ctx, "BEGIN"); err == nil {
				return errRolledBack
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return sqliteVerdict(err)
	}
	return nil
}

// writeRow writes a row. If it was not new, it compares what stands in its place.
func (s *SQLite) writeRow(ctx context.Context, tx *sql.Tx, insert *sql.Stmt, d Delivery) error {
	if s.own.text != "" {
		_, err := insert.ExecContext(ctx, s.arguments(d)...)
		return err
	}
	r, err := insert.ExecContext(ctx, d.ID, d.Tenant, d.Topic, int64(d.Seq), d.Attempt, payload(d), headersJSON(d.Headers),
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
	if !bytes.Equal(there, payload(d)) {
		s.conflicts.note(d)
	}
	return nil
}

// arguments are those of a statement of one's own.
func (s *SQLite) arguments(d Delivery) []any {
	args := make([]any, len(s.own.names))
	for n, name := range s.own.names {
		var v any
		switch name {
		case "id":
			v = d.ID
		case "tenant":
			v = d.Tenant
		case "topic":
			v = d.Topic
		case "seq":
			v = int64(d.Seq)
		case "attempt":
			v = d.Attempt
		case "payload":
			v = payload(d)
		case "headers":
			v = headersJSON(d.Headers)
		case "admitted_at":
			v = d.AdmittedAt.UnixMicro()
		case "released_at":
			v = d.ReleasedAt.UnixMicro()
		}
		args[n] = sql.Named(name, v)
	}
	return args
}

// rowVerdict sorts the error of a row. SQLite has one code for a table that is not
// there and for JSON that is none: if the statement can be prepared still, it is the
// row that fails, perhaps not for ever.
func (s *SQLite) rowVerdict(ctx context.Context, tx *sql.Tx, err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code()&0xff != sqlite3.SQLITE_ERROR {
		return sqliteVerdict(err)
	}
	again, broken := tx.PrepareContext(ctx, s.insert)
	if broken != nil {
		return sqliteVerdict(err)
	}
	_ = again.Close()
	return fmt.Errorf("sqlite: %w", err)
}

// sqliteVerdict sorts an error by SQLite's primary result code.
func sqliteVerdict(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
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

// sqlitePruning is a chunk of old rows that waits for the writer.
type sqlitePruning struct {
	limit   int
	deleted int
	err     error
	done    chan struct{}
}

// prune has the writer delete a chunk of old rows.
func (s *SQLite) prune(ctx context.Context, limit int) (int, error) {
	p := &sqlitePruning{limit: limit, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, errors.New("sqlite: closed")
	}
	s.pruning = p
	s.wake()
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.deleted, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// deleteChunk deletes those of the first rows that are old. Rows are numbered as they
// are written, so the old ones stand first, and no index, which each new row would pay
// for, is needed to find them.
func (s *SQLite) deleteChunk(limit int) (int, error) {
	ctx := context.Background()
	if err := s.current(ctx); err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	r, err := s.db.ExecContext(ctx, `DELETE FROM `+tableName+` WHERE rowid IN
		(SELECT rowid FROM `+tableName+` ORDER BY rowid LIMIT ?) AND written_at < ?`, limit, time.Now().Add(-s.retention.age).UnixMicro())
	if err != nil {
		s.suspect = true
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	n, err := r.RowsAffected()
	return int(n), err
}
