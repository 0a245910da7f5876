package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/consumers/pgtest"
)

// openPostgres makes a destination of the database at url.
func openPostgres(t *testing.T, url string, connections int, reg prometheus.Registerer) *Postgres {
	t.Helper()
	p, err := OpenPostgres(Config{URL: url, Concurrency: connections, Timeout: 10 * time.Second}, reg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// session is somebody else's connection to the database.
type session struct {
	t *testing.T
	*pgx.Conn
}

func connect(t *testing.T, url string) session {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return session{t, conn}
}

func (s session) do(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := s.Exec(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// text is the one value of a query, as text.
func (s session) text(query string, args ...any) (v string) {
	s.t.Helper()
	if err := s.QueryRow(s.t.Context(), "SELECT ("+query+")::text", args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return v
}

func (s session) wantText(want, query string, args ...any) {
	s.t.Helper()
	if got := s.text(query, args...); got != want {
		s.t.Errorf("%s is %q, want %q", query, got, want)
	}
}

func TestPostgres(t *testing.T) {
	cluster := pgtest.Start(t)
	for name, test := range map[string]func(t *testing.T, url string){
		"table": postgresTable, "payloads": postgresPayloads, "repeats": postgresRepeats, "concurrent deliveries": postgresConcurrent,
		"two make the table": postgresRace, "table dropped": postgresDropped, "writer's rights": postgresRights, "foreign table": postgresForeign,
		"batch": postgresBadRows, "batch in trouble": postgresTrouble, "session setting": postgresSession,
		"administrator": postgresAdministrator, "lost answers": postgresLostAnswers, "reset": postgresReset, "bounds": postgresBounds, "order": postgresOrder, "deadlocks": postgresDeadlocks,
		"slow row": postgresSlowRow, "too many connections": postgresTooMany, "made a standby": postgresStandby,
		"own statement": postgresOwn, "own statement at fault": postgresOwnFaults, "retention": postgresRetention, "retention without rights": postgresRetentionRights,
	} {
		t.Run(name, func(t *testing.T) { test(t, cluster.Database(t)) })
	}
}

func postgresTable(t *testing.T, url string) {
	p := openPostgres(t, url, 1, nil)
	db := connect(t, url)
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	db.wantText("true", `to_regclass('flowgate_messages') IS NULL`) // made on first use
	d := aDelivery(7)
	d.Attempt = 3
	d.Headers = map[string][]string{"K": {"v"}, "Many": {"a", "b"}, "Odd": {"\xff\x00<é"}}
	deliver(t, p, d, Done)

	db.wantText("id text,tenant text,topic text,seq bigint,attempt integer,payload bytea,headers jsonb,"+
		"admitted_at timestamp with time zone,released_at timestamp with time zone,written_at timestamp with time zone",
		`SELECT string_agg(column_name || ' ' || data_type, ',' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_name = 'flowgate_messages'`)
	db.wantText("id", `SELECT string_agg(column_name, ',') FROM information_schema.key_column_usage WHERE table_name = 'flowgate_messages'`)
	db.wantText("acme/7|acme|orders.new|7|3", `SELECT concat_ws('|', id, tenant, topic, seq, attempt) FROM flowgate_messages`)
	db.wantText("b", `SELECT headers->'Many'->>1 FROM flowgate_messages`)
	var headers map[string][]string
	if err := json.Unmarshal([]byte(db.text(`SELECT headers FROM flowgate_messages`)), &headers); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"K": {"v"}, "Many": {"a", "b"}, "Odd": {"\uFFFD\uFFFD<é"}}, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	db.wantText("2026-11-12 13:14:15.161718|2026-11-12 13:14:15.163218",
		`SELECT concat_ws('|', admitted_at AT TIME ZONE 'UTC', released_at AT TIME ZONE 'UTC') FROM flowgate_messages`)
	db.wantText("true", `SELECT written_at BETWEEN now() - interval '1 minute' AND now() FROM flowgate_messages`)
	db.wantText("1", `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flowgate' AND datname = current_database()`)
}

func postgresPayloads(t *testing.T, url string) {
	p := openPostgres(t, url, 1, nil)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	payloads := map[string][]byte{
		"nul": []byte("a\x00b\x00"), "invalid UTF-8": {0xff, 0xfe, 0xc3}, "every byte": every,
		"empty": {}, "nil": nil, "a MiB": bytes.Repeat([]byte{0, 1, 0xff, '\''}, 1<<18), "escape": []byte(`\x00 \\000`),
	}
	batch := make([]Delivery, 0, len(payloads))
	for name, body := range payloads {
		d := aDelivery(1)
		d.ID, d.Payload = "acme/"+name, body
		deliver(t, p, d, Done)
		d.ID += " in a batch"
		batch = append(batch, d)
	}
	for range 2 { // and is known again
		for _, err := range p.Deliver(t.Context(), batch) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	db := connect(t, url)
	for name, body := range payloads {
		for _, id := range []string{"acme/" + name, "acme/" + name + " in a batch"} {
			var got []byte
			if err := db.QueryRow(t.Context(), `SELECT payload FROM flowgate_messages WHERE id = $1`, id).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, body) {
				t.Errorf("%s: stored %d bytes %.20q, want %d bytes %.20q", id, len(got), got, len(body), body)
			}
		}
	}
}

func postgresRepeats(t *testing.T, url string) {
	reg := prometheus.NewRegistry()
	p := openPostgres(t, url, 1, reg)
	conflicts := func(want float64) {
		t.Helper()
		wantSamples(t, reg, map[string]float64{"flowgate_consumer_conflicts_total": want})
	}
	d := aDelivery(1)
	deliver(t, p, d, Done)
	again := d
	again.Attempt, again.Seq, again.ReleasedAt = 2, 99, d.ReleasedAt.Add(time.Hour)
	deliver(t, p, again, Done)
	conflicts(0)
	other := again
	other.Payload = []byte("another payload")
	deliver(t, p, other, Done)
	conflicts(1)
	// In one batch, with one that is new and one twice.
	wantKinds(t, p.Deliver(t.Context(), []Delivery{other, aDelivery(2), aDelivery(2), aDelivery(3)}), Done, Done, Done, Done)
	conflicts(2)
	db := connect(t, url)
	db.wantText("3", `SELECT count(*) FROM flowgate_messages`)
	db.wantText("payload 1|1|1", `SELECT concat_ws('|', convert_from(payload, 'UTF8'), seq, attempt) FROM flowgate_messages WHERE id = 'acme/1'`)
}

func postgresConcurrent(t *testing.T, url string) {
	const writers, each = 8, 25
	p := openPostgres(t, url, 4, nil) // fewer connections than callers
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := w*each + i + 1
				if answers := p.Deliver(t.Context(), []Delivery{aDelivery(n), aDelivery(n + 1)}); answers[0] != nil || answers[1] != nil {
					t.Errorf("%d: %v", n, answers)
				}
			}
		})
	}
	wg.Wait()
	db := connect(t, url)
	db.wantText(fmt.Sprintf("%d 1 %[1]d", writers*each+1), `SELECT concat_ws(' ', count(*), min(seq), max(seq)) FROM flowgate_messages WHERE convert_from(payload, 'UTF8') = 'payload ' || seq`)
}

