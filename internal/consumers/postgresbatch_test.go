package consumers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// trigger makes rows of some tenants misbehave on their way into the table.
const trigger = `CREATE OR REPLACE FUNCTION misbehave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.tenant = 'raise' THEN RAISE EXCEPTION 'not today'; END IF;
	IF NEW.tenant = 'deadlock' THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END IF;
	IF NEW.tenant = 'full' THEN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END IF;
	IF NEW.tenant = 'slow' THEN PERFORM pg_sleep(30); END IF;
	IF NEW.tenant = 'commit' AND TG_WHEN = 'AFTER' THEN RAISE EXCEPTION 'at the end' USING ERRCODE = '23514'; END IF;
	RETURN NEW; END $$`

// postgresBatch writes batches with rows that can never stand: the neighbours do,
// and each bad row has the verdict that is its own.
func postgresBadRows(t *testing.T, url string) {
	p := openPostgres(t, url, 1, nil)
	db := connect(t, url)
	deliver(t, p, aDelivery(1000), Done)
	db.do(`ALTER TABLE flowgate_messages ADD CHECK (tenant <> 'banned')`, trigger,
		`CREATE TRIGGER misbehave BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	bad := map[string]struct {
		change func(*Delivery)
		want   VerdictKind
		says   string
	}{
		"check":     {func(d *Delivery) { d.Tenant = "banned" }, Reject, "23514"},
		"nul in id": {func(d *Delivery) { d.ID = "acme/\x00" }, Reject, "22021"},
		"bytes":     {func(d *Delivery) { d.Topic = "\xff" }, Reject, "22021"},
		"raised":    {func(d *Delivery) { d.Tenant = "raise" }, Retry, "not today"},
	}
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			for _, places := range [][]int{{4}, {0}, {9}, {2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
				db.do(`DELETE FROM flowgate_messages`)
				batch := deliveries(10)
				want := make([]VerdictKind, len(batch))
				for _, i := range places {
					b.change(&batch[i])
					want[i] = b.want
				}
				answers := p.Deliver(t.Context(), batch)
				wantKinds(t, answers, want...)
				wantError(t, answers[places[0]], b.says)
				db.wantText(fmt.Sprint(len(batch)-len(places)), `SELECT count(*) FROM flowgate_messages`)
				deliver(t, p, aDelivery(11), Done) // what comes next flows
			}
			single := aDelivery(1)
			b.change(&single)
			wantError(t, deliver(t, p, single, b.want), b.says)
		})
	}
}

// postgresBatchTrouble breaks whole batches: none of it stands, none of the
// messages is to blame, and the connection serves on.
func postgresTrouble(t *testing.T, url string) {
	p := openPostgres(t, url, 1, nil)
	db := connect(t, url)
	deliver(t, p, aDelivery(1000), Done)
	db.do(trigger, `CREATE TRIGGER misbehave BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	for _, tenant := range []string{"deadlock", "full"} {
		batch := deliveries(3)
		batch[1].Tenant = tenant
		wantKinds(t, p.Deliver(t.Context(), batch), Overload, Overload, Overload)
		db.wantText("1", `SELECT count(*) FROM flowgate_messages`)
		deliver(t, p, batch[1], Overload)
		// Behind a row that is bad, found when the batch is written again.
		batch[0].ID = "\x00"
		wantKinds(t, p.Deliver(t.Context(), batch), Overload, Overload, Overload)
		db.wantText("1", `SELECT count(*) FROM flowgate_messages`)
	}

	// Something that shows only at COMMIT.
	db.do(`CREATE CONSTRAINT TRIGGER late AFTER INSERT ON flowgate_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	batch := deliveries(3)
	batch[1].Tenant = "commit"
	answers := p.Deliver(t.Context(), batch)
	wantKinds(t, answers, Done, Reject, Done)
	wantError(t, answers[1], "23514")
	db.wantText("3", `SELECT count(*) FROM flowgate_messages`)
	wantError(t, deliver(t, p, batch[1], Reject), "23514")

	// Too slow for the attempt: one, and among others.
	for n := 1; n <= 3; n += 2 {
		deliver(t, p, aDelivery(1000), Done) // connects
		batch := deliveries(n)
		batch[0].Tenant = "slow"
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		answers := p.Deliver(ctx, batch)
		cancel()
		for i, err := range answers {
			if Judge(err).Kind != Retry || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d of %d too slow: %v, %v; want retry for its deadline", i, n, Judge(err).Kind, err)
			}
		}
	}
	// A slow row found in the second writing, behind a bad one.
	deliver(t, p, aDelivery(1000), Done)
	batch = deliveries(3)
	batch[0].ID, batch[1].Tenant = "\x00", "slow"
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for i, err := range p.Deliver(ctx, batch) {
		if Judge(err).Kind == Overload || err == nil {
			t.Errorf("%d: %v; want a fault of the message's", i, err)
		}
	}
	deliver(t, p, aDelivery(1), Done)
}

// postgresSession obeys what the URL or the role sets for a session.
func postgresSession(t *testing.T, url string) {
	db := connect(t, url)
	deliver(t, openPostgres(t, url, 1, nil), aDelivery(1000), Done)
	db.do(trigger, `CREATE TRIGGER misbehave BEFORE INSERT ON flowgate_messages FOR EACH ROW EXECUTE FUNCTION misbehave()`)
	with := func(setting string) string { return url + "?" + setting }

	t.Run("statement timeout", func(t *testing.T) {
		p := openPostgres(t, with("statement_timeout=100"), 1, nil)
		slow := aDelivery(1)
		slow.Tenant = "slow"
		wantError(t, deliver(t, p, slow, Retry), "57014")
		wantKinds(t, p.Deliver(t.Context(), []Delivery{aDelivery(2), slow, aDelivery(3)}), Done, Retry, Done)
	})
	t.Run("lock timeout", func(t *testing.T) {
		p := openPostgres(t, with("lock_timeout=100"), 1, nil)
		deliver(t, p, aDelivery(4), Done)
		db.do(`BEGIN`, `LOCK TABLE flowgate_messages`)
		wantError(t, deliver(t, p, aDelivery(5), Overload), "55P03")
		wantKinds(t, p.Deliver(t.Context(), deliveries(2)), Overload, Overload)
		db.do(`ROLLBACK`)
		deliver(t, p, aDelivery(5), Done)
	})
	t.Run("lock timeout by default", func(t *testing.T) {
		p, err := OpenPostgres(Config{URL: url, Concurrency: 1, Timeout: time.Second}, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		db.do(`BEGIN`, `LOCK TABLE flowgate_messages`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = p.Deliver(ctx, []Delivery{aDelivery(8)})[0]
		if Judge(err).Kind != Overload {
			t.Errorf("a locked table: %v, want the database's fault", err)
		}
		wantError(t, err, "55P03")
		db.do(`ROLLBACK`)
	})
	t.Run("read-only", func(t *testing.T) {
		p := openPostgres(t, with("default_transaction_read_only=on"), 1, nil)
		wantError(t, deliver(t, p, aDelivery(6), Overload), "25006")
	})
	t.Run("name", func(t *testing.T) {
		p := openPostgres(t, with("application_name=mine"), 1, nil)
		deliver(t, p, aDelivery(7), Done)
		db.wantText("1", `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mine'`)
	})
	t.Run("without prepared statements", func(t *testing.T) { // behind a pooler
		for _, mode := range []string{"exec", "simple_protocol"} {
			p := openPostgres(t, with("default_query_exec_mode="+mode), 1, nil)
			d := aDelivery(8)
			d.ID, d.Payload, d.Headers = "acme/"+mode, []byte("\x00'\\\xff"), map[string][]string{"K": {"'"}}
			for range 2 {
				deliver(t, p, d, Done)
				wantKinds(t, p.Deliver(t.Context(), []Delivery{d, aDelivery(9)}), Done, Done)
			}
			db.wantText(`\x00275cff`, `SELECT payload FROM flowgate_messages WHERE id = $1`, d.ID)
			db.wantText(`{"K": ["'"]}`, `SELECT headers FROM flowgate_messages WHERE id = $1`, d.ID)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		p := openPostgres(t, strings.Replace(url, "throw-away", "s3cr3t-guess", 1), 1, nil)
		answer := deliver(t, p, aDelivery(9), Overload)
		wantError(t, answer, "28P01", "connect")
		wantError(t, p.Ping(t.Context()), "28P01")
		if strings.Contains(answer.Error(), "s3cr3t") {
			t.Errorf("the verdict shows the password: %v", answer)
		}
	})
	t.Run("no such database", func(t *testing.T) {
		p := openPostgres(t, url+"x", 1, nil)
		wantError(t, deliver(t, p, aDelivery(9), Overload), "3D000")
	})
}
