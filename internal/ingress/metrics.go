package ingress

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// metrics counts decisions. Counters of admitted messages are kept by tenant
// label, so that the path of a message looks up one map of bounded size.
type metrics struct {
	label    func(string) string
	known    func(string) string
	messages *prometheus.CounterVec
	decision prometheus.Histogram
	sampled  atomic.Uint32

	muted, unconfirmed, unstored prometheus.Counter
	held                         *prometheus.CounterVec

	mu       sync.Mutex
	admitted map[admittedKey]prometheus.Counter
	refused  *algorithms.Meter
	reasons  map[Reason]uint64
}

type admittedKey struct{ tenant, transport string }

// The transports.
const (
	overNATS = "nats"
	noReply  = "nats_no_reply"
	overHTTP = "http"
)

func (in incoming) transport() string {
	switch {
	case in.web:
		return overHTTP
	case in.msg.Reply == "":
		return noReply
	}
	return overNATS
}

// sampleEvery is how many decisions there are to one that is timed: reading the
// clock and the histogram would cost as much as the decision.
const sampleEvery = 16

func newMetrics(reg prometheus.Registerer, label, known func(string) string) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		label: label, known: known,
		held: f.NewCounterVec(prometheus.CounterOpts{
			Name: "flowgate_ingress_held_total",
			Help: "Messages whose answer was held back (FLOWGATE_INGRESS_HOLD), by what became of them.",
		}, []string{"result"}),
		messages: f.NewCounterVec(prometheus.CounterOpts{
			Name: "flowgate_ingress_messages_total",
			Help: "Messages decided at the front door. transport nats_no_reply: published without a reply subject, so nobody was told. enforced false: refused in shadow, admitted all the same.",
		}, []string{"tenant", "transport", "result", "reason", "scope", "enforced"}),
		decision: f.NewHistogram(prometheus.HistogramOpts{
			Name:                            "flowgate_ingress_decision_seconds",
			Help:                            "Time to decide on a message and forward or refuse it; one in 16 is timed.",
			Buckets:                         []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 1e-3, 1e-2, 1e-1},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}),
		muted: f.NewCounter(prometheus.CounterOpts{
			Name: "flowgate_ingress_muted_total",
			Help: "Messages dropped unanswered: their reply subject would have borrowed the gateway's rights.",
		}),
		unconfirmed: f.NewCounter(prometheus.CounterOpts{
			Name: "flowgate_ingress_unconfirmed_total",
			Help: "Forwarded messages that the broker did not confirm in time, answered as overloaded.",
		}),
		unstored: f.NewCounter(prometheus.CounterOpts{
			Name: "flowgate_ingress_unstored_total",
			Help: "Forwarded messages that the stream did not store: duplicates, or refused by the broker's own limits.",
		}),
		admitted: map[admittedKey]prometheus.Counter{},
		refused:  algorithms.NewMeter(5*time.Second, 10),
		reasons:  map[Reason]uint64{},
	}
	for _, result := range []string{"admitted", "refused"} {
		m.held.WithLabelValues(result)
	}
	return m
}

func (m *metrics) queued(reg prometheus.Registerer, read, held func() float64) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flowgate_ingress_queue_messages",
		Help: "Messages received and not yet decided.",
	}, read)
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flowgate_ingress_held_messages",
		Help: "Messages whose answer is held back, since they will pass within FLOWGATE_INGRESS_HOLD.",
	}, held)
}

func (m *metrics) admit(tenant, transport string) {
	key := admittedKey{m.label(tenant), transport}
	m.mu.Lock()
	c := m.admitted[key]
	if c == nil {
		c = m.messages.WithLabelValues(key.tenant, transport, "admitted", "", "", "true")
		m.admitted[key] = c
	}
	m.mu.Unlock()
	c.Inc()
}

// refuse counts a refusal at the instant now. An unknown tenant gets no label of
// its own for it: anyone can make up names.
func (m *metrics) refuse(tenant, transport string, r *Refusal, now int64) {
	if tenant != "" {
		tenant = m.known(tenant)
	}
	m.messages.WithLabelValues(tenant, transport, "refused", string(r.Reason), r.Scope, "true").Inc()
	m.mu.Lock()
	m.refused.Add(now, 1)
	m.reasons[r.Reason]++
	m.mu.Unlock()
}

// spare counts what would have been refused if the mode were enforce.
func (m *metrics) spare(tenant, transport string, r *Refusal) {
	m.messages.WithLabelValues(m.label(tenant), transport, "refused", string(r.Reason), r.Scope, "false").Inc()
}

func (m *metrics) refusals() map[Reason]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.reasons)
}

func (m *metrics) refusedRate(now int64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused.PerSecond(now)
}

// timed reports whether this decision is one of those that are timed.
func (m *metrics) timed() bool { return m.sampled.Add(1)%sampleEvery == 0 }

func (m *metrics) decided(ns int64) { m.decision.Observe(float64(ns) / 1e9) }
