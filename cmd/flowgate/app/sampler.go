package app

import (
	"context"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/history"
	"github.com/flowgate/flowgate/internal/ingress"
)

const (
	sampleEvery = time.Second
	// keptSamples are 15 minutes.
	keptSamples = 15 * 60
	// namedTenants are those of a sample who were refused most.
	namedTenants = 5
)

// sampler notes each second what the gateway is like. It reads counters that are kept for
// it: their cost does not grow with tenants, and the metrics' registry is not gathered.
type sampler struct {
	g      *gateway
	before counters
}

// counters only grow.
type counters struct {
	at       time.Time
	backlog  backpressure.Totals
	refused  map[ingress.Reason]uint64
	desk     consumers.Totals
	lateness algorithms.SpanCounts
}

func (g *gateway) newSampler() *sampler { return &sampler{g: g} }

// Run samples until ctx ends; then viewers are sent away.
func (s *sampler) Run(ctx context.Context) error {
	defer s.g.events.end()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	s.before, _ = s.read(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		status := s.g.status()
		sample := s.sample(status)
		s.g.history.Add(sample)
		s.g.events.publish(status, sample)
	}
}

// read gives the counters, and the transitions after the first so many.
func (s *sampler) read(after uint64) (counters, []backpressure.Transition) {
	totals, transitions := s.g.backlog.Totals(after)
	return counters{
		at: time.Now(), backlog: totals, refused: s.g.door.Refused(), desk: s.g.desk.Totals(), lateness: s.g.shaper.Lateness(),
	}, transitions
}

// sample is what happened since the last one, and what the status is.
func (s *sampler) sample(st Status) history.Sample {
	now, transitions := s.read(s.before.backlog.Transitions)
	before := s.before
	s.before = now
	took := now.at.Sub(before.at).Seconds()
	perSecond := func(now, before uint64) float64 { return float64(now-before) / took }
	audit := s.g.shaper.Audit()
	sample := history.Sample{
		At: now.at.UnixMilli(), Level: st.Level, Paused: st.Paused, Breaker: st.Breaker,
		Waiting: st.Depth.Waiting, InFlight: st.Depth.InFlight, Delayed: st.Depth.Delayed, Depth: st.Depth.Total, Bytes: audit.Bytes,
		Low: st.Watermarks.Low, High: st.Watermarks.High, Max: st.Watermarks.Max,
		OldestAge: st.OldestAge, TimeToHigh: st.TimeToHigh, Drain: st.DrainSeconds,
		Admitted:       perSecond(now.backlog.Admitted, before.backlog.Admitted),
		Delivered:      perSecond(now.desk.Done, before.desk.Done),
		Retried:        perSecond(now.desk.Retried, before.desk.Retried),
		DeadLettered:   perSecond(now.desk.DeadLettered, before.desk.DeadLettered),
		RateConfigured: st.Rate.Configured, RateEffective: st.Rate.Effective, RateReason: st.Rate.Reason,
		LatenessP99:   quantile(now.lateness.Since(before.lateness), 0.99),
		Cap:           st.Cap,
		TargetLatency: st.TargetLatency,
	}
	for reason, n := range now.refused {
		if n == before.refused[reason] {
			continue
		}
		if sample.RefusedBy == nil {
			sample.RefusedBy = map[string]float64{}
		}
		rate := perSecond(n, before.refused[reason])
		sample.RefusedBy[string(reason)] = rate
		sample.Refused += rate
	}
	sample.RefusedMost = s.g.traffic.MostRefused(namedTenants)
	for i := range sample.RefusedMost {
		sample.RefusedMost[i].Refused /= took
	}
	if latency := now.desk.Latency.Since(before.desk.Latency); latency.Total() > 0 {
		sample.Latency = &history.Latency{Counts: latency[:]}
		sample.LatencyP50, sample.LatencyP95, sample.LatencyP99 = quantile(latency, 0.5), quantile(latency, 0.95), quantile(latency, 0.99)
	}
	for _, t := range transitions {
		sample.Transitions = append(sample.Transitions, shownTransition(t))
	}
	return sample
}

// quantile is null of nothing.
func quantile(c algorithms.SpanCounts, q float64) *float64 {
	d, ok := c.Quantile(q)
	if !ok {
		return nil
	}
	return seconds(d)
}

func shownTransition(t backpressure.Transition) history.Transition {
	shown := history.Transition{
		At: time.Unix(0, t.At).UnixMilli(), To: levelName(t.Raised), Signal: t.Signal.String(),
		Value: float64(t.Value), Bound: float64(t.Bound),
	}
	if t.Signal == backpressure.Age || t.Signal == backpressure.Outage {
		shown.Value, shown.Bound = time.Duration(t.Value).Seconds(), time.Duration(t.Bound).Seconds()
	}
	return shown
}
