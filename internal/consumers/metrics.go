package consumers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type deskMetrics struct {
	label      func(string) string
	deliveries *prometheus.CounterVec
	took       *prometheus.HistogramVec
	queued     prometheus.Histogram
	inFlight   prometheus.Gauge
	errors     *prometheus.CounterVec
	dead       *prometheus.CounterVec
	unburied   prometheus.Counter
	totals     deskTotals
}

func newDeskMetrics(reg prometheus.Registerer, label func(string) string, breaker func() BreakerState) *deskMetrics {
	f := promauto.With(reg)
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}
	}
	for _, s := range []BreakerState{BreakerClosed, BreakerOpen, BreakerHalfOpen} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "flowgate_consumer_breaker_state",
			Help:        "1 for the breaker's present state, 0 for the others.",
			ConstLabels: prometheus.Labels{"state": s.String()},
		}, func() float64 {
			if breaker() == s {
				return 1
			}
			return 0
		})
	}
	return &deskMetrics{
		label: label,
		deliveries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "flowgate_consumer_deliveries_total",
			Help: "Attempts by what became of the message.",
		}, []string{"tenant", "outcome"}),
		took: f.NewHistogramVec(histogram("flowgate_consumer_delivery_seconds",
			"Duration of one attempt, by the destination's verdict.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}), []string{"outcome"}),
		queued: f.NewHistogram(histogram("flowgate_consumer_queue_seconds",
			"Time from a message's admission to the start of the delivery that ended it.",
			[]float64{.005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200})),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "flowgate_consumer_in_flight",
			Help: "Messages that the destination is working on.",
		}),
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "flowgate_consumer_errors_total",
			Help: "Failed attempts: retry (the message failed), overload (the destination as a whole), reject (never).",
		}, []string{"class"}),
		dead: f.NewCounterVec(prometheus.CounterOpts{
			Name: "flowgate_dead_letters_total",
			Help: "Messages that went to the dead-letter stream.",
		}, []string{"tenant"}),
		unburied: f.NewCounter(prometheus.CounterOpts{
			Name: "flowgate_dead_letters_unwritten_total",
			Help: "Attempts to write a dead letter that failed; the message stays in the backlog.",
		}),
	}
}

// ended counts the end of an attempt.
func (m *deskMetrics) ended(d Delivery, outcome string) {
	m.deliveries.WithLabelValues(m.label(d.Tenant), outcome).Inc()
	m.totals.ended(outcome)
	if outcome != "retried" {
		m.queued.Observe(max(0, d.ReleasedAt.Sub(d.AdmittedAt).Seconds()))
	}
}

func (m *deskMetrics) buried(d Delivery) { m.dead.WithLabelValues(m.label(d.Tenant)).Inc() }
