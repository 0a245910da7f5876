package history

// Sample is the gateway over one second. Rates are a second; null is unknown or unbounded.
type Sample struct {
	At      int64  `json:"at"` // the end of the second, Unix milliseconds
	Level   string `json:"level"`
	Paused  bool   `json:"paused"`
	Breaker string `json:"breaker"`

	// The backlog, in messages; Bytes is its stream's size.
	Waiting  uint64 `json:"waiting"`
	InFlight uint64 `json:"in_flight"`
	Delayed  uint64 `json:"delayed"`
	Depth    uint64 `json:"depth"`
	Bytes    uint64 `json:"bytes"`
	Low      uint64 `json:"low"`
	High     uint64 `json:"high"`
	Max      uint64 `json:"max"`

	OldestAge  float64  `json:"oldest_age_seconds"`
	TimeToHigh *float64 `json:"time_to_high_seconds"`
	Drain      *float64 `json:"drain_seconds"`

	// What happened during the second.
	Admitted  float64            `json:"admitted"`
	Refused   float64            `json:"refused"`
	RefusedBy map[string]float64 `json:"refused_by,omitempty"` // by reason
	// RefusedMost are the tenants who were refused most, a few.
	RefusedMost  []RefusedTenant `json:"refused_most,omitempty"`
	Delivered    float64         `json:"delivered"`
	Retried      float64         `json:"retried"`
	DeadLettered float64         `json:"dead_lettered"`

	RateConfigured *float64 `json:"rate_configured"`
	RateEffective  *float64 `json:"rate_effective"`
	RateReason     string   `json:"rate_reason"`
	// LatenessP99 is how late deliveries started.
	LatenessP99 *float64 `json:"lateness_p99_seconds"`
	// Cap is how many messages may be in flight.
	Cap uint64 `json:"cap"`

	// Latency is how long the consumer took, a message each.
	Latency       *Latency `json:"latency,omitempty"`
	LatencyP50    *float64 `json:"latency_p50"`
	LatencyP95    *float64 `json:"latency_p95"`
	LatencyP99    *float64 `json:"latency_p99"`
	TargetLatency *float64 `json:"target_latency"`

	Transitions []Transition `json:"transitions,omitempty"`
}

// RefusedTenant is how much of what a tenant sent was refused, and why at last.
type RefusedTenant struct {
	Tenant  string  `json:"tenant"`
	Refused float64 `json:"refused"`
	Reason  string  `json:"reason"`
}

// Latency counts by step; the last is for what is longer than all bounds.
type Latency struct {
	Counts []uint64 `json:"counts"`
}

// Transition is a change of a signal: its reading and the mark that it reached, in
// messages, bytes or seconds.
type Transition struct {
	At     int64   `json:"at"` // Unix milliseconds
	To     string  `json:"to"` // pressured or normal
	Signal string  `json:"signal"`
	Value  float64 `json:"value"`
	Bound  float64 `json:"bound"`
}
