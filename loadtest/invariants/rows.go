package invariants

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver
)

// Row is one delivered message as the database has it.
type Row struct {
	ID, Tenant, Topic                 string
	Seq                               uint64
	Attempt                           int
	Payload                           []byte
	AdmittedAt, ReleasedAt, WrittenAt time.Time
}

const selectRows = `SELECT id, tenant, topic, seq, attempt, payload, admitted_at, released_at, written_at FROM flowgate_messages`

// ReadSQLite reads every row of a database file.
func ReadSQLite(ctx context.Context, path string) ([]Row, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	found, err := db.QueryContext(ctx, selectRows)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = found.Close() }()
	var rows []Row
	for found.Next() {
		var r Row
		var seq, admitted, released, written int64
		if err := found.Scan(&r.ID, &r.Tenant, &r.Topic, &seq, &r.Attempt, &r.Payload, &admitted, &released, &written); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		r.Seq = uint64(seq)
		r.AdmittedAt, r.ReleasedAt, r.WrittenAt = time.UnixMicro(admitted), time.UnixMicro(released), time.UnixMicro(written)
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// ReadPostgres reads every row of a database.
func ReadPostgres(ctx context.Context, url string) ([]Row, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	found, err := conn.Query(ctx, selectRows)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (r Row, err error) {
		var seq int64
		err = row.Scan(&r.ID, &r.Tenant, &r.Topic, &seq, &r.Attempt, &r.Payload, &r.AdmittedAt, &r.ReleasedAt, &r.WrittenAt)
		r.Seq = uint64(seq)
		return r, err
	})
}
