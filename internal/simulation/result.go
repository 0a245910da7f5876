package simulation

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Result is what a simulation came to. Durations are in seconds.
type Result struct {
	// Length is that of the arrivals, Until when the simulation ended.
	Length float64 `json:"length_seconds"`
	Until  float64 `json:"until_seconds"`
	// Offered counts messages, Tries all that came to the door.
	Offered   uint64 `json:"offered"`
	Tries     uint64 `json:"tries"`
	Admitted  uint64 `json:"admitted"`
	Delivered uint64 `json:"delivered"`
	// Lost are messages that their producers gave up.
	Lost uint64 `json:"lost"`
	// Refused counts refused tries by reason, RefusedMessages the messages that were
	// refused once at least. Shadow is what would have been refused.
	Refused         map[string]uint64 `json:"refused"`
	RefusedMessages uint64            `json:"refused_messages"`
	Shadow          map[string]uint64 `json:"shadow,omitempty"`
	// Deliveries counts messages in deliveries started; Retried those that come again, and
	// DeadLettered those that do not.
	Deliveries   uint64 `json:"deliveries"`
	Retried      uint64 `json:"retried"`
	DeadLettered uint64 `json:"dead_lettered"`

	Depth Depth `json:"depth"`
	// OverHigh is for how long the depth was HIGH or more, Pressured for how long the
	// level was.
	OverHigh  float64 `json:"over_high_seconds"`
	Pressured float64 `json:"pressured_seconds"`
	// Lag is from a message's admission to the end of its delivery; Latency from its first
	// try on.
	Lag     Spread `json:"lag_seconds"`
	Latency Spread `json:"latency_seconds"`
	// Drain is from the end of the arrivals until all was delivered; null if it was not.
	Drain *float64 `json:"drain_seconds"`
	// Fastest is the most that was delivered in a sample, a second.
	Fastest float64 `json:"delivered_per_second_max"`

	Tenants []TenantResult `json:"tenants"` // the most refused first, then the largest
	Samples []Sample       `json:"samples"`
}

// Depth is how full the backlog was.
type Depth struct {
	Peak   uint64  `json:"peak"`
	PeakAt float64 `json:"peak_at_seconds"`
	Mean   float64 `json:"mean"` // while messages arrived
	End    uint64  `json:"end"`  // when they ended
	High   uint64  `json:"high"`
}

// Spread is how times differ.
type Spread struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// TenantResult is one tenant's part.
type TenantResult struct {
	Tenant  string `json:"tenant"`
	Offered uint64 `json:"offered"`
	// Busiest is the most messages a second that it offered over ten seconds.
	Busiest         float64           `json:"busiest_per_second"`
	Admitted        uint64            `json:"admitted"`
	Delivered       uint64            `json:"delivered"`
	Lost            uint64            `json:"lost"`
	Refused         map[string]uint64 `json:"refused"`
	RefusedMessages uint64            `json:"refused_messages"`
	Lag             Spread            `json:"lag_seconds"`

	lags []int64
}

// Sample is what happened since the one before.
type Sample struct {
	At        float64 `json:"at_seconds"`
	Depth     uint64  `json:"depth"`
	DepthMax  uint64  `json:"depth_max"`
	Offered   uint64  `json:"offered"`
	Admitted  uint64  `json:"admitted"`
	Refused   uint64  `json:"refused"`
	Delivered uint64  `json:"delivered"`
}

// busiestOver is over what time a tenant's rate is measured.
const busiestOver = 10 * time.Second

// tenant is what is counted of one.
type tenant struct {
	TenantResult
	behaviour Behaviour
	line      queue[int32] // messages that a limit refused, and those behind them
	latencies []int64
	window    int64 // of busiestOver that it is in
	inWindow  uint64
	first     int64
}

// count is what is counted.
type count struct {
	every   time.Duration
	tenants map[string]*tenant

	offered, tries, entered, ended, lost uint64
	deliveries, retried, dead, bytes     uint64
	refusedTries, refusedMessages        uint64
	reasons, shadow                      map[string]uint64

	depth, peak, endDepth uint64
	peakAt                int64
	area                  float64 // of the depth over time, up to the end of the arrivals
	overHigh, pressure    int64
	drained               int64 // when the backlog became empty last

	now, end int64 // end: of the arrivals
	seconds  int
	since    Sample // the counts at the last sample
	deepest  uint64
	samples  []Sample
}

func newCount(every time.Duration, end int64) count {
	return count{every: every, end: end, tenants: map[string]*tenant{}, reasons: map[string]uint64{}, shadow: map[string]uint64{}, now: epoch}
}

func (c *count) arrived(name string, p Producers) *tenant {
	t := c.tenants[name]
	if t == nil {
		t = &tenant{TenantResult: TenantResult{Tenant: name, Refused: map[string]uint64{}}, behaviour: p.Of(name)}
		c.tenants[name] = t
	}
	c.offered++
	t.Offered++
	if w := (c.now - epoch) / int64(busiestOver); w != t.window {
		t.window, t.inWindow = w, 0
	}
	t.inWindow++
	t.Busiest = max(t.Busiest, float64(t.inWindow)/busiestOver.Seconds())
	return t
}

