package app

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// collector computes at each scrape what is a state and not an event. A look at
// the stream that failed leaves the last values and lets the sample's time age.
type collector struct {
	g *gateway

	build, depth, bytes, oldest, marks, sampled, drain *prometheus.Desc
	level, transitions, rate, leader, connected        *prometheus.Desc
	signal, slots, hint, overPart                      *prometheus.Desc
	deadLetters, reconnects, tenants, keys, overflowed *prometheus.Desc
	limitsStale, limitsBroken, weightsBroken, paused   *prometheus.Desc
	rateReason, maxBytes, concurrency, target          *prometheus.Desc
}

func newCollector(g *gateway) *collector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("flowgate_"+name, help, labels, nil)
	}
	return &collector{
		g:           g,
		build:       d("build_info", "The running version; always 1.", "version", "goversion"),
		depth:       d("backlog_messages", "Messages in the backlog by state; their sum is the depth.", "state"),
		bytes:       d("backlog_bytes", "Size of the backlog stream."),
		maxBytes:    d("backlog_max_bytes", "The stream's hard cap in bytes."),
		oldest:      d("backlog_oldest_age_seconds", "Age of the oldest message in the backlog; 0 if it is empty."),
		marks:       d("backlog_watermark_messages", "The watermarks: refused from high, admitted again at low, never above max.", "band"),
		sampled:     d("backlog_sample_timestamp_seconds", "When the counts were last compared with the stream, Unix time."),
		drain:       d("backlog_drain_seconds", "How long the backlog takes at the present rate; +Inf if it does not drain."),
		level:       d("backpressure_level", "1 for the present level, 0 for the others.", "level"),
		transitions: d("backpressure_transitions_total", "Changes of the level, by the signal that caused them.", "to", "signal"),
		signal:      d("backpressure_signal", "1 while a signal puts the backlog under pressure.", "signal"),
		slots:       d("backpressure_slots", "Refused messages to which a time was promised that has not passed."),
		hint:        d("backpressure_hint_seconds", "What a message that comes for the first time would be told to wait; 0 if it would be admitted."),
		overPart:    d("backpressure_tenants_over_part", "Tenants that hold more than their part of the high watermark."),
		rate:        d("shaper_rate", "Deliveries a second: configured, and effective now; +Inf if unlimited.", "kind"),
		rateReason:  d("shaper_rate_reason", "1 for why the effective rate is what it is, 0 for the others.", "reason"),
		concurrency: d("consumer_concurrency", "Messages that the consumer works on at most: deliveries at once, by the messages of a batch."),
		target:      d("shaper_target_latency_seconds", "Latency of an attempt above which an adaptive rate goes down."),
		leader:      d("replica_leader", "1 while this process holds the lease of its name."),
		connected:   d("nats_connected", "1 while every connection to NATS is up."),
		deadLetters: d("dlq_messages", "Messages in the dead-letter stream."),
		reconnects:  d("nats_reconnects_total", "Reconnects to NATS."),
		tenants:     d("backlog_tenant_messages", "Messages in the backlog by tenant.", "tenant"),
		keys:        d("limiter_keys", "Keys that a scope's limits remember.", "scope"),
		overflowed:  d("limiter_overflow_total", "Requests decided by a shared overflow bucket: there was no room for their key.", "scope"),

		limitsStale:  d("limits_stale", "1 while the live limits in force may not be those of the bucket."),
		limitsBroken: d("limits_broken", "Entries of the bucket of live limits that are not used, for they cannot be read."),

		weightsBroken: d("shaper_weights_broken", "Live weights that are not used, for they cannot be read."),
		paused:        d("shaper_paused", "1 while deliveries are paused by an operator."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	g := c.g
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := g.backlog.Snapshot(g.clock.now())
	audit := g.shaper.Audit()

	gauge(c.build, 1, g.version, goVersion())
	gauge(c.depth, float64(s.Waiting), "waiting")
	gauge(c.depth, float64(s.InFlight), "in_flight")
	gauge(c.depth, float64(s.Delayed), "delayed")
	gauge(c.bytes, float64(audit.Bytes))
	gauge(c.maxBytes, float64(g.cfg.Backpressure.MaxBytes))
	gauge(c.oldest, g.oldestAge().Seconds())
	gauge(c.marks, float64(s.Marks.Low), "low")
	gauge(c.marks, float64(s.Marks.High), "high")
	gauge(c.marks, float64(s.Marks.Max), "max")
	if !audit.At.IsZero() {
		gauge(c.sampled, float64(audit.At.UnixMilli())/1000)
	}
	if s.DrainTime < 0 {
		gauge(c.drain, math.Inf(1))
	} else {
		gauge(c.drain, s.DrainTime.Seconds())
	}
	gauge(c.level, one(!s.Pressured), "normal")
	gauge(c.level, one(s.Pressured), "pressured")
	for _, signal := range s.Signals {
		counter(c.transitions, float64(signal.ToNormal), "normal", signal.Signal.String())
		counter(c.transitions, float64(signal.ToPressured), "pressured", signal.Signal.String())
		gauge(c.signal, one(signal.Raised), signal.Signal.String())
	}
	gauge(c.slots, float64(s.Slots))
	gauge(c.hint, s.Hint.Seconds())
	gauge(c.overPart, float64(s.TenantsOverPart))
	rate := g.shaper.Rate()
	gauge(c.rate, rate.Configured, "configured")
	gauge(c.rate, rate.Effective, "effective")
	for _, reason := range algorithms.RateReasons {
		gauge(c.rateReason, one(rate.Reason == reason), reason.String())
	}
	gauge(c.concurrency, float64(g.cfg.Consumer.Concurrency*g.cfg.Consumer.Batch))
	gauge(c.target, g.cfg.Shaper.TargetLatency.Seconds())
	gauge(c.leader, one(g.lease.Valid()))
	gauge(c.deadLetters, float64(g.deadLetters.Load()))
	connected, reconnects := true, uint64(0)
	for _, nc := range g.conns {
		connected = connected && nc.IsConnected()
		reconnects += nc.Stats().Reconnects
	}
	for _, n := range g.limits.Counts() {
		gauge(c.keys, float64(n.Keys), string(n.Scope))
		counter(c.overflowed, float64(n.Overflowed), string(n.Scope))
	}
	gauge(c.limitsStale, one(g.liveLimits.Stale() != nil))
	gauge(c.limitsBroken, float64(len(g.liveLimits.Broken())))
	gauge(c.weightsBroken, float64(len(g.liveLimits.BrokenWeights())))
	gauge(c.paused, one(g.paused() != nil))
	tenants := map[string]int{}
	for tenant, n := range g.shaper.Tenants() {
		tenants[g.labels.of(tenant)] += n
	}
	for label, n := range tenants {
		gauge(c.tenants, float64(n), label)
	}
	gauge(c.connected, one(connected))
	counter(c.reconnects, float64(reconnects))
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
