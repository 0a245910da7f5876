package consumers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The statements around rows. Savepoints have one name and are released before the
// next, so that none nests in another.
const (
	beginBatch  = "BEGIN"
	commitBatch = "COMMIT"
	mark        = "SAVEPOINT flowgate"
	unmark      = "RELEASE SAVEPOINT flowgate"
	backToMark  = "ROLLBACK TO SAVEPOINT flowgate"
	checkAtRow  = "SET CONSTRAINTS ALL IMMEDIATE"
)

// markEvery is how many rows stand between savepoints. A server keeps 64 of a
// transaction's savepoints at hand; 1,000 rows have 40.
const markEvery = 25

// postgresWriter writes one batch in one transaction.
//
// All of it is sent at once, BEGIN to COMMIT: one trip. If a row fails, the server
// drops what comes after; then it goes back to the last savepoint, writes the rows
// since then once more, puts a savepoint behind them, and goes on behind the bad row.
// So one bad row costs one more trip, and no row is run more than twice, however many
// are bad. With a second bad row what is sent at once is halved, and doubled as it goes
// well: each bad row costs at most 2 + log2 n trips, and rows that the server drops
// anyway are not sent again and again.
//
// A check that waits for COMMIT tells no row: then all is written a second time, with
// each checked at its row.
type postgresWriter struct {
	*Postgres
	conn  *pgx.Conn
	batch []Delivery
	types []uint32 // of the parameters in a statement of one's own

	verdicts []error
	repeats  []int // rows that were there before
}

// prepare prepares the statements on this connection, unless the URL has it without,
// for a pooler. They are prepared by name: what pgx prepares by itself it forgets
// when a batch fails, and could not prepare again in a transaction that failed.
func (w *postgresWriter) prepare(ctx context.Context) error {
	w.verdicts = make([]error, len(w.batch))
	if w.conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		statements := []string{w.insert}
		if len(w.batch) > 1 {
			statements = append(statements, beginBatch, commitBatch, mark, unmark, backToMark)
		}
		for _, s := range statements {
			sd, err := w.conn.Prepare(ctx, s, s)
			if err != nil {
				return w.unprepared(ctx, err)
			}
			if s == w.insert {
				w.types = sd.ParamOIDs
			}
		}
		return nil
	}
	if w.own.has("payload") {
		sd, err := w.conn.PgConn().Prepare(ctx, "", w.insert, nil)
		if err != nil {
			return w.unprepared(ctx, err)
		}
		w.types = sd.ParamOIDs
	}
	return nil
}

// unprepared is the verdict on a statement that could not be prepared: no message has
// been looked at.
func (w *postgresWriter) unprepared(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return postgresVerdict(err)
	}
	if w.own.text != "" {
		err = fmt.Errorf("FLOWGATE_CONSUMER_SQL: %w", err)
	}
	return Overloaded(0, fmt.Errorf("postgres: prepare: %w", err))
}

// verdict sorts an error of a row; one of the statement itself is told as such.
func (w *postgresWriter) verdict(err error) error {
	if w.own.text != "" && hasPrefix(state(err), statementStates) {
		err = fmt.Errorf("FLOWGATE_CONSUMER_SQL: %w", err)
	}
	return postgresVerdict(err)
}

// one writes a batch of one, which needs no transaction of its own.
func (w *postgresWriter) one(ctx context.Context) {
	tag, err := w.conn.Exec(ctx, w.insert, w.row(0)...)
	if err != nil {
		w.verdicts[0] = w.verdict(err)
	} else if tag.RowsAffected() == 0 {
		w.repeats = []int{0}
	}
}

// many writes a batch of several.
func (w *postgresWriter) many(ctx context.Context) {
	rows := w.sequence()
	before, known, window, bad, late := []string{beginBatch}, 0, len(rows), 0, false
	for {
		sent := min(len(rows), window)
		failed, kept, err := w.send(ctx, before, rows[:sent], known, sent == len(rows))
		switch {
		case err == nil && sent == len(rows):
			return
		case err == nil:
			rows, known, before, window = rows[sent:], 0, []string{unmark, mark}, window*2
			continue
		}
		v := w.verdict(err)
		whole := Judge(v).Kind == Overload || ctx.Err() != nil || failed < 0
		switch {
		case whole, failed == sent && late:
			w.fail(ctx, v)
			return
		case failed == sent:
			// COMMIT: nothing stands, and the transaction is over.
			late, w.repeats, window = true, nil, len(w.batch)
			rows, known, before = w.standing(), 0, []string{beginBatch, checkAtRow}
			continue
		}
		w.verdicts[rows[failed]] = v
		again, rest := rows[kept:failed], rows[failed+1:]
		if w.ordered && Judge(v).Kind == Retry {
			for _, i := range rest {
				w.verdicts[i] = Held(fmt.Errorf("postgres: %s, which comes before it, has to be tried again first", w.batch[rows[failed]].ID))
			}
			rest = nil
		}
		if bad++; bad > 1 {
			window = max(1, min(window, sent)/2)
		}
		// Repeats among those that are written once more are noted once more.
		w.repeats = slices.DeleteFunc(w.repeats, func(i int) bool { return slices.Contains(again, i) })
		rows, known, before = slices.Concat(again, rest), len(again), []string{backToMark}
		window = max(window, known+1)
	}
}

