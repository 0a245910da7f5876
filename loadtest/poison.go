package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/consumers/pgtest"
)

// poisonBatch is the rows of a batch, of which one is bad.
const poisonBatch = 100

// measurePoison drains a backlog into a database in batches, clean and with a row in
// each hundred that the table refuses, and compares. PostgreSQL is the one that
// FLOWGATE_TEST_POSTGRES names, as postgres://…, or else one that is started here.
func measurePoison(ctx context.Context, short bool) ([]figure, error) {
	rounds, messages := 5, 40_000
	if short {
		rounds, messages = 1, 2_000
	}
	databases := []database{&sqliteDatabase{}}
	server := os.Getenv("FLOWGATE_TEST_POSTGRES")
	if server == "" {
		var starting starter
		defer starting.stop()
		var err error
		if server, err = starting.start(); err != nil {
			fmt.Fprintf(os.Stderr, "loadtest: poison without PostgreSQL: %v; or name one in FLOWGATE_TEST_POSTGRES\n", err)
		}
	}
	if server != "" {
		databases = append(databases, &postgresDatabase{server: server})
	}
	var figures []figure
	for _, db := range databases {
		var clean, poisoned []result
		for round := range rounds {
			for i := range 2 {
				bad := (round+i)%2 == 1 // alternately first
				perSecond, err := drainInto(ctx, db, messages, bad)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", db.name(), err)
				}
				if bad {
					poisoned = append(poisoned, result{perSecond: perSecond})
				} else {
					clean = append(clean, result{perSecond: perSecond})
				}
			}
		}
		rate := func(r result) float64 { return r.perSecond }
		figures = append(figures,
			figure{db.name() + ", clean batches of 100", median(clean, rate), "msg/s", 0, 0},
			figure{db.name() + ", 1 bad row in each 100", median(poisoned, rate), "msg/s", 0, 0},
			figure{"ratio", median(poisoned, rate) / median(clean, rate), "", 0.7, 0})
	}
	return figures, nil
}

// database is one that the table is made in, with a rule against bad rows.
type database interface {
	name() string
	// make makes it anew and gives the consumer's URL.
	make(ctx context.Context, dir string) (string, error)
	// rows counts those written.
	rows(ctx context.Context) (int, error)
	close(ctx context.Context) error
}

// drainInto fills a backlog behind a gateway that delivers nothing, starts it again
// without a bound on the rate, and tells how fast the backlog went. What arrived is
// checked: the good in the table, the bad among the dead letters, nothing twice.
func drainInto(ctx context.Context, db database, messages int, poison bool) (perSecond float64, err error) {
	dir, err := os.MkdirTemp("", "flowgate-loadtest-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	consumer, err := db.make(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.close(ctx)) }()
	data := filepath.Join(dir, "data")
	environ := []string{
		"FLOWGATE_CONSUMER_URL=" + consumer,
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_BACKPRESSURE_HIGH=1000000", "FLOWGATE_DLQ_MAX_BYTES=1GiB",
	}
	g, err := startGateway(ctx, data, discard{}, append(environ, "FLOWGATE_SHAPER_RATE=1/h")...)
	if err != nil {
		return 0, err
	}
	err = fillPoisoned(ctx, g.url, messages, poison)
	if err = errors.Join(err, g.stop()); err != nil {
		return 0, err
	}

	began := time.Now()
	if g, err = startGateway(ctx, data, nil, append(environ, "FLOWGATE_SHAPER_RATE=unlimited",
		fmt.Sprintf("FLOWGATE_CONSUMER_BATCH=%d", poisonBatch), "FLOWGATE_CONSUMER_BATCH_WAIT=5ms")...); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	var first time.Time
	start := 0
	wantBad := 0
	if poison {
		wantBad = messages / poisonBatch
	}
	for {
		written, err := db.rows(ctx)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		if first.IsZero() && written > 0 {
			first, start = now, written
		}
		// One message left while the backlog was filled.
		if written >= messages-wantBad-1 {
			perSecond = float64(written-start) / now.Sub(first).Seconds()
			break
		}
		if now.Sub(began) > 5*time.Minute {
			return 0, fmt.Errorf("%d of %d rows after 5m", written, messages-wantBad)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s, _ := g.Status()
		if s.DeadLetters == uint64(wantBad) && s.Depth.Total == 0 {
			if written, err := db.rows(ctx); err != nil || written > messages-wantBad {
				return 0, fmt.Errorf("%d rows, want at most %d: %w", written, messages-wantBad, err)
			}
			return perSecond, nil
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%d dead letters and %d messages left, want %d and none", s.DeadLetters, s.Depth.Total, wantBad)
		}
	}
}

// fillPoisoned publishes messages of 256 bytes, each hundredth bad if there is poison.
func fillPoisoned(ctx context.Context, url string, messages int, poison bool) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		return err
	}
	good, bad := make([]byte, 256), make([]byte, 256)
	bad[0] = 1
	left := make([]int, messages)
	for n := range left {
		left[n] = n
	}
	// What is refused while the broker is slow is sent again, under its id.
	for len(left) > 0 {
		acks := make([]jetstream.PubAckFuture, len(left))
		for i, n := range left {
			body := good
			if poison && n%poisonBatch == poisonBatch/2 {
				body = bad
			}
			acks[i], err = js.PublishAsync("ingress.acme.orders", body, jetstream.WithMsgID(strconv.Itoa(n)), jetstream.WithStallWait(5*time.Second))
			if err != nil {
				return err
			}
		}
		var again []int
		for i, ack := range acks {
			select {
			case <-ack.Ok():
			case <-ack.Err():
				again = append(again, left[i])
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		left = again
	}
	return nil
}

var quiet = slog.New(slog.DiscardHandler)

type sqliteDatabase struct{ db *sql.DB }

func (*sqliteDatabase) name() string { return "sqlite" }

func (s *sqliteDatabase) make(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "poison.db")
	made, err := consumers.OpenSQLite(ctx, path, consumers.Config{}, nil, quiet)
	if err != nil {
		return "", err
	}
	if err := made.Close(); err != nil {
		return "", err
	}
	if s.db, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)"); err != nil {
		return "", err
	}
	_, err = s.db.ExecContext(ctx, `CREATE TRIGGER poison BEFORE INSERT ON flowgate_messages WHEN substr(NEW.payload, 1, 1) = x'01'
		BEGIN SELECT RAISE(ABORT, 'poison'); END`)
	return "sqlite:" + path, err
}

