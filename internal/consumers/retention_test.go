package consumers

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/units"
)

// aged runs a destination's retention until only the young rows are there.
func aged(t *testing.T, run func(context.Context) error, reg *prometheus.Registry, count func() int, young, old int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	for end := time.Now().Add(60 * time.Second); count() != young; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d rows are there, want %d", count(), young)
		}
	}
	for end := time.Now().Add(10 * time.Second); sample(t, reg, "flowgate_consumer_rows_expired_total") != float64(old); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end of Run: %v", err)
	}
	wantSamples(t, reg, map[string]float64{"flowgate_consumer_rows_expired_total": float64(old)})
	if n := count(); n != young {
		t.Errorf("%d rows are left, want %d", n, young)
	}
}

func postgresRetention(t *testing.T, u string) {
	reg := prometheus.NewRegistry()
	cfg := Config{URL: u, Concurrency: 1, Timeout: 10 * time.Second, Retention: units.Span(time.Hour)}
	p, err := OpenPostgres(cfg, reg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if n, err := p.prune(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("before there is a table: %d, %v", n, err)
	}
	wantKinds(t, p.Deliver(t.Context(), deliveries(5)), Done, Done, Done, Done, Done)
	db := connect(t, u)
	db.do(`INSERT INTO flowgate_messages SELECT 'old/' || n, 'acme', 't', n, 1, '', '{}', now(), now(), now() - interval '61 minutes' FROM generate_series(1, 5000) n`)
	aged(t, p.Run, reg, func() (n int) {
		_ = db.QueryRow(t.Context(), `SELECT count(*) FROM flowgate_messages`).Scan(&n)
		return n
	}, 5, 5000)
	db.wantText("1", `SELECT count(*) FROM pg_indexes WHERE indexname = 'flowgate_messages_written_at'`)
	// A repeat of what is gone is a new message: the price, and told in the README.
	deliver(t, p, Delivery{ID: "old/1", AdmittedAt: time.Now(), ReleasedAt: time.Now()}, Done)
	db.wantText("6", `SELECT count(*) FROM flowgate_messages`)
}

// postgresRetentionRights deletes as a user who may make no index, and then as one who
// may not delete either: deliveries go on.
func postgresRetentionRights(t *testing.T, u string) {
	db := connect(t, u)
	deliver(t, openPostgres(t, u, 1, nil), aDelivery(1), Done)
	role := "cleaner_" + db.text(`current_database()`)
	db.do(`CREATE ROLE `+role+` LOGIN PASSWORD 'w'`, `GRANT SELECT, INSERT, DELETE ON flowgate_messages TO `+role,
		`INSERT INTO flowgate_messages SELECT 'old/' || n, 'acme', 't', n, 1, '', '{}', now(), now(), now() - interval '61 minutes' FROM generate_series(1, 300) n`)
	reg, log := prometheus.NewRegistry(), &bubble.Log{}
	cfg := Config{URL: strings.Replace(u, "postgres:throw-away@", role+":w@", 1), Concurrency: 1, Timeout: 10 * time.Second, Retention: units.Span(time.Hour)}
	p, err := OpenPostgres(cfg, reg, log.Logger(slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	aged(t, p.Run, reg, func() (n int) {
		_ = db.QueryRow(t.Context(), `SELECT count(*) FROM flowgate_messages`).Scan(&n)
		return n
	}, 1, 300)
	if !strings.Contains(log.String(), "CREATE INDEX CONCURRENTLY flowgate_messages_written_at") {
		t.Errorf("nothing tells of the index:\n%s", log)
	}
	db.do(`REVOKE DELETE ON flowgate_messages FROM ` + role)
	if _, err := p.prune(t.Context(), 10); state(err) != "42501" {
		t.Errorf("without the right to delete: %v", err)
	}
	deliver(t, p, aDelivery(2), Done)
}

// TestSQLiteRetention deletes while deliveries go on.
func TestSQLiteRetention(t *testing.T) {
	path := filepath.Join(t.TempDir(), "messages.db")
	reg := prometheus.NewRegistry()
	s, err := OpenSQLite(t.Context(), path, Config{Retention: units.Span(time.Hour)}, reg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	db := reader(t, path)
	execSQLite(t, db, `PRAGMA busy_timeout = 5000`, fmt.Sprintf(`WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000)
		INSERT INTO flowgate_messages SELECT 'old/' || n, 'acme', 't', n, 1, zeroblob(2000), '{}', 0, 0, %d FROM n`, time.Now().Add(-61*time.Minute).UnixMicro()))
	delivered := make(chan error, 1)
	go func() {
		for n := 1; n <= 50; n++ {
			if err := s.Deliver(t.Context(), []Delivery{aDelivery(n)})[0]; err != nil {
				delivered <- err
				return
			}
		}
		delivered <- nil
	}()
	if err := <-delivered; err != nil {
		t.Fatal(err)
	}
	aged(t, s.Run, reg, func() int { return scan[int](t, db, `SELECT count(*) FROM flowgate_messages`) }, 50, 3000)
}

// TestRetentionOff does nothing, and ends no gateway.
func TestRetentionOff(t *testing.T) {
	s := openSQLite(t, filepath.Join(t.TempDir(), "messages.db"), nil)
	if err := s.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestChunkFitsItsTime(t *testing.T) {
	limit := chunkFirst
	for range 20 {
		limit = nextChunk(limit, time.Millisecond)
	}
	if limit != chunkMost {
		t.Errorf("fast: %d, want %d", limit, chunkMost)
	}
	for range 20 {
		limit = nextChunk(limit, time.Second)
	}
	if limit != 1 {
		t.Errorf("slow: %d, want 1", limit)
	}
	if got := nextChunk(100, 10*time.Millisecond); got != 100 {
		t.Errorf("in time: %d, want 100", got)
	}
}
