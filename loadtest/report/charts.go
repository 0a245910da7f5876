package report

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/flowgate/flowgate/loadtest/invariants"
)

// Pair is the same chart of both runs, on one scale.
type Pair struct{ Without, With *Chart }

// Pairs are the charts that stand beside each other.
func (f *Figures) Pairs() []Pair {
	return []Pair{
		f.pair("What the database gets done", "messages a second", max(peak(f.With.Arrivals), f.Database.Capacity), func(c *Chart, s Side) {
			c.line("arrivals", "arrivals", f.Step, s.Arrivals, true)
			if c.effective != nil {
				c.line("effective rate", "depth", f.Step, gaps(c.effective), false)
			}
			c.line("done", "done", f.Step, s.Departures, false)
			c.mark("capacity", "capacity", f.Database.Capacity)
		}),
		f.pair("Statements in flight at the database", "statements", max(peak(f.With.InFlight), peak(f.Without.InFlight), float64(f.Database.CrashAt)), func(c *Chart, s Side) {
			c.line("in flight", "flight", f.Step, s.InFlight, true)
			c.mark("knee", "knee: slower from here on", float64(f.Database.Knee))
			if f.Database.CrashAt > 0 {
				c.mark("crash", "goes down here", float64(f.Database.CrashAt))
			}
		}),
		f.pair("Latency of what is done, mean", "milliseconds, logarithmic", 1, func(c *Chart, s Side) {
			c.logarithmic(f.Database.Latency/2, max(peak(f.With.Latencies), peak(f.Without.Latencies), f.Database.Latency*5))
			c.line("latency", "flight", f.Step, gaps(s.Latencies), false)
			c.mark("capacity", "alone", f.Database.Latency)
		}),
	}
}

func (f *Figures) pair(title, unit string, most float64, draw func(*Chart, Side)) Pair {
	one := func(s Side, gaps []Span, effective []float64) *Chart {
		c := newChart(title, unit, f.Took, most)
		c.effective = effective
		c.band("down", "down", s.DownSpans)
		c.band("gap", "no gateway", gaps)
		draw(c, s)
		return c
	}
	return Pair{one(f.Without, nil, nil), one(f.With, f.Gaps, f.Rates)}
}

// Backlogs are what waits, each on its own scale: without flowgate it is what was due and not
// done.
func (f *Figures) Backlogs() Pair {
	without := newChart("Due and not yet in the database", "messages", f.Took, peak(f.Without.Depth))
	without.band("down", "down", f.Without.DownSpans)
	without.line("due and not done", "depth", f.Step, f.Without.Depth, true)
	most := peak(f.With.Depth)
	if m := f.Watermarks; most > float64(m.Low)/2 {
		most = max(most, float64(m.High)*1.1)
		if most > float64(m.High)*1.2 {
			most = max(most, float64(m.Max))
		}
	}
	with := newChart("Backlog in flowgate", "messages", f.Took, most)
	with.band("down", "down", f.With.DownSpans)
	with.band("gap", "no gateway", f.Gaps)
	with.line("backlog", "depth", f.Step, f.With.Depth, true)
	with.mark("low", "LOW: admitted again", float64(f.Watermarks.Low))
	with.mark("high", "HIGH: refused", float64(f.Watermarks.High))
	with.mark("crash", "MAX", float64(f.Watermarks.Max))
	return Pair{without, with}
}

// RefusalChart is NAKs by reason, stacked.
func (f *Figures) RefusalChart() *Chart {
	sum := f.bins()
	reasons := slices.Sorted(maps.Keys(f.Refusals))
	for _, r := range reasons {
		for i, v := range f.Refusals[r] {
			sum[i] += v
		}
	}
	c := newChart("Refusals by reason", "NAKs a second", f.Took, max(peak(sum), 1))
	c.band("gap", "no gateway", f.Gaps)
	below := f.bins()
	for n, r := range reasons {
		class := fmt.Sprintf("reason%d", n%6)
		c.Series = append(c.Series, Series{Name: r, Class: class})
		for i, v := range f.Refusals[r] {
			if v == 0 {
				continue
			}
			y, foot := c.y.place(below[i]+v), c.y.place(below[i])
			x := c.x.place(float64(i) * f.Step)
			c.Bars = append(c.Bars, Bar{class, x, y, max(0.8, c.x.place(float64(i+1)*f.Step)-x), foot - y, fmt.Sprintf("%s: %.0f/s at %.1f s", r, v, float64(i)*f.Step)})
			below[i] += v
		}
	}
	if len(reasons) == 0 {
		c.Note = "nobody was refused"
	}
	return c
}

