package shaper

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/flowgate/flowgate/internal/algorithms"
)

type metrics struct {
	departures prometheus.Counter
	lateness   prometheus.Histogram
	late       algorithms.Spans
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		departures: f.NewCounter(prometheus.CounterOpts{
			Name: "flowgate_shaper_released_total",
			Help: "Deliveries started, retries included.",
		}),
		lateness: f.NewHistogram(prometheus.HistogramOpts{
			Name:                            "flowgate_shaper_lateness_seconds",
			Help:                            "How long after its earliest moment a delivery started, while messages waited.",
			Buckets:                         []float64{1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.25, 1},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}),
	}
}

func (m *metrics) released(n int, lateness int64) {
	m.departures.Add(float64(n))
	m.late.Add(time.Duration(max(0, lateness)), 1)
	m.lateness.Observe(float64(max(0, lateness)) / 1e9)
}

// rateMetrics count what the adaptive rate does; its present value is a state.
type rateMetrics struct{ lowered *prometheus.CounterVec }

func newRateMetrics(reg prometheus.Registerer) *rateMetrics {
	lowered := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "flowgate_shaper_rate_reductions_total",
		Help: "How often the adaptive rate was lowered, by the reason.",
	}, []string{"reason"})
	for _, r := range algorithms.RateReasons {
		if r != algorithms.RateConfigured && r != algorithms.RateSlowStart {
			lowered.WithLabelValues(r.String()) // 0 is a count too
		}
	}
	return &rateMetrics{lowered}
}