// postgresRace has gateways that start at once all make the table.
func postgresRace(t *testing.T, url string) {
	db := connect(t, url)
	for round := range 3 {
		db.do(`DROP TABLE IF EXISTS flowgate_messages`)
		const gateways = 6
		ready := make(chan struct{})
		var wg sync.WaitGroup
		for g := range gateways {
			p := openPostgres(t, url, 1, nil)
			if err := p.Ping(t.Context()); err != nil { // connected already
				t.Fatal(err)
			}
			wg.Go(func() {
				<-ready
				if err := p.Deliver(t.Context(), []Delivery{aDelivery(g)})[0]; err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				_ = p.Close()
			})
		}
		close(ready)
		wg.Wait()
		db.wantText(fmt.Sprint(gateways), `SELECT count(*) FROM flowgate_messages`)
	}
}

func postgresDropped(t *testing.T, url string) {
	p := openPostgres(t, url, 1, nil)
	db := connect(t, url)
	for _, batch := range [][]Delivery{deliveries(1), deliveries(3)} {
		for _, err := range p.Deliver(t.Context(), batch) {
			if err != nil {
				t.Fatal(err)
			}
		}
		db.do(`DROP TABLE flowgate_messages`)
		for _, err := range p.Deliver(t.Context(), batch) {
			if Judge(err).Kind != Overload { // no message's fault
				t.Errorf("no table: verdict %v", err)
			}
		}
		for _, err := range p.Deliver(t.Context(), batch) {
			if err != nil {
				t.Errorf("after the table went: %v", err)
			}
		}
		db.wantText(fmt.Sprint(len(batch)), `SELECT count(*) FROM flowgate_messages`)
	}
}

// postgresRights writes as a user who may use the table and make none, which is
// what PostgreSQL gives since 15, and what an owner of a database should give.
func postgresRights(t *testing.T, url string) {
	admin := connect(t, url)
	role := "writer_" + admin.text(`current_database()`)
	admin.do(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'w'`)
	p := openPostgres(t, strings.Replace(url, "postgres:throw-away@", role+":w@", 1), 1, nil)
	wantError(t, deliver(t, p, aDelivery(1), Overload), "42501")

	deliver(t, openPostgres(t, url, 1, nil), aDelivery(1), Done) // the owner makes it
	admin.do(`GRANT SELECT, INSERT ON flowgate_messages TO ` + role)
	deliver(t, p, aDelivery(2), Done)
	wantKinds(t, p.Deliver(t.Context(), deliveries(3)), Done, Done, Done)
	admin.wantText("3", `SELECT count(*) FROM flowgate_messages`)
}

// postgresForeign finds a table of the name with other columns: that is nobody's
// message's fault, and is mended without a restart.
func postgresForeign(t *testing.T, url string) {
	db := connect(t, url)
	p := openPostgres(t, url, 1, nil)
	for _, foreign := range []string{
		`CREATE TABLE flowgate_messages (id text PRIMARY KEY, payload bytea)`, // columns missing
		strings.Replace(createPostgres, "PRIMARY KEY", "", 1),                 // no key
	} {
		db.do(`DROP TABLE IF EXISTS flowgate_messages`, foreign)
		deliver(t, p, aDelivery(1), Overload)
		wantKinds(t, p.Deliver(t.Context(), deliveries(2)), Overload, Overload)
	}
	db.do(`DROP TABLE flowgate_messages`, createPostgres, `ALTER TABLE flowgate_messages ADD note text DEFAULT 'mine'`)
	deliver(t, p, aDelivery(1), Done)
}