// LatencyChart is the percentiles of the time from when a message was due until the database
// had it.
func (f *Figures) LatencyChart() *Chart {
	c := newChart("From due to done, by percentile", "milliseconds, logarithmic", 1, 1)
	c.XLabel = "percentile"
	c.logarithmic(max(1, min(low(f.With.Delivery), low(f.Without.Delivery))), max(f.With.Delivery.Max, f.Without.Delivery.Max, 10))
	// Each nine takes the same room.
	c.x = axis{0, 4, left, chartW - right, false}
	nines := func(p float64) float64 { return min(4, -math.Log10(1-min(p, 99.999)/100)) }
	c.X = nil
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99} {
		c.X = append(c.X, Tick{c.x.place(nines(p)), number(p)})
	}
	for _, s := range []struct {
		name, class string
		l           Latency
	}{{"without flowgate", "bad", f.Without.Delivery}, {"with flowgate", "done", f.With.Delivery}} {
		path := ""
		for i, p := range s.l.Spectrum {
			verb := "L"
			if i == 0 {
				verb = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", verb, c.x.place(nines(p.Percentile)), c.y.place(p.Latency))
		}
		c.Series = append(c.Series, Series{s.name, s.class, path, false})
	}
	return c
}

// Fairness is the tenants' parts of what was delivered, of both runs.
func (f *Figures) Fairness() Pair {
	one := func(s Side) *Chart {
		c := newChart("Tenants: delivered of their fair part", "per cent, during the load", float64(len(s.Tenants)), 110)
		c.XLabel, c.X = "tenants, those that offered most on the right", nil
		for i, t := range s.Tenants {
			part := 0.0
			if t.Fair > 0 {
				part = min(110, 100*float64(t.Got)/t.Fair)
			}
			x, next := c.x.place(float64(i)), c.x.place(float64(i+1))
			y := c.y.place(part)
			c.Bars = append(c.Bars, Bar{"done", x + 2, y, next - x - 4, c.Bottom() - y, fmt.Sprintf("%s: %d delivered of %d offered, fair would be %.0f", t.Tenant, t.Got, t.Offered, t.Fair)})
			if len(s.Tenants) <= mostTenants {
				c.X = append(c.X, Tick{(x + next) / 2, shortened(t)})
			}
		}
		c.mark("capacity", "", 100)
		c.Note = fmt.Sprintf("Jain's index over all tenants %.3f", s.Fairness)
		return c
	}
	return Pair{one(f.Without), one(f.With)}
}

// ProcessCharts are what the gateway's process held, if the run was about that.
func (f *Figures) ProcessCharts() []Pair {
	if !f.Leaks || len(f.Process) == 0 {
		return nil
	}
	one := func(title, unit string, lines map[string]func(Held) float64) *Chart {
		most := 0.0
		for _, of := range lines {
			for _, h := range f.Process {
				most = max(most, of(h))
			}
		}
		c := newChart(title, unit, f.Took, most)
		c.band("gap", "no gateway", f.Gaps)
		for i, name := range slices.Sorted(maps.Keys(lines)) {
			values := f.bins()
			for _, h := range f.Process {
				values[f.bin(h.At)] = lines[name](h)
			}
			c.line(name, []string{"flight", "depth", "done"}[i], f.Step, gaps(values), false)
		}
		return c
	}
	return []Pair{{
		one("Memory of the gateway", "MiB, resident", map[string]func(Held) float64{"RSS": func(h Held) float64 { return h.MiB }}),
		one("What the gateway holds open", "", map[string]func(Held) float64{
			"goroutines": func(h Held) float64 { return float64(h.Goroutines) }, "files": func(h Held) float64 { return float64(h.Files) }, "keys": func(h Held) float64 { return float64(h.Keys) },
		}),
	}}
}

func shortened(s invariants.Share) string {
	if len(s.Tenant) > 5 {
		return s.Tenant[:1] + "…" + s.Tenant[len(s.Tenant)-2:]
	}
	return s.Tenant
}

func low(l Latency) float64 {
	if len(l.Spectrum) == 0 {
		return math.Inf(1)
	}
	return l.Spectrum[0].Latency
}

func peak(values []float64) float64 {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// gaps has a gap where nothing was measured.
func gaps(values []float64) []float64 {
	out := slices.Clone(values)
	for i, v := range out {
		if v == 0 {
			out[i] = -1
		}
	}
	return out
}
