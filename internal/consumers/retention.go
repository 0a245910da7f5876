package consumers

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

// Rows are deleted in chunks, each a transaction of its own. A chunk is as large as
// is deleted in about chunkTook, and after it come pauses of chunkPause times that:
// whoever waits for the database waits for one chunk, and a fifth of its time at most
// goes into deleting.
const (
	chunkFirst = 64
	chunkMost  = 1000
	chunkTook  = 20 * time.Millisecond
	chunkPause = 4
	pauseLeast = 10 * time.Millisecond
)

// Between passes, with nothing left to delete, retentionPart passes go into a
// retention; but none comes sooner than after passLeast nor later than after passMost.
const (
	retentionPart = 20
	passLeast     = time.Second
	passMost      = time.Minute
)

// retention deletes rows that were written longer ago than its age.
type retention struct {
	age time.Duration // 0: rows are kept for ever
	// chunk deletes up to limit of them and tells how many it was.
	chunk    func(ctx context.Context, limit int) (int, error)
	deleted  prometheus.Counter
	log      *slog.Logger
	complain rate.Sometimes
}

func newRetention(age time.Duration, chunk func(ctx context.Context, limit int) (int, error), reg prometheus.Registerer, log *slog.Logger) *retention {
	return &retention{
		age: age, chunk: chunk, log: log,
		deleted: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "flowgate_consumer_rows_expired_total",
			Help: "Rows deleted from the table since they were older than FLOWGATE_CONSUMER_RETENTION.",
		}),
		complain: rate.Sometimes{First: 1, Interval: 10 * time.Minute},
	}
}

// checkRetention checks FLOWGATE_CONSUMER_RETENTION.
func checkRetention(c Config) error {
	switch _, ok := sqlDialect(c.URL); {
	case c.Retention == 0:
		return nil
	case c.Retention < 0:
		return errors.New("is negative; off keeps rows for ever")
	case !ok:
		return errors.New("is for the table of the destinations sqlite and postgres; FLOWGATE_CONSUMER_URL names another")
	case c.SQL != "":
		return errors.New("deletes from our table, and FLOWGATE_CONSUMER_SQL writes to another; see to the age of its rows in the database")
	}
	return nil
}

// run deletes until ctx ends. A failure is tried again at the next pass: rows that
// stay longer are no reason to stop deliveries.
func (r *retention) run(ctx context.Context) error {
	if r.age == 0 {
		return nil
	}
	limit := chunkFirst
	for ctx.Err() == nil {
		began := time.Now()
		n, err := r.chunk(ctx, limit)
		took := time.Since(began)
		r.deleted.Add(float64(n))
		pause := min(max(r.age/retentionPart, passLeast), passMost)
		switch {
		case err != nil && ctx.Err() == nil:
			r.complain.Do(func() {
				r.log.Warn("rows older than FLOWGATE_CONSUMER_RETENTION are not deleted; tried again", "error", err)
			})
		case n > 0:
			pause = max(pauseLeast, chunkPause*took)
			limit = nextChunk(limit, took)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// nextChunk fits the chunk to the time that the last one took.
func nextChunk(limit int, took time.Duration) int {
	switch {
	case took > chunkTook:
		return max(1, limit/2)
	case took < chunkTook/4:
		return min(chunkMost, limit*2)
	}
	return limit
}