func (s *sqliteDatabase) rows(ctx context.Context) (written int, err error) {
	// Without a look at each row: it would cost what is measured.
	err = s.db.QueryRowContext(ctx, `SELECT coalesce(max(rowid), 0) FROM flowgate_messages`).Scan(&written)
	return written, err
}

func (s *sqliteDatabase) close(context.Context) error { return s.db.Close() }

// postgresDatabase is a schema of its own on a server.
type postgresDatabase struct {
	server string
	conn   *pgx.Conn
	schema string
}

func (*postgresDatabase) name() string { return "postgres" }

func (p *postgresDatabase) make(ctx context.Context, _ string) (string, error) {
	u, err := url.Parse(p.server)
	if err != nil {
		return "", errors.New("FLOWGATE_TEST_POSTGRES is no URL")
	}
	p.schema = fmt.Sprintf("flowgate_poison_%d", time.Now().UnixNano())
	q := u.Query()
	q.Set("search_path", p.schema)
	u.RawQuery = q.Encode()
	if p.conn, err = pgx.Connect(ctx, u.String()); err != nil {
		return "", err
	}
	if _, err := p.conn.Exec(ctx, `CREATE SCHEMA `+p.schema); err != nil {
		return "", err
	}
	// The table is made by a first delivery.
	made, err := consumers.OpenPostgres(consumers.Config{URL: u.String(), Concurrency: 1, Timeout: time.Minute}, nil, quiet)
	if err != nil {
		return "", err
	}
	defer func() { _ = made.Close() }()
	if err := made.Deliver(ctx, []consumers.Delivery{{ID: "first"}})[0]; err != nil {
		return "", err
	}
	_, err = p.conn.Exec(ctx, `DELETE FROM flowgate_messages; ALTER TABLE flowgate_messages ADD CHECK (payload = '' OR get_byte(payload, 0) <> 1)`)
	return u.String(), err
}

func (p *postgresDatabase) rows(ctx context.Context) (written int, err error) {
	err = p.conn.QueryRow(ctx, `SELECT count(*) FROM flowgate_messages`).Scan(&written)
	return written, err
}

func (p *postgresDatabase) close(ctx context.Context) error {
	_, err := p.conn.Exec(ctx, `DROP SCHEMA `+p.schema+` CASCADE`)
	return errors.Join(err, p.conn.Close(ctx))
}

// starter is the test that pgtest starts a server for, outside of a test.
type starter struct {
	testing.TB
	cleanups []func()
}

// ended is how a starter's test ends early.
type ended struct{ error }

func (*starter) Helper()                        {}
func (s *starter) Cleanup(f func())             { s.cleanups = append(s.cleanups, f) }
func (*starter) Skipf(format string, a ...any)  { panic(ended{fmt.Errorf(format, a...)}) }
func (*starter) Fatalf(format string, a ...any) { panic(ended{fmt.Errorf(format, a...)}) }
func (*starter) Errorf(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "loadtest: "+format+"\n", a...)
}

// start gives the URL of a server that runs until stop.
func (s *starter) start() (url string, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(ended)
			if !ok {
				panic(p)
			}
			err = e.error
		}
	}()
	return pgtest.Start(s).URL(), nil
}

func (s *starter) stop() {
	for _, f := range s.cleanups {
		f()
	}
}
