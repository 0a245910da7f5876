package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/simulation"
)

const (
	// shownTenants is how many tenants are printed, and drawnColumns how wide the depth is.
	shownTenants = 10
	drawnColumns = 60
)

// page prints line after line and remembers what went wrong first.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func printSimulation(w io.Writer, s *simulating, r *simulation.Result) error {
	p := &page{w: w}
	p.line("%s of arrivals: %s messages of %s tenants, %s on average", rough(asSeconds(r.Length)), grouped(r.Offered), grouped(uint64(len(r.Tenants))), perSecond(float64(r.Offered)/r.Length))
	p.line("gateway: %s", describe(s.config))
	p.line("")
	p.line("depth      up to %s at %s, %s on average, %s at the end of the arrivals; HIGH is %s", grouped(r.Depth.Peak), rough(asSeconds(r.Depth.PeakAt)), grouped(uint64(r.Depth.Mean+0.5)), grouped(r.Depth.End), grouped(r.Depth.High))
	if depths := drawn(r.Samples); len(depths) > 0 {
		p.line("           %s", sparkline(depths))
	}
	p.line("over HIGH  %s; under pressure %s", rough(asSeconds(r.OverHigh)), rough(asSeconds(r.Pressured)))
	p.line("refused    %s", refusals(r))
	p.line("lag        p50 %s, p95 %s, p99 %s, longest %s; with the producers' own waits p99 %s", short(r.Lag.P50), short(r.Lag.P95), short(r.Lag.P99), short(r.Lag.Max), short(r.Latency.P99))
	p.line("delivered  %s, at most %s; tried again %s, dead letters %s", grouped(r.Delivered), perSecond(r.Fastest), grouped(r.Retried), grouped(r.DeadLettered))
	if r.Drain != nil {
		p.line("drained    %s after the end of the arrivals", short(*r.Drain))
	} else {
		p.line("drained    not within %s after the end of the arrivals", rough(asSeconds(r.Until-r.Length)))
	}
	for _, note := range s.notes {
		p.line("note       %s", note)
	}
	p.line("")
	return errors.Join(p.err, printTenants(w, r.Tenants))
}

// describe says by which values it was decided.
func describe(c settings.Config) string {
	marks := c.Backpressure.Marks()
	text := fmt.Sprintf("HIGH %s, LOW %s, MAX %s, RATE %s, %s", grouped(marks.High), grouped(marks.Low), grouped(marks.Max), c.Shaper.Rate, c.Limit)
	if c.Mode.String() != "enforce" {
		text += ", MODE " + c.Mode.String()
	}
	return text
}

func refusals(r *simulation.Result) string {
	if len(r.Refused) == 0 {
		if len(r.Shadow) > 0 {
			return "nothing; outside of shadow it would have been " + byReason(r.Shadow)
		}
		return "nothing"
	}
	tries := uint64(0)
	for _, n := range r.Refused {
		tries += n
	}
	text := fmt.Sprintf("%s tries of %s messages", grouped(tries), grouped(r.RefusedMessages))
	if tries == r.RefusedMessages {
		text = grouped(tries) + " messages, once each"
	}
	return fmt.Sprintf("%s (%s); given up by their producers: %s", text, byReason(r.Refused), grouped(r.Lost))
}

func byReason(reasons map[string]uint64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, reason+" "+grouped(reasons[reason]))
	}
	return strings.Join(parts, ", ")
}

func printTenants(w io.Writer, tenants []simulation.TenantResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tOFFERED\tBUSIEST 10s\tREFUSED\tGIVEN UP\tDELIVERED\tLAG P99\tREASONS")
	for _, x := range tenants[:min(len(tenants), shownTenants)] {
		reasons, tries := "-", uint64(0)
		for _, n := range x.Refused {
			tries += n
		}
		if tries > 0 {
			reasons = byReason(x.Refused)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", plain(x.Tenant), grouped(x.Offered), perSecond(x.Busiest), grouped(tries), grouped(x.Lost), grouped(x.Delivered), short(x.Lag.P99), reasons)
	}
	if more := len(tenants) - shownTenants; more > 0 {
		fmt.Fprintf(t, "and %s more\n", grouped(uint64(more)))
	}
	return t.Flush()
}

// drawn is the deepest of each column.
func drawn(samples []simulation.Sample) []uint64 {
	n := min(len(samples), drawnColumns)
	depths := make([]uint64, n)
	for i, s := range samples {
		at := i * n / len(samples)
		depths[at] = max(depths[at], s.DepthMax)
	}
	return depths
}

func asSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// short is a time in three digits.
func short(s float64) string {
	d := asSeconds(s)
	switch {
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return rough(d)
}
