package consumers

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/consumers/pgtest"
)

// counting runs a sequence at each run of a row, which no rollback takes back, and
// refuses rows of some tenants: at their own statement, and at COMMIT.
const counting = `CREATE SEQUENCE runs;
	CREATE FUNCTION count_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF TG_WHEN = 'BEFORE' THEN PERFORM nextval('runs'); END IF;
		IF NEW.tenant = 'bad' AND TG_WHEN = 'BEFORE' OR NEW.tenant = 'late' AND TG_WHEN = 'AFTER' THEN
			RAISE EXCEPTION 'bad' USING ERRCODE = '23514';
		END IF;
		RETURN NEW; END $$;
	CREATE TRIGGER count_run BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION count_run()`

// postgresBounds counts what bad rows cost: of runs of rows, and of trips.
func postgresBounds(t *testing.T, direct string) {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	between := &proxy{target: u.Host}
	between.word.Store("")
	go between.serve(l)
	u.Host = l.Addr().String()
	p := openPostgres(t, u.String()+"?sslmode=disable", 1, nil)
	db := connect(t, direct)
	deliver(t, p, aDelivery(1000), Done)
	db.do(counting)
	wantKinds(t, p.Deliver(t.Context(), []Delivery{aDelivery(1000), aDelivery(1001)}), Done, Done) // prepared

	type bound struct {
		n           int
		bad         []int
		runs, trips int // at most
	}
	every := make([]int, 200)
	for i := range every {
		every[i] = i
	}
	bounds := []bound{
		{100, nil, 100, 1}, {2, nil, 2, 1}, {1000, nil, 1000, 1},
		{2, []int{0}, 4, 2}, {2, []int{1}, 4, 2}, {2, []int{0, 1}, 4, 3},
		{100, []int{0}, 100, 2}, {100, []int{24}, 125, 2}, {100, []int{25}, 125, 2}, {100, []int{50}, 125, 2}, {100, []int{99}, 125, 2},
		{1000, []int{777}, 1025, 2}, {200, every, 400, 201},
	}
	for range 15 {
		n := 2 + rand.IntN(150)
		bad := rand.Perm(n)[:rand.IntN(n)]
		bounds = append(bounds, bound{n, bad, 2 * n, max(1, len(bad)*(2+bits.Len(uint(n))))})
	}
	for _, b := range bounds {
		slices.Sort(b.bad)
		db.do(`DELETE FROM flowgate_messages`, `ALTER SEQUENCE runs RESTART`)
		batch, want := deliveries(b.n), make([]VerdictKind, b.n)
		for _, i := range b.bad {
			batch[i].Tenant, want[i] = "bad", Reject
		}
		if len(b.bad) > 0 { // by tenant, the bad ones would stand together
			p.ordered = true
		}
		before := between.trips.Load()
		answers := p.Deliver(t.Context(), batch)
		trips := between.trips.Load() - before
		p.ordered = false
		wantKinds(t, answers, want...)
		db.wantText(fmt.Sprint(b.n-len(b.bad)), `SELECT count(*) FROM flowgate_messages`)
		if int(trips) > b.trips {
			t.Errorf("%d rows, bad %v: %d trips, want at most %d", b.n, b.bad, trips, b.trips)
		}
		var runs int
		if err := db.QueryRow(t.Context(), `SELECT nextval('runs') - 1`).Scan(&runs); err != nil {
			t.Fatal(err)
		}
		if runs > b.runs {
			t.Errorf("%d rows, bad %v: rows were run %d times, want at most %d", b.n, b.bad, runs, b.runs)
		}
	}

	// Seen at COMMIT alone, beside one that is seen at its row.
	db.do(`CREATE CONSTRAINT TRIGGER late AFTER INSERT ON flowgate_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION count_run()`,
		`DELETE FROM flowgate_messages`, `ALTER SEQUENCE runs RESTART`)
	batch, want := deliveries(100), make([]VerdictKind, 100)
	batch[10].Tenant, want[10] = "bad", Reject
	batch[40].Tenant, want[40] = "late", Reject
	batch[90].Tenant, want[90] = "late", Reject
	wantKinds(t, p.Deliver(t.Context(), batch), want...)
	db.wantText("97", `SELECT count(*) FROM flowgate_messages`)
	db.wantText("true", `SELECT nextval('runs') <= 400`)
}