// sequence is the order of writing. In order it is the batch's own. Otherwise it is by
// tenant and place in the stream: a tenant's stay in order, and two transactions with
// the same messages, or with the same rows of a tenant, take their locks in the same
// order and never wait for each other in a ring.
func (w *postgresWriter) sequence() []int {
	rows := make([]int, len(w.batch))
	for i := range rows {
		rows[i] = i
	}
	if !w.ordered {
		slices.SortStableFunc(rows, func(a, b int) int {
			x, y := &w.batch[a], &w.batch[b]
			return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.ID, y.ID))
		})
	}
	return rows
}

// standing are the rows without a verdict against them.
func (w *postgresWriter) standing() []int {
	return slices.DeleteFunc(w.sequence(), func(i int) bool { return w.verdicts[i] != nil })
}

// send runs statements and rows in one trip, with a savepoint after the first known
// ones and one at every markEvery from there; end adds the COMMIT. It tells the place
// of the row that failed, len(rows) for the COMMIT and -1 for another statement, and
// how many rows stand before the last savepoint.
func (w *postgresWriter) send(ctx context.Context, before []string, rows []int, known int, end bool) (failed, kept int, err error) {
	const control = -1
	b := &pgx.Batch{}
	var places []int // of each statement: its row's place in rows, or control
	queue := func(place int, sql string, args ...any) {
		b.Queue(sql, args...)
		places = append(places, place)
	}
	for _, s := range before {
		queue(control, s)
	}
	marked := slices.Contains(before, backToMark) || slices.Contains(before, mark)
	marks := map[int]int{} // by statement: rows before it
	for i, r := range rows {
		if !marked || i >= known && i > 0 && (i-known)%markEvery == 0 {
			if marked {
				queue(control, unmark)
			}
			queue(control, mark)
			marks[len(places)-1], marked = i, true
		}
		queue(i, w.insert, w.row(r)...)
	}
	if end {
		queue(len(rows), commitBatch)
	}
	results := w.conn.SendBatch(ctx, b)
	defer func() {
		if e := results.Close(); err == nil && e != nil {
			failed, err = control, e
		}
	}()
	for n, place := range places {
		tag, err := results.Exec()
		switch {
		case err != nil:
			return place, kept, err
		case place == len(rows) && tag.String() != "COMMIT":
			return control, kept, fmt.Errorf("the server answered COMMIT with %s", tag)
		case place >= 0 && place < len(rows) && tag.RowsAffected() == 0:
			w.repeats = append(w.repeats, rows[place])
		case place == control:
			if m, ok := marks[n]; ok {
				kept = m
			}
		}
	}
	return len(rows), kept, nil
}

// fail gives every row the verdict, and leaves the connection without a transaction.
func (w *postgresWriter) fail(ctx context.Context, v error) {
	w.repeats = nil
	for i := range w.verdicts {
		w.verdicts[i] = v
	}
	if !w.conn.IsClosed() && w.conn.PgConn().TxStatus() != 'I' {
		_, _ = w.conn.Exec(ctx, "ROLLBACK") // if it fails the pool closes the connection
	}
}

// compare looks, in one query, at what stands in the place of rows that were not new.
func (w *postgresWriter) compare(ctx context.Context) {
	if len(w.repeats) == 0 || w.own.text != "" {
		return
	}
	ids, payloads := make([]string, len(w.repeats)), make([][]byte, len(w.repeats))
	for n, i := range w.repeats {
		ids[n], payloads[n] = w.batch[i].ID, payload(w.batch[i])
	}
	rows, err := w.conn.Query(ctx, `SELECT t.payload = w.payload
		FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS w(id, payload, n) LEFT JOIN `+tableName+` t USING (id) ORDER BY w.n`, ids, payloads)
	var same []*bool
	if err == nil {
		same, err = pgx.CollectRows(rows, pgx.RowTo[*bool])
	}
	for n, i := range w.repeats {
		switch {
		case err != nil:
			w.verdicts[i] = postgresVerdict(err)
		case same[n] == nil:
			w.verdicts[i] = fmt.Errorf("postgres: row %s was deleted while it was written", w.batch[i].ID)
		case !*same[n]:
			w.conflicts.note(w.batch[i])
		}
	}
}

// row gives the statement's arguments.
func (w *postgresWriter) row(i int) []any {
	d := w.batch[i]
	if w.own.text == "" {
		return []any{d.ID, d.Tenant, d.Topic, int64(d.Seq), d.Attempt, payload(d), headersJSON(d.Headers), d.AdmittedAt, d.ReleasedAt}
	}
	args := make([]any, len(w.own.names))
	for n, name := range w.own.names {
		args[n] = w.argument(n, name, d)
	}
	return args
}

// argument is a parameter's value as text, which the server reads as whatever type
// the statement gives it: so what does not fit is told by the server, which knows
// whether the row or the statement is to blame. A payload that goes into bytea stays
// bytes.
func (w *postgresWriter) argument(n int, name string, d Delivery) any {
	switch name {
	case "id":
		return d.ID
	case "tenant":
		return d.Tenant
	case "topic":
		return d.Topic
	case "seq":
		return strconv.FormatUint(d.Seq, 10)
	case "attempt":
		return strconv.Itoa(d.Attempt)
	case "headers":
		return headersJSON(d.Headers)
	case "admitted_at":
		return d.AdmittedAt.UTC().Format(time.RFC3339Nano)
	case "released_at":
		return d.ReleasedAt.UTC().Format(time.RFC3339Nano)
	}
	if w.types[n] == pgtype.ByteaOID {
		return payload(d)
	}
	return string(d.Payload)
}

func payload(d Delivery) []byte {
	if d.Payload == nil {
		return []byte{}
	}
	return d.Payload
}
