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

// Postgres writes messages to a table of a PostgreSQL database: one statement a
// message, or one transaction a batch.
type Postgres struct {
	pool      *pgxpool.Pool
	conflicts *conflicts
	made      atomic.Bool // the table is there
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

// OpenPostgres makes the pool, with at most so many connections; timeout is that of
// an attempt. It does not
// connect: a database that is down does not keep the gateway from starting.
func OpenPostgres(url string, connections int, timeout time.Duration, reg prometheus.Registerer, log *slog.Logger) (*Postgres, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err) // pgx masks the password
	}
	cfg.MaxConns = int32(connections)
	cfg.MinConns = 0
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "flowgate"
	}
	if wait := lockWait(cfg.ConnConfig.RuntimeParams, timeout); wait > 0 {
		// Not a parameter of the connection, which poolers refuse.
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.PgConn().Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", wait.Milliseconds())).ReadAll()
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &Postgres{pool: pool, conflicts: newConflicts(reg, log)}, nil
}

// lockWait is how long a statement may wait for a lock: less than an attempt, so that
// a locked table shows as the database's fault (55P03) and not as the message's, which
// a mere timeout would be. 0: the URL says it.
func lockWait(params map[string]string, timeout time.Duration) time.Duration {
	if _, set := params["lock_timeout"]; set || strings.Contains(params["options"], "lock_timeout") {
		return 0
	}
	return timeout * 4 / 5
}

// Deliver implements Destination.
func (p *Postgres) Deliver(ctx context.Context, batch []Delivery) []error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return all(len(batch), Overloaded(0, fmt.Errorf("postgres: connect: %w", err)))
	}
	defer conn.Release()
	if err := p.makeTable(ctx, conn.Conn()); err != nil {
		return all(len(batch), err)
	}
	var verdicts []error
	if len(batch) == 1 {
		verdicts = []error{p.one(ctx, conn.Conn(), batch[0])}
	} else {
		verdicts = p.many(ctx, conn.Conn(), batch)
	}
	for _, v := range verdicts {
		if state(v) == "42P01" {
			p.made.Store(false) // dropped under us: made again at the next attempt
		}
	}
	return verdicts
}

// makeTable makes the table on first use. Two gateways may race: the loser's
// error says that the table, its type or its index is there.
func (p *Postgres) makeTable(ctx context.Context, conn *pgx.Conn) error {
	if p.made.Load() {
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

func (p *Postgres) one(ctx context.Context, q querier, d Delivery) error {
	tag, err := q.Exec(ctx, insertPostgres, row(d)...)
	if err != nil {
		return postgresVerdict(err)
	}
	return p.compare(ctx, q, d, tag.RowsAffected())
}

// compare looks at what stands there if the row was not new.
func (p *Postgres) compare(ctx context.Context, q querier, d Delivery, written int64) error {
	if written > 0 {
		return nil
	}
	var same bool
	err := q.QueryRow(ctx, `SELECT payload = $2 FROM `+tableName+` WHERE id = $1`, d.ID, payload(d)).Scan(&same)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("postgres: row %s was deleted while it was written", d.ID)
	}
	if err != nil {
		return postgresVerdict(err)
	}
	if !same {
		p.conflicts.note(d)
	}
	return nil
}

// many writes a batch in one transaction. If a row breaks it, it is written again
// with a savepoint a row, so that the neighbours stand and the bad one has its own
// verdict.
func (p *Postgres) many(ctx context.Context, conn *pgx.Conn, batch []Delivery) []error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, d := range batch {
			b.Queue(insertPostgres, row(d)...)
		}
		results := tx.SendBatch(ctx, b)
		written := make([]int64, len(batch))
		for i := range batch {
			tag, err := results.Exec()
			if err != nil {
				_ = results.Close()
				return err
			}
			written[i] = tag.RowsAffected()
		}
		if err := results.Close(); err != nil {
			return err
		}
		for i, d := range batch {
			if err := p.compare(ctx, tx, d, written[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return make([]error, len(batch))
	}
	if v := postgresVerdict(err); Judge(v).Kind == Overload || ctx.Err() != nil {
		return all(len(batch), v)
	}
	verdicts := make([]error, len(batch))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for i, d := range batch {
			err := pgx.BeginFunc(ctx, tx, func(save pgx.Tx) error {
				tag, err := save.Exec(ctx, insertPostgres, row(d)...)
				if err != nil {
					return err
				}
				return p.compare(ctx, save, d, tag.RowsAffected())
			})
			if err == nil {
				continue
			}
			verdicts[i] = postgresVerdict(err)
			if Judge(verdicts[i]).Kind == Overload || ctx.Err() != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return all(len(batch), postgresVerdict(err))
	}
	return verdicts
}

// querier is a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func row(d Delivery) []any {
	return []any{d.ID, d.Tenant, d.Topic, int64(d.Seq), d.Attempt, payload(d), headersJSON(d.Headers), d.AdmittedAt, d.ReleasedAt}
}

func payload(d Delivery) []byte {
	if d.Payload == nil {
		return []byte{}
	}
	return d.Payload
}

// state is the SQLSTATE of an error; empty without one.
func state(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Close closes the connections.
func (p *Postgres) Close() error {
	p.pool.Close()
	return nil
}

// Ping connects, to tell whether the database can be reached.
func (p *Postgres) Ping(ctx context.Context) error {
	if err := p.pool.Ping(ctx); err != nil {
		return fmt.Errorf("postgres: connect: %w", err)
	}
	return nil
}
