package consumers

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

// conflicts notes messages whose id was written before with another payload: the
// producer used an id twice. The first stays.
type conflicts struct {
	count    prometheus.Counter
	log      *slog.Logger
	complain rate.Sometimes
}

func newConflicts(reg prometheus.Registerer, log *slog.Logger) *conflicts {
	return &conflicts{
		count: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "flowgate_consumer_conflicts_total",
			Help: "Messages whose id stood in the table with another payload; the first was kept.",
		}),
		log:      log,
		complain: rate.Sometimes{First: 10, Interval: 10 * time.Second},
	}
}

func (c *conflicts) note(d Delivery) {
	c.count.Inc()
	c.complain.Do(func() {
		about(c.log, d).Warn("an id was used for two payloads; the first is kept", "id", d.ID, "seq", d.Seq)
	})
}
