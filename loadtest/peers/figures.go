package main

import (
	"math"
	"slices"
	"strings"
	"time"
)

// most is the largest number of instants in any window of that length, its beginning
// included and its end not. They are sorted.
func most(at []time.Duration, window time.Duration) int {
	n, first := 0, 0
	for i := range at {
		for at[i]-at[first] >= window {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// fewest is the smallest number of instants in any window of that length from one instant
// to another, its beginning included and its end not. They are sorted.
func fewest(at []time.Duration, window, from, to time.Duration) int {
	if to-from < window {
		return 0
	}
	n := len(within(at, from, from+window))
	for _, begin := range within(at, from, to-window) {
		// The emptiest begin just after one: at whole nanoseconds that is the next.
		n = min(n, len(within(at, begin+1, begin+1+window)))
	}
	return n
}

// within are the sorted instants from one on and before another.
func within(at []time.Duration, from, to time.Duration) []time.Duration {
	a, _ := slices.BinarySearch(at, from)
	b, _ := slices.BinarySearch(at, to)
	return at[a:b]
}

// gaps are the times between instants that follow each other.
func gaps(at []time.Duration) (g []time.Duration) {
	for i := 1; i < len(at); i++ {
		g = append(g, at[i]-at[i-1])
	}
	return g
}

// spread is the standard deviation.
func spread(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	var sum, squares float64
	for _, v := range d {
		sum += float64(v)
	}
	mean := sum / float64(len(d))
	for _, v := range d {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	return time.Duration(math.Sqrt(squares / float64(len(d))))
}

// quantile is the smallest value that so great a share of them does not exceed.
func quantile(d []time.Duration, share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[max(0, int(math.Ceil(share*float64(len(d))))-1)]
}

// jain is Jain's index of fairness: 1 if all are alike, 1/n if one has everything.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(x)) * squares)
}

// shares divides what there is among demands by max-min fairness: nobody gets more than
// it asked for, and who gets less than that gets as much as anybody.
func shares(total float64, demands []float64) []float64 {
	got := make([]float64, len(demands))
	open := make([]int, len(demands))
	for i := range open {
		open[i] = i
	}
	slices.SortFunc(open, func(a, b int) int {
		switch {
		case demands[a] < demands[b]:
			return -1
		case demands[a] > demands[b]:
			return 1
		}
		return 0
	})
	for n, i := range open {
		got[i] = min(demands[i], total/float64(len(open)-n))
		total -= got[i]
	}
	return got
}

// result is a phase of a contestant in figures.
type result struct {
	Peer  string `json:"peer"`
	Phase string `json:"phase"`

	Offered    int `json:"offered"`
	Accepted   int `json:"accepted"`
	Refused    int `json:"refused"`
	Unanswered int `json:"unanswered"` // within answerIn
	Delivered  int `json:"delivered"`  // of the accepted ones
	Missing    int `json:"missing"`    // accepted, not delivered
	Repeats    int `json:"repeats"`
	// Settled tells whether what is missing is lost; else time was over.
	Settled bool `json:"settled"`

	Held      float64 `json:"held"`         // mean share of the rate while work waited
	Worst     float64 `json:"worst_window"` // most calls in any second, as a share of the rate
	Least     float64 `json:"least_window"` // fewest in any second while work waited
	GapP50    float64 `json:"gap_p50_ms"`
	GapP99    float64 `json:"gap_p99_ms"`
	GapStd    float64 `json:"gap_std_ms"`
	Goodput   float64 `json:"goodput"` // finished by the database a second
	Crashes   int     `json:"crashes"`
	AnswerP99 float64 `json:"answer_p99_ms"`
	P50       float64 `json:"latency_p50_ms"` // from when it was due to when the database had it
	P99       float64 `json:"latency_p99_ms"`

	Jain        float64 `json:"jain"`
	QuietShare  float64 `json:"quiet_accepted"` // of what the quiet tenants sent
	NoisyShare  float64 `json:"noisy_accepted"`
	QuietP50    float64 `json:"quiet_p50_ms"`
	QuietP99    float64 `json:"quiet_p99_ms"`
	QuietServed float64 `json:"quiet_served"` // delivered a second against sent

	Through float64 `json:"through"` // messages a second with no rate
	MiB     float64 `json:"mib"`     // most resident, the generator's included

	Told   []told `json:"told,omitempty"`
	Series series `json:"series,omitzero"`
}

// series are counts by spans of time, for the charts.
type series struct {
	Each     float64 `json:"each_seconds"`
	Arrived  []int   `json:"arrived"`
	Called   []int   `json:"called"`
	Finished []int   `json:"finished"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// result makes figures of what happened. Everything is counted from Warm to the end of
// the arrivals, except what is lost.
func (r *record) result(p phase, settled bool, crashes int) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.departures)
	slices.Sort(r.finished)
	span := (p.Length - p.Warm).Seconds()
	calls := within(r.departures, p.Warm, p.Length)
	between := gaps(calls)
	out := result{
		Phase: p.Name, Offered: len(r.messages), Settled: settled, Crashes: crashes, Repeats: r.repeats,
		Held:   float64(len(calls)) / span / perSecond,
		Worst:  float64(most(r.departures, time.Second)) / perSecond,
		Least:  float64(fewest(r.departures, time.Second, p.Warm, p.Length)) / perSecond,
		GapP50: milliseconds(quantile(between, 0.5)), GapP99: milliseconds(quantile(between, 0.99)), GapStd: milliseconds(spread(between)),
		Goodput: float64(len(within(r.finished, p.Warm, p.Length))) / span,
	}
	var answers, latencies []time.Duration
	for _, m := range r.messages {
		switch {
		case m.accepted:
			out.Accepted++
		case m.timedOut:
			out.Unanswered++
		case m.answered > 0:
			out.Refused++
		}
		if m.answered > 0 { // one that never came took at least as long as was waited for it
			answers = append(answers, m.answered-m.due)
		}
		if m.accepted && m.finished > 0 {
			out.Delivered++
			if m.due >= p.Warm {
				latencies = append(latencies, m.finished-m.due)
			}
		}
	}
	out.Missing = out.Accepted - out.Delivered
	out.AnswerP99 = milliseconds(quantile(answers, 0.99))
	out.P50, out.P99 = milliseconds(quantile(latencies, 0.5)), milliseconds(quantile(latencies, 0.99))
	for _, t := range r.refusals {
		out.Told = append(out.Told, *t)
	}
	slices.SortFunc(out.Told, func(a, b told) int { return b.Times - a.Times })
	if p.Name == noise {
		r.fairness(p, &out)
	}
	if p.Name == overload {
		out.Series = r.series(p)
	}
	return out
}

// fairness compares what tenants got with what max-min fairness would have given them of
// as much.
func (r *record) fairness(p phase, out *result) {
	var names []string
	sent, accepted, got := map[string]float64{}, map[string]float64{}, map[string]float64{}
	var waits []time.Duration
	total := 0.0
	for _, m := range r.messages {
		if m.due >= p.Warm {
			if sent[m.tenant] == 0 {
				names = append(names, m.tenant)
			}
			sent[m.tenant]++
			if m.accepted {
				accepted[m.tenant]++
			}
			if m.finished > 0 && strings.HasPrefix(m.tenant, quiet) {
				waits = append(waits, m.finished-m.due)
			}
		}
		if m.finished >= p.Warm && m.finished < p.Length {
			got[m.tenant]++
			total++
		}
	}
	slices.Sort(names)
	demands := make([]float64, len(names))
	for i, t := range names {
		demands[i] = sent[t]
	}
	ideal := shares(total, demands)
	x := make([]float64, len(names))
	var quietSent, quietAccepted, quietGot float64
	for i, t := range names {
		if ideal[i] > 0 {
			x[i] = got[t] / ideal[i]
		}
		if strings.HasPrefix(t, quiet) {
			quietSent, quietAccepted, quietGot = quietSent+sent[t], quietAccepted+accepted[t], quietGot+got[t]
		}
	}
	out.Jain = jain(x)
	out.QuietP50, out.QuietP99 = milliseconds(quantile(waits, 0.5)), milliseconds(quantile(waits, 0.99))
	if quietSent > 0 {
		out.QuietShare, out.QuietServed = quietAccepted/quietSent, quietGot/quietSent
	}
	if sent[noisy] > 0 {
		out.NoisyShare = accepted[noisy] / sent[noisy]
	}
}

func (r *record) series(p phase) series {
	const each = 200 * time.Millisecond
	n := int(p.Length / each)
	s := series{Each: each.Seconds(), Arrived: make([]int, n), Called: make([]int, n), Finished: make([]int, n)}
	count := func(into []int, at time.Duration) {
		if i := int(at / each); i < n {
			into[i]++
		}
	}
	for _, m := range r.messages {
		count(s.Arrived, m.due)
	}
	for _, at := range r.departures {
		count(s.Called, at)
	}
	for _, at := range r.finished {
		count(s.Finished, at)
	}
	return s
}
