package report

import (
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// Figures are those of one trial. Series have a value a step; times are in seconds since the
// beginning.
type Figures struct {
	Scenario string  `json:"scenario"`
	Shows    string  `json:"shows"`
	Seed     uint64  `json:"seed"`
	Load     float64 `json:"load_seconds"`
	Took     float64 `json:"took_seconds"`
	Step     float64 `json:"step_seconds"`
	Cores    int     `json:"cores"`
	Go       string  `json:"go"`

	Gateway    map[string]string `json:"gateway"`
	Rate       string            `json:"rate"`
	Watermarks Watermarks        `json:"watermarks"`
	Database   Database          `json:"database"`

	Checks  []Check `json:"checks"`
	With    Side    `json:"with_flowgate"`
	Without Side    `json:"without_flowgate"`

	// Refusals are NAKs a second, by reason.
	Refusals map[string][]float64 `json:"refusals"`
	// Answer is from the scheduled instant of a try to its answer; Admission from that of the
	// message to its acknowledgement.
	Answer    Latency `json:"answer"`
	Admission Latency `json:"admission"`
	// Rates are the effective ones of the gateway, deliveries a second.
	Rates []float64 `json:"rates"`
	// Gaps are when no gateway or no broker was there.
	Gaps []Span `json:"gaps"`
	// Process is what the gateway's held over time, if it was looked at.
	Process []Held `json:"process"`
	Leaks   bool   `json:"leaks_checked"`
}

// Watermarks are in messages.
type Watermarks struct {
	Low  uint64 `json:"low"`
	High uint64 `json:"high"`
	Max  uint64 `json:"max"`
}

// Database is what it bears.
type Database struct {
	Capacity float64 `json:"capacity_per_second"`
	Latency  float64 `json:"latency_ms"`
	Knee     int     `json:"knee"`
	CrashAt  int     `json:"crash_at"`
}

// Check is one promise.
type Check struct {
	Promise string   `json:"promise"`
	Found   string   `json:"found"`
	Broken  []string `json:"broken"`
}

// Side is a run with or without flowgate.
type Side struct {
	Messages    int     `json:"messages"`
	Delivered   int     `json:"delivered"`
	Failed      int     `json:"failed_calls"`
	DeadLetters int     `json:"dead_letters"`
	Refused     int     `json:"given_up"` // messages that were refused, and not sent again with success
	Crashes     uint64  `json:"crashes"`
	Down        float64 `json:"down_seconds"`
	Fairness    float64 `json:"fairness"`
	// Tenants are some of them: those with the worst part, and the rest in order of what they
	// offered.
	Tenants []invariants.Share `json:"tenants"`
	// Delivery is from the scheduled instant of a message until the database had it; what
	// it has not counts as having waited to the end. Only what was refused for good or is a
	// dead letter does not count.
	Delivery Latency `json:"delivery"`

	Arrivals   []float64 `json:"arrivals"`   // a second
	Departures []float64 `json:"departures"` // done, a second
	Depth      []float64 `json:"depth"`      // waiting, the most in a step
	InFlight   []float64 `json:"in_flight"`  // the most in a step
	Latencies  []float64 `json:"latency_ms"` // of what was done, the mean of a step; 0: nothing was
	DownSpans  []Span    `json:"down"`
}

// Span is a stretch of time.
type Span struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Held is what the gateway's process held at an instant.
type Held struct {
	At         float64 `json:"at"`
	MiB        float64 `json:"rss_mib"`
	Goroutines int     `json:"goroutines"`
	Files      int     `json:"files"`
	Keys       int     `json:"keys"`
}

// steps are about how many a series has.
const steps = 240

// Make reads the figures of a trial.
func Make(r *trial.Result) *Figures {
	s := r.Scenario
	f := &Figures{
		Scenario: s.Name, Shows: s.Shows, Seed: s.Arrivals.Seed, Load: time.Duration(s.For).Seconds(), Took: r.Took.Seconds(), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Gateway: s.Gateway, Rate: r.Config.Shaper.Rate.String(),
		Database: Database{s.Database.Capacity(), float64(s.Database.Latency) / float64(time.Millisecond), s.Database.Knee, s.Database.CrashAt},
		Refusals: map[string][]float64{}, Leaks: s.Leaks,
	}
	b := r.Config.Backpressure
	f.Watermarks = Watermarks{b.Low.Of(b.High), b.High, b.Max.Of(b.High)}
	f.Step = max(0.2, math.Ceil(f.Took/steps*10)/10)
	for _, c := range r.Checks {
		f.Checks = append(f.Checks, Check{c.Promise, c.Found, c.Broken})
	}
	f.With, f.Without = f.side(r.With), f.side(r.Without)
	f.told(r.With.Record)
	f.watched(r.With)
	return f
}

// bins are as many zeros as there are steps.
func (f *Figures) bins() []float64 { return make([]float64, int(f.Took/f.Step)+1) }

// bin is the step of an instant.
func (f *Figures) bin(at float64) int { return max(0, min(int(at/f.Step), int(f.Took/f.Step))) }

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

func (f *Figures) side(s *trial.Side) Side {
	r := s.Record
	out := Side{Messages: len(r.Messages), Failed: s.Failed, DeadLetters: len(r.DeadLetters), Arrivals: f.bins(), Departures: f.bins(), Depth: f.bins(), InFlight: f.bins(), Latencies: f.bins()}
	done := map[string]int64{}
	calls := f.bins()
	for _, d := range r.Deliveries {
		b := f.bin(seconds(d.Ended))
		if !d.Done {
			out.Failed++
			continue
		}
		calls[b]++
		out.Latencies[b] += float64(d.Ended-d.Started) / 1e6
		if at, ok := done[d.ID]; !ok || d.Ended < at {
			done[d.ID] = d.Ended
		}
	}
	for b, n := range calls {
		out.Latencies[b] /= max(1, n)
	}
	out.Delivered = len(done)
	acked := map[string]bool{}
	for _, t := range r.Tries {
		if t.Told == invariants.Acked {
			acked[r.Messages[t.Message].ID] = true
		}
	}
	waits := newLatencies()
	for _, m := range r.Messages {
		out.Arrivals[f.bin(seconds(m.Due))] += 1 / f.Step
		at, ok := done[m.ID]
		switch {
		case ok:
			out.Departures[f.bin(seconds(at))] += 1 / f.Step
			waits.add(at - m.Due)
		case r.DeadLetters[m.ID]:
		case len(r.Tries) > 0 && !acked[m.ID]:
			out.Refused++
		default:
			waits.add(int64(f.Took*1e9) - m.Due)
		}
	}
	out.Delivery = waits.read()
	if len(r.Tries) > 0 {
		f.fill(out.Depth, r.Depths())
	} else {
		f.fill(out.Depth, waiting(r, done))
	}
	shares := r.Shares(0, int64(f.Load*1e9))
	out.Fairness = invariants.Jain(shares)
	out.Tenants = someTenants(shares)
	f.health(&out, s.Health)
	return out
}

// waiting is how many messages were due and not done.
func waiting(r *invariants.Record, done map[string]int64) []invariants.Level {
	var levels []invariants.Level
	for _, m := range r.Messages {
		levels = append(levels, invariants.Level{At: m.Due, Depth: 1})
		if at, ok := done[m.ID]; ok {
			levels = append(levels, invariants.Level{At: at, Depth: -1})
		}
	}
	slices.SortFunc(levels, func(a, b invariants.Level) int { return int(a.At - b.At) })
	depth := 0
	for i := range levels {
		depth += levels[i].Depth
		levels[i].Depth = depth
	}
	return levels
}

// fill sets each step to the highest level in it.
func (f *Figures) fill(bins []float64, levels []invariants.Level) {
	i, now := 0, 0.0
	for b := range bins {
		most := now
		for ; i < len(levels) && f.bin(seconds(levels[i].At)) <= b; i++ {
			now = float64(levels[i].Depth)
			most = max(most, now)
		}
		bins[b] = most
	}
}

func (f *Figures) health(out *Side, samples []trial.Sample) {
	for i, s := range samples {
		at, b := s.At.Seconds(), f.bin(s.At.Seconds())
		out.InFlight[b] = max(out.InFlight[b], float64(s.Peak))
		out.Crashes = s.Database.Counts.Crashes
		if s.Database.State != fragile.Down {
			continue
		}
		to := f.Took
		if i+1 < len(samples) {
			to = min(to, samples[i+1].At.Seconds())
		}
		if n := len(out.DownSpans); n > 0 && out.DownSpans[n-1].To >= at {
			out.DownSpans[n-1].To = to
		} else {
			out.DownSpans = append(out.DownSpans, Span{at, to})
		}
		out.Down += to - at
	}
}

// told reads what producers were told.
func (f *Figures) told(r *invariants.Record) {
	answers, admissions := newLatencies(), newLatencies()
	admitted := map[int]bool{}
	for _, t := range r.Tries {
		switch t.Told {
		case invariants.NotAsked, invariants.NoAnswer, invariants.Nobody:
			continue
		case invariants.Acked:
			if !admitted[t.Message] {
				admitted[t.Message] = true
				admissions.add(t.Answered - r.Messages[t.Message].Due)
			}
		default:
			if f.Refusals[t.Told] == nil {
				f.Refusals[t.Told] = f.bins()
			}
			f.Refusals[t.Told][f.bin(seconds(t.Answered))] += 1 / f.Step
		}
		answers.add(t.Answered - t.Due)
	}
	f.Answer, f.Admission = answers.read(), admissions.read()
	for _, g := range r.Gaps {
		to := seconds(g.To)
		if to < 0 || to > f.Took {
			to = f.Took
		}
		f.Gaps = append(f.Gaps, Span{seconds(g.From), to})
	}
}

func (f *Figures) watched(s *trial.Side) {
	f.Rates = f.bins()
	for _, h := range s.Health {
		f.Rates[f.bin(h.At.Seconds())] = h.Rate
		if h.RSS > 0 {
			f.Process = append(f.Process, Held{h.At.Seconds(), h.RSS / (1 << 20), h.Goroutines, h.Files, h.Keys})
		}
	}
}

// mostTenants is how many are shown.
const mostTenants = 16

// someTenants are those with the worst part, then those that offered most, then others.
func someTenants(shares []invariants.Share) []invariants.Share {
	if len(shares) > mostTenants {
		part := func(s invariants.Share) float64 { return float64(s.Got) / max(s.Fair, 1) }
		most := slices.Clone(shares[len(shares)-mostTenants/2:])
		rest := slices.Clone(shares[:len(shares)-mostTenants/2])
		slices.SortStableFunc(rest, func(a, b invariants.Share) int {
			if part(a) != part(b) {
				if part(a) < part(b) {
					return -1
				}
				return 1
			}
			return 0
		})
		shares = append(rest[:mostTenants/2], most...)
	}
	return shares
}
