package app

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/cmd/flowgate/app/broker"
	"github.com/flowgate/flowgate/internal/consumers"
)

// standBy is the gateway before it is active: it waits for the lease of its name,
// answers at the admin address and nowhere else, and touches nothing.
//
//	starting ─▶ standing by ─▶ active
//	    └───────────────────────▲
type standBy struct {
	g *gateway
	// holder is who is waited for, nil while nobody is known.
	holder atomic.Pointer[broker.LeaseHolder]
	// cut: the lease cannot be followed, so that nobody knows whether its holder works.
	cut     atomic.Bool
	metrics standByMetrics
}

func newStandBy(g *gateway) *standBy {
	s := &standBy{g: g, metrics: standByMetrics{newCollector(g)}}
	g.registry.MustRegister(s.metrics)
	return s
}

// standByMetrics are those of the collector that can be told without a backlog.
type standByMetrics struct{ *collector }

// Describe implements prometheus.Collector.
func (m standByMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.build
	ch <- m.leader
}

// Collect implements prometheus.Collector.
func (m standByMetrics) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(m.build, prometheus.GaugeValue, 1, m.g.version, goVersion())
	ch <- prometheus.MustNewConstMetric(m.leader, prometheus.GaugeValue, 0)
}

// waits hears for whom this process stands by, and of what keeps it from following.
func (s *standBy) waits(h broker.LeaseHolder, err error) {
	s.cut.Store(err != nil)
	if err != nil {
		s.g.log.Warn("standing by, and the lease cannot be followed", "active", h.String(), "error", err)
		return
	}
	s.holder.Store(&h)
	s.g.log.Info("standing by", "active", h.String())
}

// over ends it: the lease is ours.
func (s *standBy) over() {
	if h := s.holder.Swap(nil); h != nil {
		s.g.log.Info("took over", "from", h.String())
	}
	s.g.registry.Unregister(s.metrics)
}

// handler answers at the admin address meanwhile.
func (s *standBy) handler() http.Handler {
	mux := http.NewServeMux()
	pageRoutes(mux)
	mux.Handle("GET /metrics", s.g.metricsHandler())
	mux.HandleFunc("GET /livez", s.g.health(func() []check { return nil }))
	mux.HandleFunc("GET /readyz", s.g.health(func() []check { return []check{{"lease", s.notActive}} }))
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, Status{
			Name: s.g.cfg.Name, Version: s.g.version, Mode: s.g.cfg.Mode.String(),
			Level: levelName(false), Signals: []string{}, Breaker: consumers.BreakerClosed.String(),
			Replica: ReplicaStatus{ID: s.g.id, Active: s.active(), Lost: s.cut.Load()},
		})
	})
	active := s.g.adminHandler()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, route := active.Handler(r); route == "" {
			active.ServeHTTP(w, r) // nor would it be there later
			return
		}
		w.Header().Set("Retry-After", "1")
		writeProblem(w, http.StatusServiceUnavailable, s.notActive().Error())
	})
	return mux
}

// active is who is waited for, empty if nobody is known.
func (s *standBy) active() string {
	if h := s.holder.Load(); h != nil {
		return h.String()
	}
	return ""
}

func (s *standBy) notActive() error {
	if active := s.active(); active != "" {
		if s.cut.Load() {
			return fmt.Errorf("standing by, and NATS does not answer: active was %s", active)
		}
		return fmt.Errorf("standing by: active is %s", active)
	}
	return errors.New("starting")
}
