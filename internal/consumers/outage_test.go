package consumers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/consumers/pgtest"
)

// TestPostgresOutages stops the database and starts it again: it is no message's
// fault, each call tells so at once, and all goes on by itself.
func TestPostgresOutages(t *testing.T) {
	cluster := pgtest.Start(t)
	const connections = 3
	p := openPostgres(t, cluster.URL(), connections, nil)
	next := 0
	batch := func(n int) []Delivery {
		ds := make([]Delivery, n)
		for i := range ds {
			next++
			ds[i] = aDelivery(next)
		}
		return ds
	}
	work := func() { // on all connections at once
		t.Helper()
		var wg sync.WaitGroup
		for range connections {
			b := batch(2)
			wg.Go(func() {
				if answers := p.Deliver(t.Context(), b); answers[0] != nil || answers[1] != nil {
					t.Errorf("the database is up: %v", answers)
				}
			})
		}
		wg.Wait()
	}
	for name, stop := range map[string]func(){"shutdown": cluster.Stop, "crash": cluster.Kill} {
		work()
		stop()
		waiting := batch(4)
		began := time.Now()
		for range connections + 2 { // those that were open, and new ones
			wantKinds(t, p.Deliver(t.Context(), waiting[:1]), Overload)
			wantKinds(t, p.Deliver(t.Context(), waiting), Overload, Overload, Overload, Overload)
		}
		wantError(t, p.Ping(t.Context()), "connect")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: to learn that the database is down took %s", name, took)
		}
		cluster.Start()
		wantKinds(t, p.Deliver(t.Context(), waiting), Done, Done, Done, Done)
		work()
		if err := p.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
	}

	// A restart between two deliveries: connections that look open are dead. One
	// attempt may find out, and no more.
	cluster.Restart()
	waiting := batch(1)
	failed := 0
	for Judge(p.Deliver(t.Context(), waiting)[0]).Kind == Overload && failed <= connections {
		failed++
	}
	if failed > connections {
		t.Errorf("%d attempts after a restart failed, want at most one a connection", failed)
	}

	db := connect(t, cluster.URL())
	db.wantText(fmt.Sprintf("%d %[1]d", next), `SELECT concat_ws(' ', count(*), max(seq)) FROM flowgate_messages`)
}

// postgresAdministrator has a delivery cut off that is on its way.
func postgresAdministrator(t *testing.T, url string) {
	p := openPostgres(t, url, 1, nil)
	deliver(t, p, aDelivery(1000), Done)
	db := connect(t, url)
	for n, test := range []struct{ function, code string }{{"pg_terminate_backend", "57P01"}, {"pg_cancel_backend", "57014"}} {
		db.do(`BEGIN`, `LOCK TABLE flowgate_messages`)
		answer := make(chan error, 1)
		go func() { answer <- p.Deliver(t.Context(), []Delivery{aDelivery(n)})[0] }()
		waits := `FROM pg_stat_activity WHERE application_name = 'flowgate' AND datname = current_database() AND wait_event_type = 'Lock'`
		for db.text(`SELECT count(*) `+waits) == "0" {
			time.Sleep(5 * time.Millisecond) // until the server has it; the clock of a process apart
		}
		db.wantText("true", `SELECT bool_and(`+test.function+`(pid)) `+waits)
		err := <-answer
		wantError(t, err, test.code)
		want := Overload
		if test.code == "57014" { // cancelled: what is about this one statement
			want = Retry
		}
		wantKinds(t, []error{err}, want)
		db.do(`ROLLBACK`)
		deliver(t, p, aDelivery(n), Done)
	}
}