func (c *count) admitted(m *message, now int64) {
	c.entered++
	m.tenant.Admitted++
	c.bytes += m.size
	if c.depth++; c.depth > c.peak {
		c.peak, c.peakAt = c.depth, now
	}
	c.deepest = max(c.deepest, c.depth)
}

func (c *count) refused(m *message, reason string) {
	c.refusedTries++
	c.reasons[reason]++
	m.tenant.Refused[reason]++
	if m.tries == 1 {
		c.refusedMessages++
		m.tenant.RefusedMessages++
	}
}

func (c *count) gaveUp(m *message) {
	c.lost++
	m.tenant.Lost++
}

func (c *count) done(m *message, now int64, dead bool) {
	c.bytes -= m.size
	if c.depth--; c.depth == 0 {
		c.drained = now
	}
	if dead {
		c.dead++
		return
	}
	c.ended++
	m.tenant.Delivered++
	m.tenant.lags = append(m.tenant.lags, now-m.stored)
	m.tenant.latencies = append(m.tenant.latencies, now-epoch-int64(m.arrival.At))
}

// pass counts the time from one event to the next.
func (c *count) pass(from, to int64, high, pressured bool) {
	d := to - from
	c.now = to
	if from < c.end {
		c.area += float64(c.depth) * float64(min(to, c.end)-from)
		c.endDepth = c.depth
	}
	if high {
		c.overHigh += d
	}
	if pressured {
		c.pressure += d
	}
}

// sample is called each second.
func (c *count) sample(at int64) {
	c.seconds++
	if time.Duration(c.seconds)*time.Second%c.every != 0 {
		return
	}
	is := Sample{At: float64(at) / 1e9, Depth: c.depth, DepthMax: max(c.deepest, c.depth), Offered: c.offered, Admitted: c.entered, Refused: c.refusedTries, Delivered: c.ended}
	was := c.since
	c.since, c.deepest = is, c.depth
	is.Offered -= was.Offered
	is.Admitted -= was.Admitted
	is.Refused -= was.Refused
	is.Delivered -= was.Delivered
	c.samples = append(c.samples, is)
}

func (s *simulation) result() *Result {
	c := &s.count
	r := &Result{
		Length: s.sc.Length.Seconds(), Until: time.Duration(s.now - epoch).Seconds(),
		Offered: c.offered, Tries: c.tries, Admitted: c.entered, Delivered: c.ended, Lost: c.lost,
		Refused: c.reasons, RefusedMessages: c.refusedMessages, Shadow: c.shadow,
		Deliveries: c.deliveries, Retried: c.retried, DeadLettered: c.dead,
		Depth:    Depth{Peak: c.peak, PeakAt: time.Duration(max(0, c.peakAt-epoch)).Seconds(), End: c.endDepth, High: s.high},
		OverHigh: time.Duration(c.overHigh).Seconds(), Pressured: time.Duration(c.pressure).Seconds(),
		Samples: c.samples,
	}
	if s.sc.Length > 0 {
		r.Depth.Mean = c.area / float64(s.sc.Length)
	}
	for _, x := range c.samples {
		r.Fastest = max(r.Fastest, float64(x.Delivered)/s.sc.Every.Seconds())
	}
	if s.idle() {
		d := time.Duration(max(0, c.drained-s.end)).Seconds()
		r.Drain = &d
	}
	var lags, latencies []int64
	for _, t := range c.tenants {
		lags, latencies = append(lags, t.lags...), append(latencies, t.latencies...)
		t.Lag = spread(t.lags)
		if s.sc.Length < busiestOver {
			t.Busiest *= busiestOver.Seconds() / s.sc.Length.Seconds()
		}
		r.Tenants = append(r.Tenants, t.TenantResult)
	}
	r.Lag, r.Latency = spread(lags), spread(latencies)
	slices.SortFunc(r.Tenants, func(a, b TenantResult) int {
		return cmp.Or(cmp.Compare(b.refusedTries(), a.refusedTries()), cmp.Compare(b.Offered, a.Offered), cmp.Compare(a.Tenant, b.Tenant))
	})
	return r
}

func (t TenantResult) refusedTries() (n uint64) {
	for v := range maps.Values(t.Refused) {
		n += v
	}
	return n
}

// spread sorts times of nanoseconds.
func spread(ns []int64) Spread {
	if len(ns) == 0 {
		return Spread{}
	}
	slices.Sort(ns)
	at := func(q float64) float64 {
		return float64(ns[max(0, int(math.Ceil(q*float64(len(ns))))-1)]) / 1e9
	}
	return Spread{at(0.50), at(0.95), at(0.99), at(1)}
}
