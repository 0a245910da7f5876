package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// Postgres writes messages to a table of a PostgreSQL database, or with a statement
// of one's own: one statement a message, or one transaction a batch.
type Postgres struct {
	pool      *pgxpool.Pool
	insert    string    // what writes a message
	own       statement // one's own; empty: ours
	ordered   bool      // a batch is written in order, or not at all from a message on that waits
	conflicts *conflicts
	retention *retention
	made      atomic.Bool // the table is there

	// Of Run alone: whether the index by age is there, and when to see to it again.
	indexed   bool
	indexNext time.Time
}

const createPostgres = `CREATE TABLE IF NOT EXISTS ` + tableName + ` (
	id text PRIMARY KEY, tenant text NOT NULL, topic text NOT NULL,
	seq bigint NOT NULL, attempt int NOT NULL, payload bytea NOT NULL, headers jsonb NOT NULL,
	admitted_at timestamptz NOT NULL, released_at timestamptz NOT NULL, written_at timestamptz NOT NULL)`

const insertPostgres = `INSERT INTO ` + tableName + `
	(id, tenant, topic, seq, attempt, payload, headers, admitted_at, released_at, written_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp()) ON CONFLICT (id) DO NOTHING`

// connectTimeout bounds a connection to a server that does not answer.
const connectTimeout = 5 * time.Second

// OpenPostgres makes the pool of a destination. It does not connect: a database that
// is down does not keep the gateway from starting.
func OpenPostgres(c Config, reg prometheus.Registerer, log *slog.Logger) (*Postgres, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err) // pgx masks the password
	}
	cfg.MaxConns = int32(c.Concurrency)
	if c.Retention > 0 {
		cfg.MaxConns++ // deliveries do not wait for what deletes
	}
	cfg.MinConns = 0
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "flowgate"
	}
	if settings := sessionSettings(cfg.ConnConfig.RuntimeParams, c.Timeout); settings != "" {
		// Not parameters of the connection, which poolers refuse.
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.PgConn().Exec(ctx, settings).ReadAll()
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	p := &Postgres{pool: pool, insert: insertPostgres, ordered: c.Order == OrderTenant, conflicts: newConflicts(reg, log)}
	p.retention = newRetention(time.Duration(c.Retention), p.prune, reg, log)
	if c.SQL != "" {
		if p.own, err = openStatement(c.SQL, postgresSQL, log); err != nil {
			pool.Close()
			return nil, err
		}
		p.insert = p.own.text
	}
	return p, nil
}

// sessionSettings bounds what a statement may take, unless the URL does: a lock that
// is not to be had in three fifths of an attempt shows as the database's fault
// (55P03), and not as the message's, which a mere timeout would be. A row that takes
// four fifths is found as the one that is slow (57014), while there is time to write
// its neighbours.
func sessionSettings(params map[string]string, timeout time.Duration) string {
	set := func(name string) bool {
		_, ok := params[name]
		return ok || strings.Contains(params["options"], name)
	}
	var settings string
	if !set("lock_timeout") {
		settings += fmt.Sprintf("SET lock_timeout = %d;", max(1, (timeout*3/5).Milliseconds()))
	}
	if !set("statement_timeout") {
		// A stricter one of the role or the database stays.
		settings += fmt.Sprintf("SELECT set_config('statement_timeout', '%[1]d', false) FROM pg_settings WHERE name = 'statement_timeout' AND setting::bigint NOT BETWEEN 1 AND %[1]d;",
			max(1, (timeout*4/5).Milliseconds()))
	}
	return settings
}

// Deliver implements Destination.
func (p *Postgres) Deliver(ctx context.Context, batch []Delivery) []error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return all(len(batch), Overloaded(0, fmt.Errorf("postgres: connect: %w", err)))
	}
	defer conn.Release()
	verdicts := p.write(ctx, conn.Conn(), batch)
	for _, v := range verdicts {
		if state(v) == "42P01" {
			p.made.Store(false) // dropped under us: made again at the next attempt
		}
		if hasPrefix(state(v), staleStates) {
			// What was prepared may be stale, and a server that became a standby stays
			// one to its old connections: the next attempt connects anew.
			_ = conn.Conn().Close(ctx)
			break
		}
	}
	return verdicts
}

// write writes a batch on a connection.
func (p *Postgres) write(ctx context.Context, conn *pgx.Conn, batch []Delivery) []error {
	if err := p.makeTable(ctx, conn); err != nil {
		return all(len(batch), err)
	}
	w := &postgresWriter{Postgres: p, conn: conn, batch: batch}
	if err := w.prepare(ctx); err != nil {
		return all(len(batch), err)
	}
	if len(batch) == 1 {
		w.one(ctx)
	} else {
		w.many(ctx)
	}
	w.compare(ctx)
	return w.verdicts
}

// makeTable makes the table on first use. Two gateways may race: the loser's
// error says that the table, its type or its index is there.
func (p *Postgres) makeTable(ctx context.Context, conn *pgx.Conn) error {
	if p.own.text != "" || p.made.Load() {
		return nil
	}
	// Asked first, since CREATE TABLE IF NOT EXISTS needs a right to the schema that
	// who may only write to the table has not.
	var there bool
	err := conn.QueryRow(ctx, `SELECT to_regclass('`+tableName+`') IS NOT NULL`).Scan(&there)
	if err == nil && !there {
		_, err = conn.Exec(ctx, createPostgres)
	}
	switch state(err) {
	case "23505", "42710", "42P07":
		err = nil
	}
	if err != nil {
		return Overloaded(0, fmt.Errorf("postgres: make table %s: %w", tableName, err))
	}
	p.made.Store(true)
	return nil
}

// state is the SQLSTATE of an error; empty without one.
func state(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Run deletes rows that are older than FLOWGATE_CONSUMER_RETENTION until ctx ends.
func (p *Postgres) Run(ctx context.Context) error { return p.retention.run(ctx) }

// Close closes the connections.
func (p *Postgres) Close() error {
	p.pool.Close()
	return nil
}

// Ping connects, to tell whether the database can be reached and takes a statement of
// one's own.
func (p *Postgres) Ping(ctx context.Context) error {
	conn, err := p.pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = conn.Ping(ctx)
	}
	if err != nil {
		return fmt.Errorf("postgres: connect: %w", err)
	}
	if p.own.text != "" {
		if _, err := conn.Conn().PgConn().Prepare(ctx, "", p.own.text, nil); err != nil {
			return fmt.Errorf("postgres: FLOWGATE_CONSUMER_SQL: %w", err)
		}
	}
	return nil
}
