package consumers

import (
	"context"
	"fmt"
	"time"
)

// agesIndex finds the oldest rows. PostgreSQL writes new rows into the room of deleted
// ones, so that their place tells nothing of their age.
const agesIndex = tableName + "_written_at"

// indexAgain is when to try again to make it.
const indexAgain = 10 * time.Minute

// prune deletes a chunk of old rows, on a connection that no delivery waits for. Age
// is by the server's clock, which wrote written_at.
func (p *Postgres) prune(ctx context.Context, limit int) (int, error) {
	if now := time.Now(); !p.indexed && !now.Before(p.indexNext) {
		var err error
		if p.indexed, err = p.index(ctx); err != nil && ctx.Err() == nil {
			p.indexNext = now.Add(indexAgain)
			p.retention.log.Warn("no index by age; old rows are found by reading the table", "make", createAgesIndex, "error", err)
		}
	}
	order := ""
	if p.indexed {
		order = "ORDER BY written_at" // or it might read the table all the same
	}
	tag, err := p.pool.Exec(ctx, `DELETE FROM `+tableName+` WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM `+tableName+` WHERE written_at < now() - make_interval(secs => $1) `+order+` LIMIT $2))`,
		p.retention.age.Seconds(), limit)
	switch {
	case state(err) == "42P01":
		p.indexed, p.indexNext = false, time.Time{}
		return 0, nil // not made yet, or dropped
	case err != nil:
		return 0, fmt.Errorf("postgres: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

const createAgesIndex = `CREATE INDEX CONCURRENTLY ` + agesIndex + ` ON ` + tableName + ` (written_at)`

// index sees to an index by age, without keeping writers waiting while it is made,
// which takes as long as the table is large. It tells whether one is there.
func (p *Postgres) index(ctx context.Context) (bool, error) {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	var table, index bool
	err = conn.QueryRow(ctx, `SELECT to_regclass('`+tableName+`') IS NOT NULL, EXISTS (SELECT FROM pg_index i
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = to_regclass('`+tableName+`') AND a.attname = 'written_at' AND i.indpred IS NULL AND i.indisvalid)`).Scan(&table, &index)
	if err != nil || index || !table {
		return index, err
	}
	defer func() { _ = conn.Conn().Close(ctx) }() // its settings are for this alone
	for _, statement := range []string{
		`SET statement_timeout = 0`, `SET lock_timeout = 0`, // the session's are for deliveries
		`DROP INDEX CONCURRENTLY IF EXISTS ` + agesIndex, // one that was left half made
		createAgesIndex,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return false, err
		}
	}
	return true, nil
}
