package demo

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/loadtest/invariants"
)

func introduce(w io.Writer, cfg settings.Config, nats, admin string) {
	m := cfg.Backpressure.Marks()
	fmt.Fprintf(w, `flowgate demo: three tenants publish through the gateway into a database that takes %s.

  steady   90/s, waits when told and tries again
  bursty   200 at once after idling, waits when told and tries again
  greedy   1000/s, ten times its limit, and does not listen
  limits   each tenant %s; backlog refused at %d, admitted again at %d, never above %d;
           room is kept for those who were told to come back, so others are refused for a while after that
  address  %s, admin http://%s

`, cfg.Shaper.Rate, cfg.Limit.Tenant, m.High, m.Low, m.Max, nats, admin)
}

func farewell(w io.Writer) {
	fmt.Fprint(w, `
where to go next:
  go run ./cmd/flowgate                  the same as a service: NATS on 127.0.0.1:4222, rows in flowgate-data/messages.db
  nats req ingress.acme.orders hello     the answer is the stream's own acknowledgement, or a NAK
  curl 127.0.0.1:8081/api/v1/status      depth, watermarks, rates
  go run ./cmd/flowgate env              every variable
`)
}

// screen is the live line.
type screen struct {
	w        io.Writer
	terminal bool
	width    int
	app      *app.App
	ledger   *invariants.Ledger
	start    time.Time
	acked    int
	refused  map[string]int
	at       time.Time
}

func newScreen(opts Options, a *app.App, l *invariants.Ledger) *screen {
	now := time.Now()
	return &screen{w: opts.Out, terminal: opts.Terminal, width: cmp.Or(opts.Width, 80), app: a, ledger: l, start: now, at: now, refused: map[string]int{}}
}

func (s *screen) depth() uint64 {
	st, _ := s.app.Status()
	return st.Depth.Total
}

// line shows the last second.
func (s *screen) line() {
	st, ok := s.app.Status()
	if !ok {
		return
	}
	acked, refused := 0, map[string]int{}
	for _, t := range s.ledger.Tallies() {
		acked += t.Acked
		for reason, n := range t.Refused {
			refused[reason] += n
		}
	}
	now := time.Now()
	perSecond := func(n int) int { return int(float64(n)/now.Sub(s.at).Seconds() + 0.5) }
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		name := reason
		if s.terminal && reason == "rate_limited" {
			name = "limit" // a terminal is narrow
		}
		reasons = append(reasons, fmt.Sprintf("%s %d/s", name, perSecond(refused[reason]-s.refused[reason])))
	}
	if len(reasons) == 0 {
		reasons = []string{"none"}
	}
	drain := "-"
	if st.DrainSeconds != nil {
		drain = fmt.Sprintf("%.1fs", *st.DrainSeconds)
	}
	line := fmt.Sprintf("%3.0fs  depth %d %s %s  admitted %d/s  refused %s  delivered %.0f/s  drain %s",
		now.Sub(s.start).Seconds(), st.Depth.Total, s.gauge(st), st.Level,
		perSecond(acked-s.acked), strings.Join(reasons, ", "), st.Rate.Delivered, drain)
	if s.terminal {
		// A line that wraps could not be drawn over; the last column belongs to the
		// cursor.
		if runes := []rune(line); len(runes) >= s.width {
			line = string(runes[:max(0, s.width-1)])
		}
		fmt.Fprintf(s.w, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(s.w, line)
	}
	s.at, s.acked, s.refused = now, acked, refused
}

// gauge shows the depth against its watermarks: a bar on a terminal, else numbers.
func (s *screen) gauge(st app.Status) string {
	m := st.Watermarks
	if !s.terminal {
		return fmt.Sprintf("(low %d, high %d, max %d)", m.Low, m.High, m.Max)
	}
	const width = 12
	bar := []rune(strings.Repeat("·", width))
	for i := range bar[:min(width, int(st.Depth.Total*width/max(m.Max, 1)))] {
		bar[i] = '█'
	}
	for _, mark := range []uint64{m.Low, m.High} {
		if i := int(mark * width / max(m.Max, 1)); i < width && bar[i] == '·' {
			bar[i] = '│'
		}
	}
	return "[" + string(bar) + "]"
}

// end leaves the live line.
func (s *screen) end() {
	if s.terminal {
		fmt.Fprintln(s.w)
	}
}

// table sums up by tenant: the producers' side, and the database's.
func table(w io.Writer, ledger *invariants.Ledger, rows []invariants.Row) {
	waits := map[string][]time.Duration{}
	for _, r := range rows {
		waits[r.Tenant] = append(waits[r.Tenant], r.ReleasedAt.Sub(r.AdmittedAt))
	}
	tallies := ledger.Tallies()
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "tenant\tmessages\ttries\tacknowledged\trate_limited\tbacklog\tother\tin database\twait p50\twait p99\t")
	for _, tenant := range slices.Sorted(maps.Keys(tallies)) {
		c := tallies[tenant]
		other := c.Unsure
		for reason, n := range c.Refused {
			if reason != "rate_limited" && reason != "backlog" {
				other += n
			}
		}
		d := waits[tenant]
		slices.SortFunc(d, cmp.Compare[time.Duration])
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", tenant, c.Messages, c.Sent, c.Acked,
			c.Refused["rate_limited"], c.Refused["backlog"], other, len(d), quantile(d, 0.5), quantile(d, 0.99))
	}
	_ = t.Flush() // a failure of the output is not the demo's
	fmt.Fprintln(w, "\n  not acknowledged are messages that were refused and not tried again, or whose turn had not come when publishing ended")
}

func quantile(sorted []time.Duration, q float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Millisecond).String()
}