// TestPostgresDoesNotAnswer meets a server that takes connections and is silent.
func TestPostgresDoesNotAnswer(t *testing.T) {
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
		}
	}()
	target := "postgres://u:s3cr3t@" + l.Addr().String() + "/db?sslmode=disable"
	p := openPostgres(t, target+"&connect_timeout=1", 1, nil)
	wantError(t, deliver(t, p, aDelivery(1), Overload), "connect")

	p = openPostgres(t, target, 1, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantKinds(t, p.Deliver(ctx, deliveries(2)), Overload, Overload)
	if ctx.Err() == nil {
		t.Error("an answer before the timeout")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// postgresLostAnswers cuts connections when the server has the COMMIT and
// before its answer is through: what is written is not known, and is told as such;
// repeating it stores it once.
func postgresLostAnswers(t *testing.T, direct string) {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	cut := &proxy{target: u.Host}
	cut.word.Store("")
	go cut.serve(l)
	u.Host = l.Addr().String()
	p := openPostgres(t, u.String()+"?sslmode=disable", 1, nil)
	deliver(t, p, aDelivery(1000), Done)
	db := connect(t, direct)
	const rounds = 12
	for n := range rounds {
		batch := []Delivery{aDelivery(3 * n), aDelivery(3*n + 1), aDelivery(3*n + 2)}[:1+n%3]
		// Connected, and the statements are prepared; then a batch is sent at once.
		wantKinds(t, p.Deliver(t.Context(), []Delivery{aDelivery(1000), aDelivery(1001)}), Done, Done)
		cut.word.Store(batch[0].ID)
		for i, err := range p.Deliver(t.Context(), batch) {
			if Judge(err).Kind != Overload {
				t.Fatalf("round %d, message %d: %v; want overload, since the connection broke", n, i, err)
			}
		}
		cut.word.Store("")
		written := `SELECT count(*) FROM flowgate_messages WHERE id = $1`
		for deadline := time.Now().Add(10 * time.Second); db.text(written, batch[0].ID) != "1"; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: nothing was written; the test tests nothing", n)
			}
		}
		for _, err := range p.Deliver(t.Context(), batch) {
			if err != nil {
				t.Fatalf("round %d: the repeat: %v", n, err)
			}
		}
	}
	db.wantText("26", `SELECT count(*) FROM flowgate_messages`) // 1000, 1001, and 4·1 + 4·2 + 4·3
}

// postgresReset resets the connection in the middle of a transaction, at its first row
// and at its last: nothing of it stands, no message is to blame, and the next attempt
// writes all.
func postgresReset(t *testing.T, direct string) {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	cut := &proxy{target: u.Host, short: true}
	cut.word.Store("")
	go cut.serve(l)
	u.Host = l.Addr().String()
	p := openPostgres(t, u.String()+"?sslmode=disable", 1, nil)
	db := connect(t, direct)
	batch := deliveries(10)
	for i := range batch {
		batch[i].ID = fmt.Sprintf("acme/row-%02d-", i)
	}
	for _, place := range []int{0, 5, 9} {
		wantKinds(t, p.Deliver(t.Context(), []Delivery{aDelivery(1000), aDelivery(1001)}), Done, Done)
		cut.word.Store(batch[place].ID)
		for i, err := range p.Deliver(t.Context(), batch) {
			if Judge(err).Kind != Overload {
				t.Fatalf("reset at %d: message %d: %v; want overload", place, i, err)
			}
		}
		cut.word.Store("")
		db.wantText("2", `SELECT count(*) FROM flowgate_messages`)
	}
	for i, err := range p.Deliver(t.Context(), batch) {
		if err != nil {
			t.Errorf("message %d after the resets: %v", i, err)
		}
	}
	db.wantText("12", `SELECT count(*) FROM flowgate_messages`)
}

// proxy passes bytes on, until a client's hold the word: from then on the server's
// do not come through, and the connection is closed; if it is short, what the client
// sends behind the word does not come through either.
type proxy struct {
	target string
	word   atomic.Value // string; empty: none
	short  bool
	trips  atomic.Int64 // how often the server said that it is ready for more
}

func (p *proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		var mute atomic.Bool
		copying := func(to, from net.Conn, look func([]byte) int) {
			defer func() { _ = to.Close() }()
			buf := make([]byte, 32<<10)
			for {
				n, err := from.Read(buf)
				n = look(buf[:n])
				if err != nil || (mute.Load() && to == client) {
					return
				}
				if _, err := to.Write(buf[:n]); err != nil || (mute.Load() && p.short) {
					return
				}
			}
		}
		go copying(server, client, func(b []byte) int {
			word := p.word.Load().(string)
			at := bytes.Index(b, []byte(word))
			if word == "" || at < 0 {
				return len(b)
			}
			mute.Store(true)
			if p.short {
				return at + len(word)
			}
			return len(b)
		})
		go copying(client, server, func(b []byte) int {
			p.trips.Add(int64(bytes.Count(b, []byte{'Z', 0, 0, 0, 5})))
			return len(b)
		})
	}
}
