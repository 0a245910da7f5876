package consumers

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowgate/flowgate/internal/consumers/pgtest"
)

// BenchmarkBatch writes batches of 100, clean and with one bad row each.
func BenchmarkBatch(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		s, err := OpenSQLite(b.Context(), filepath.Join(b.TempDir(), "messages.db"), Config{}, nil, quiet())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if _, err := s.db.ExecContext(b.Context(), `CREATE TRIGGER bad BEFORE INSERT ON flowgate_messages WHEN NEW.topic = 'bad' BEGIN SELECT RAISE(ABORT, 'bad'); END`); err != nil {
			b.Fatal(err)
		}
		benchmarkBatch(b, s)
	})
	b.Run("postgres", func(b *testing.B) {
		url := pgtest.Start(b).URL()
		p, err := OpenPostgres(Config{URL: url, Concurrency: 1, Timeout: 10 * time.Second}, nil, quiet())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		if err := p.Deliver(b.Context(), []Delivery{aDelivery(0)})[0]; err != nil {
			b.Fatal(err)
		}
		db, err := pgx.Connect(b.Context(), url)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = db.Close(b.Context()) }()
		if _, err := db.Exec(b.Context(), `ALTER TABLE flowgate_messages ADD CHECK (topic <> 'bad')`); err != nil {
			b.Fatal(err)
		}
		benchmarkBatch(b, p)
	})
}

func benchmarkBatch(b *testing.B, d Destination) {
	next := 0
	for _, bad := range []int{0, 1} {
		b.Run(fmt.Sprintf("bad=%d", bad), func(b *testing.B) {
			for b.Loop() {
				batch := make([]Delivery, 100)
				for i := range batch {
					next++
					batch[i] = aDelivery(next)
					batch[i].Payload = make([]byte, 256)
				}
				if bad > 0 {
					batch[next/100%100].Topic = "bad"
				}
				for i, err := range d.Deliver(b.Context(), batch) {
					if (err != nil) != (batch[i].Topic == "bad") {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