// postgresOrder writes a batch in order: what comes behind a row that has to be tried
// again waits, and what comes behind one that never can does not.
func postgresOrder(t *testing.T, u string) {
	p, err := OpenPostgres(Config{URL: u, Concurrency: 1, Timeout: 10 * time.Second, Order: OrderTenant}, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	db := connect(t, u)
	deliver(t, p, aDelivery(1000), Done)
	db.do(`ALTER TABLE flowgate_messages ADD CHECK (topic <> 'banned')`, `ALTER TABLE flowgate_messages ADD place serial`,
		`CREATE FUNCTION misbehave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.topic = 'raise' THEN RAISE EXCEPTION 'not today'; END IF; RETURN NEW; END $$`,
		`CREATE TRIGGER misbehave BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	inOrder(t, p, func() { db.do(`DELETE FROM flowgate_messages`) }, func() string {
		return db.text(`SELECT coalesce(string_agg(seq::text, ' ' ORDER BY place), '') FROM flowgate_messages`)
	})
}

// inOrder checks what a destination makes of ordered batches; topics "banned" and
// "raise" are what never passes and what does not now.
func inOrder(t *testing.T, d Destination, empty func(), written func() string) {
	t.Helper()
	for _, test := range []struct {
		banned, raise []int
		want          string // a letter a message: d, r(eject), t(ry again), h(eld)
		written       string
	}{
		{nil, nil, "dddddd", "6 5 4 3 2 1"},
		{[]int{2}, nil, "ddrddd", "6 5 3 2 1"},
		{nil, []int{2}, "ddthhh", "6 5"},
		{nil, []int{0}, "thhhhh", ""},
		{nil, []int{5}, "dddddt", "6 5 4 3 2"},
		{[]int{1, 4}, []int{3}, "drdthh", "6 4"},
		{[]int{0, 1, 2, 3, 4, 5}, nil, "rrrrrr", ""},
		{nil, []int{2, 3}, "ddthhh", "6 5"},
	} {
		empty()
		batch := deliveries(6)
		for i := range batch {
			batch[i].Seq = uint64(6 - i) // whatever the numbers: the batch's own order holds
		}
		for _, i := range test.banned {
			batch[i].Topic = "banned"
		}
		for _, i := range test.raise {
			batch[i].Topic = "raise"
		}
		var got []byte
		for _, err := range d.Deliver(t.Context(), batch) {
			got = append(got, map[VerdictKind]byte{Done: 'd', Reject: 'r', Retry: 't', Hold: 'h', Overload: 'o'}[Judge(err).Kind])
		}
		if string(got) != test.want || written() != test.written {
			t.Errorf("banned %v, raising %v: verdicts %s, written %q; want %s, %q", test.banned, test.raise, got, written(), test.want, test.written)
		}
	}
}

// postgresDeadlocks writes the same messages at once, in different orders: no two
// transactions wait for each other in a ring.
func postgresDeadlocks(t *testing.T, u string) {
	db := connect(t, u)
	deliver(t, openPostgres(t, u, 1, nil), aDelivery(1000), Done)
	writers := []*Postgres{openPostgres(t, u, 1, nil), openPostgres(t, u, 1, nil), openPostgres(t, u, 1, nil)}
	for round := range 20 {
		db.do(`DELETE FROM flowgate_messages`)
		var wg sync.WaitGroup
		for _, p := range writers {
			batch := deliveries(50)
			rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			batch[rand.IntN(len(batch))].ID = "\x00"
			wg.Go(func() {
				for _, err := range p.Deliver(t.Context(), batch) {
					if k := Judge(err).Kind; k != Done && k != Reject {
						t.Errorf("round %d: %v", round, err)
					}
				}
			})
		}
		wg.Wait()
	}
	db.wantText("0", `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}

// postgresSlowRow finds the row of a batch that takes too long, while there is time to
// write its neighbours.
func postgresSlowRow(t *testing.T, u string) {
	p, err := OpenPostgres(Config{URL: u, Concurrency: 1, Timeout: 5 * time.Second}, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	db := connect(t, u)
	deliver(t, p, aDelivery(1000), Done)
	db.do(trigger, `CREATE TRIGGER misbehave BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	batch := deliveries(5)
	batch[2].Tenant = "slow"
	answers := p.Deliver(t.Context(), batch)
	wantKinds(t, answers, Done, Done, Retry, Done, Done)
	wantError(t, answers[2], "57014")
	// A stricter bound of the role's own stays.
	db.do(`ALTER ROLE postgres IN DATABASE ` + db.text(`current_database()`) + ` SET statement_timeout = '123ms'`)
	q := openPostgres(t, u, 1, nil)
	wantKinds(t, q.Deliver(t.Context(), batch), Done, Done, Retry, Done, Done)
}

// postgresTooMany meets a server that has no connection left.
func postgresTooMany(t *testing.T, u string) {
	db := connect(t, u)
	deliver(t, openPostgres(t, u, 1, nil), aDelivery(1000), Done)
	role := "few_" + db.text(`current_database()`)
	db.do(`CREATE ROLE `+role+` LOGIN PASSWORD 'throw-away' CONNECTION LIMIT 1`, `GRANT SELECT, INSERT ON flowgate_messages TO `+role)
	with, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	with.User = url.UserPassword(role, "throw-away")
	first := openPostgres(t, with.String(), 1, nil)
	deliver(t, first, aDelivery(1), Done)
	second := openPostgres(t, with.String(), 1, nil)
	wantError(t, deliver(t, second, aDelivery(2), Overload), "53300")
	wantKinds(t, second.Deliver(t.Context(), deliveries(2)), Overload, Overload)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); second.Deliver(t.Context(), []Delivery{aDelivery(2)})[0] != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) { // the server notices the end of a connection in its own time
			t.Fatal("no delivery though a connection is free")
		}
	}
}

// postgresStandby has the server turn read-only to sessions that are there, as one that
// was made a standby, while new ones can write.
func postgresStandby(t *testing.T, u string) {
	p := openPostgres(t, u, 1, nil)
	db := connect(t, u)
	deliver(t, p, aDelivery(1), Done)
	name := db.text(`current_database()`)
	db.do(`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = openPostgres(t, u, 1, nil)
	wantError(t, p.Deliver(t.Context(), deliveries(3))[2], "25006")
	db.do(`SET default_transaction_read_only = off`, `ALTER DATABASE `+name+` RESET default_transaction_read_only`)
	wantKinds(t, p.Deliver(t.Context(), deliveries(3)), Done, Done, Done)
}

// TestPostgresKilled kills the process that works on a batch, as the kernel does for
// want of memory: the server ends all sessions and recovers.
func TestPostgresKilled(t *testing.T) {
	cluster := pgtest.Start(t)
	p := openPostgres(t, cluster.URL(), 2, nil)
	deliver(t, p, aDelivery(1000), Done)
	db := connect(t, cluster.URL())
	db.do(trigger, `CREATE TRIGGER misbehave BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	for _, kill := range []func(pid int) error{cluster.KillSession, func(int) error { cluster.Crash(); return nil }} {
		batch := deliveries(10)
		batch[5].Tenant = "slow"
		answers := make(chan []error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		go func() { answers <- p.Deliver(ctx, batch) }()
		db := connect(t, cluster.URL())
		var pid int
		for end := time.Now().Add(20 * time.Second); pid == 0; time.Sleep(5 * time.Millisecond) {
			_ = db.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name = 'flowgate' AND wait_event = 'PgSleep'`).Scan(&pid)
			if time.Now().After(end) {
				t.Fatal("the batch does not arrive")
			}
		}
		if err := kill(pid); err != nil {
			t.Fatal(err)
		}
		for i, err := range <-answers {
			if Judge(err).Kind != Overload {
				t.Errorf("message %d: %v; want overload", i, err)
			}
		}
		cluster.Start()
		batch[5].Tenant = "acme"
		var last []error
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			last = p.Deliver(t.Context(), batch)
			if last[0] == nil || time.Now().After(end) {
				break
			}
			wantKinds(t, last[:1], Overload) // it recovers
		}
		for i, err := range last {
			if err != nil {
				t.Errorf("message %d after the recovery: %v", i, err)
			}
		}
		db = connect(t, cluster.URL())
		db.wantText("11", `SELECT count(*) FROM flowgate_messages`)
		db.do(`DELETE FROM flowgate_messages WHERE seq < 1000`)
	}
}
