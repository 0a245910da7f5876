package app

import (
	"math"
	"time"

	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/shaper"
)

// Status is the gateway at one instant, as GET /api/v1/status shows it.
type Status struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Mode    string `json:"mode"`
	Level   string `json:"level"` // normal or pressured
	Paused  bool   `json:"paused"`
	// Pause says who paused, why and until when; absent if it is not paused.
	Pause      *shaper.Pause `json:"pause,omitempty"`
	Depth      DepthStatus   `json:"depth"`
	Watermarks Watermarks    `json:"watermarks"`
	// OldestAge is the age of the oldest message in the backlog, in seconds; 0 if
	// it is empty.
	OldestAge float64    `json:"oldest_age_seconds"`
	Rate      RateStatus `json:"rate"`
	// PressuredSince is when the level became what it is, null if it is normal, and
	// Signals are those that hold it there.
	PressuredSince *time.Time `json:"pressured_since"`
	Signals        []string   `json:"signals"`
	// HintSeconds is what a message that comes for the first time would be told to wait, 0
	// if it would be admitted; Slots is to how many a place was promised.
	HintSeconds float64 `json:"hint_seconds"`
	Slots       int     `json:"slots"`
	// Cap is how many messages may be in flight; TargetLatency what an adaptive rate aims
	// at, null if it stands.
	Cap           uint64   `json:"cap"`
	TargetLatency *float64 `json:"target_latency_seconds"`
	// DrainSeconds is how long the backlog takes at the present rate, null if it
	// does not drain; TimeToHigh how long until HIGH at the present growth, null
	// if it does not grow.
	DrainSeconds *float64      `json:"drain_seconds"`
	TimeToHigh   *float64      `json:"time_to_high_seconds"`
	Breaker      string        `json:"breaker"` // closed, open or half_open
	DeadLetters  uint64        `json:"dead_letters"`
	Replica      ReplicaStatus `json:"replica"`
	// SampledAt is when the counts were last compared with the stream.
	SampledAt time.Time `json:"sampled_at"`
	// Stale: that is too long ago.
	Stale bool `json:"stale"`
}

// DepthStatus is the backlog by state, in messages.
type DepthStatus struct {
	Waiting  uint64 `json:"waiting"`
	InFlight uint64 `json:"in_flight"`
	Delayed  uint64 `json:"delayed"`
	Total    uint64 `json:"total"`
}

// Watermarks are in messages.
type Watermarks struct {
	Low  uint64 `json:"low"`
	High uint64 `json:"high"`
	Max  uint64 `json:"max"`
}

// RateStatus is in messages a second, averaged over the last seconds.
type RateStatus struct {
	// Configured and Effective are null if the rate is unlimited.
	Configured *float64 `json:"configured"`
	Effective  *float64 `json:"effective"`
	// Reason is why the effective rate is what it is: configured, slow_start,
	// unused, latency, overload, timeout, retry_after or outage.
	Reason    string  `json:"reason"`
	Delivered float64 `json:"delivered"`
	Admitted  float64 `json:"admitted"`
	Refused   float64 `json:"refused"`
}

// ReplicaStatus says which process answers.
type ReplicaStatus struct {
	ID     string `json:"id"`
	Leader bool   `json:"leader"`
	// Active is who holds the lease while this one stands by; it knows nothing else
	// then.
	Active string `json:"active,omitempty"`
	// Lost: NATS does not answer it. It was active and its lease ran out, so that it admits
	// and delivers nothing until it has it again; or it stands by, and Active is who had the
	// lease last.
	Lost bool `json:"lost,omitempty"`
}

// status reads everything at once.
func (g *gateway) status() Status {
	now := g.clock.now()
	s := g.backlog.Snapshot(now)
	hint, _ := g.hint(now, s)
	audit := g.shaper.Audit()
	pause := g.paused()
	st := Status{
		Name: g.cfg.Name, Version: g.version, Mode: g.cfg.Mode.String(),
		Level: levelName(s.Pressured), Paused: pause != nil, Pause: pause,
		Depth: DepthStatus{Waiting: s.Waiting, InFlight: s.InFlight, Delayed: s.Delayed, Total: s.Depth()},
		Watermarks: Watermarks{
			Low: s.Marks.Low, High: s.Marks.High, Max: s.Marks.Max,
		},
		OldestAge:   g.oldestAge().Seconds(),
		Rate:        RateStatus{Delivered: s.Drained, Admitted: s.Admitted, Refused: g.door.RefusedRate()},
		Breaker:     g.breakerState(),
		DeadLetters: g.deadLetters.Load(),
		Replica:     g.replica(),
		SampledAt:   audit.At.UTC(),
		Stale:       time.Since(audit.At) > staleAfter,
		Signals:     s.Raised.Names(),
		HintSeconds: hint.Seconds(), Slots: s.Slots,
		Cap: g.cap(),
	}
	if s.Since != 0 {
		since := time.Unix(0, s.Since).UTC()
		st.PressuredSince = &since
	}
	if g.cfg.Shaper.Adaptive {
		st.TargetLatency = seconds(g.cfg.Shaper.TargetLatency)
	}
	rate := g.shaper.Rate()
	st.Rate.Configured, st.Rate.Effective = finite(rate.Configured), finite(rate.Effective)
	st.Rate.Reason = rate.Reason.String()
	st.DrainSeconds = seconds(s.DrainTime)
	st.TimeToHigh = seconds(s.TimeToHigh)
	return st
}

// replica is that of a gateway that is active.
func (g *gateway) replica() ReplicaStatus {
	valid := g.lease.Valid()
	return ReplicaStatus{ID: g.id, Leader: valid, Lost: !valid}
}

// hint is what a message that comes for the first time would be told, 0: it would be
// admitted; and whether the backlog has no room for anybody's.
func (g *gateway) hint(now int64, s backpressure.Snapshot) (wait time.Duration, full bool) {
	wait, full = g.backlog.Full(now)
	if !full && g.cfg.Mode == ingress.Enforce {
		wait = s.Hint
	}
	return wait, full
}

// cap is how many messages may be in flight.
func (g *gateway) cap() uint64 {
	return uint64(g.cfg.Consumer.Concurrency) * uint64(max(1, g.cfg.Consumer.Batch))
}

// finite is null in JSON for what has no bound.
func finite(v float64) *float64 {
	if math.IsInf(v, 1) {
		return nil
	}
	return &v
}

// seconds turns a duration into JSON; negative is null.
func seconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func levelName(pressured bool) string {
	if pressured {
		return "pressured"
	}
	return "normal"
}

// oldestAge is 0 for an empty backlog, and never negative: the broker's clock
// may be ahead of ours.
func (g *gateway) oldestAge() time.Duration {
	at, ok := g.shaper.Oldest()
	if !ok {
		return 0
	}
	return max(0, time.Since(at))
}
