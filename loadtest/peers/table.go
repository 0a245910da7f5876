package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// column is one figure of all contestants.
type column struct {
	head string
	text func(result) string
	// loss is less the better the figure is; nil: none is better than another. Figures
	// that read alike or lose alike are alike.
	loss func(result) float64
}

// sheet is a table: a row for each contestant that has a result of that phase.
type sheet struct {
	title, phase string
	note         string
	columns      []column
}

// row is a contestant's in a sheet.
type row struct {
	contestant
	cells []string
	best  []bool
}

func share(of func(result) float64) func(result) string {
	return func(r result) string { return fmt.Sprintf("%.1f %%", 100*of(r)) }
}

func inMS(of func(result) float64) func(result) string {
	return func(r result) string {
		if v := of(r); v > 0 {
			return digits(v) + " ms"
		}
		return unmeasured
	}
}

// unmeasured stands for a figure that there is none of.
const unmeasured = "–"

// digits are three that count.
func digits(v float64) string {
	switch {
	case v >= 100:
		return thousands(int(math.Round(v)))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func number(of func(result) int) func(result) string {
	return func(r result) string { return thousands(of(r)) }
}

func less(of func(result) float64) func(result) float64 { return of }

func more(of func(result) float64) func(result) float64 {
	return func(r result) float64 { return -of(r) }
}

func answered(r result) float64 {
	if r.Offered == 0 {
		return 0
	}
	return float64(r.Accepted+r.Refused) / float64(r.Offered)
}

// quoted are all texts, most frequent first, with their part if there are several.
func quoted(r result) string {
	switch len(r.Told) {
	case 0:
		return "nothing was refused"
	case 1:
		return "`" + r.Told[0].Text + "`"
	}
	var texts []string
	for _, t := range r.Told {
		texts = append(texts, thousands(t.Times)+" × `"+t.Text+"`")
	}
	return strings.Join(texts, ", ")
}

func missing(r result) string {
	if r.Missing > 0 && !r.Settled {
		return thousands(r.Missing) + " still waiting"
	}
	return thousands(r.Missing)
}

var sheets = []sheet{
	{
		title: "Below capacity", phase: steady, note: "Five tenants send 70 % of the rate together. Latency is from when a message was due to when the database had it, the database's own 20 ms included.",
		columns: []column{
			{"latency p50", inMS(func(r result) float64 { return r.P50 }), less(func(r result) float64 { return r.P50 })},
			{"latency p99", inMS(func(r result) float64 { return r.P99 }), less(func(r result) float64 { return r.P99 })},
			{"answer p99", inMS(func(r result) float64 { return r.AnswerP99 }), less(func(r result) float64 { return r.AnswerP99 })},
			{"most in any second, of the rate", share(func(r result) float64 { return r.Worst }), nil},
			{"accepted", number(func(r result) int { return r.Accepted }), nil},
			{"missing", missing, less(func(r result) float64 { return float64(r.Missing) })},
		},
	},
	{
		title: "Overload: the rate", phase: overload, note: "Five tenants send three times what the database bears. Work waits all the time; the gap is the time between calls of the database. Most and least are in any second, wherever it begins: the rate is kept if the most is not above it by more than the one call that ends a second and begins the next.",
		columns: []column{
			{"of the rate, mean", share(func(r result) float64 { return r.Held }), func(r result) float64 { return math.Abs(1 - r.Held) }},
			{"most in any second, of the rate", share(func(r result) float64 { return r.Worst }), func(r result) float64 { return max(0, r.Worst-1-1.0/perSecond) }},
			{"least", share(func(r result) float64 { return r.Least }), more(func(r result) float64 { return min(1, r.Least) })},
			{"gap p50", inMS(func(r result) float64 { return r.GapP50 }), nil},
			{"gap p99", inMS(func(r result) float64 { return r.GapP99 }), less(func(r result) float64 { return r.GapP99 })},
			{"gap std", inMS(func(r result) float64 { return r.GapStd }), less(func(r result) float64 { return r.GapStd })},
			{"finished a second", func(r result) string { return digits(r.Goodput) }, more(func(r result) float64 { return r.Goodput })},
			{"database went down", number(func(r result) int { return r.Crashes }), less(func(r result) float64 { return float64(r.Crashes) })},
		},
	},
	{
		title: "Overload: what producers are told", phase: overload, note: "The text is the error that the client library returned, from this run. Answered is within 5 s; an answer that did not come by then counts as one of 5 s. Missing is what was accepted and did not come to the database.",
		columns: []column{
			{"answered", share(answered), more(answered)},
			{"answer p99", inMS(func(r result) float64 { return r.AnswerP99 }), less(func(r result) float64 { return r.AnswerP99 })},
			{"accepted", number(func(r result) int { return r.Accepted }), nil},
			{"refused", number(func(r result) int { return r.Refused }), nil},
			{"missing", missing, less(func(r result) float64 { return float64(r.Missing) })},
			{"refused with", quoted, nil},
		},
	},
	{
		title: "Noisy neighbour", phase: noise, note: "Four tenants send a tenth of the rate each, the fifth twenty times that. Jain's index is over what each got of the database against its part by max-min fairness; served is what the database finished of what the quiet ones sent in the same time. Latency is of what was accepted.",
		columns: []column{
			{"Jain's index", func(r result) string { return fmt.Sprintf("%.3f", r.Jain) }, more(func(r result) float64 { return r.Jain })},
			{"quiet: accepted", share(func(r result) float64 { return r.QuietShare }), more(func(r result) float64 { return r.QuietShare })},
			{"quiet: served", share(func(r result) float64 { return r.QuietServed }), nil},
			{"quiet: latency p50", inMS(func(r result) float64 { return r.QuietP50 }), less(func(r result) float64 { return r.QuietP50 })},
			{"quiet: latency p99", inMS(func(r result) float64 { return r.QuietP99 }), less(func(r result) float64 { return r.QuietP99 })},
			{"noisy: accepted", share(func(r result) float64 { return r.NoisyShare }), nil},
		},
	},
	{
		title: "SIGKILL in the overload", phase: crash, note: "Peer, producers and broker are killed at once and started again on what is on the disk. The machine itself stays up, so that what was written and not yet synced is there still.",
		columns: []column{
			{"accepted before", number(func(r result) int { return r.Accepted }), nil},
			{"delivered, both lives", number(func(r result) int { return r.Delivered }), nil},
			{"lost", missing, less(func(r result) float64 { return float64(r.Missing) })},
			{"delivered again", number(func(r result) int { return r.Repeats }), less(func(r result) float64 { return float64(r.Repeats) })},
		},
	},
	{
		title: "Ceiling", phase: ceiling, note: "No rate, a database that costs nothing, 256 producers that each wait for their answer, 256 workers.",
		columns: []column{
			{"messages a second", func(r result) string { return digits(r.Through) }, more(func(r result) float64 { return r.Through })},
			{"resident", resident1, less(func(r result) float64 { return r.MiB })},
			{"refused or unanswered", number(func(r result) int { return r.Refused + r.Unanswered }), less(func(r result) float64 { return float64(r.Refused + r.Unanswered) })},
			{"missing", missing, less(func(r result) float64 { return float64(r.Missing) })},
		},
	},
	{
		title: "Memory in the overload", phase: overload, note: "Most resident of all processes: peer, producers, and broker where there is one; NATS servers are in the peer's process, as flowgate's is. The producers and this program take nearly all of the pool's.",
		columns: []column{{"resident", resident1, less(func(r result) float64 { return r.MiB })}},
	},
}

func resident1(r result) string {
	if r.MiB == 0 {
		return unmeasured
	}
	return digits(r.MiB) + " MiB"
}

// result finds one.
func (o outcome) result(peer, phase string) (result, bool) {
	for _, r := range o.Results {
		if r.Peer == peer && r.Phase == phase {
			return r, true
		}
	}
	return result{}, false
}

// rows fills a sheet, and marks what is best in each column; what has no rate does not
// compete.
func (o outcome) rows(s sheet) (rows []row) {
	least, best := make([]float64, len(s.columns)), make([]string, len(s.columns))
	for i, c := range s.columns {
		least[i] = math.Inf(1)
		for _, one := range contestants {
			r, ok := o.result(one.Name, s.phase)
			if ok && !one.bare && c.loss != nil && c.text(r) != unmeasured && c.loss(r) < least[i] {
				least[i], best[i] = c.loss(r), c.text(r)
			}
		}
	}
	for _, one := range contestants {
		r, ok := o.result(one.Name, s.phase)
		if !ok {
			continue
		}
		out := row{contestant: one}
		for i, c := range s.columns {
			text := c.text(r)
			out.cells = append(out.cells, text)
			out.best = append(out.best, !one.bare && c.loss != nil && text != unmeasured && (text == best[i] || c.loss(r) == least[i]))
		}
		rows = append(rows, out)
	}
	return rows
}

// better lists what peers do better than flowgate, column by column: every one of them,
// the best first.
func (o outcome) better() (lines []string) {
	for _, s := range sheets {
		ours, ok := o.result("flowgate", s.phase)
		if !ok {
			continue
		}
		for _, c := range s.columns {
			if c.loss == nil || c.text(ours) == unmeasured {
				continue
			}
			type rival struct {
				loss float64
				said string
			}
			var rivals []rival
			for _, one := range contestants {
				r, ok := o.result(one.Name, s.phase)
				if !ok || one.bare || c.text(r) == unmeasured || c.text(r) == c.text(ours) || c.loss(r) >= c.loss(ours) {
					continue
				}
				rivals = append(rivals, rival{c.loss(r), c.text(r) + " with " + one.Title})
			}
			if len(rivals) == 0 {
				continue
			}
			slices.SortStableFunc(rivals, func(a, b rival) int { return cmp.Compare(a.loss, b.loss) })
			said := make([]string, len(rivals))
			for i, r := range rivals {
				said[i] = r.said
			}
			lines = append(lines, fmt.Sprintf("%s, %s: flowgate %s; %s", s.title, c.head, c.text(ours), strings.Join(said, "; ")))
		}
	}
	return lines
}

// print writes the tables for a terminal.
func (o outcome) print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\n", o.machine())
	for _, s := range sheets {
		rows := o.rows(s)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(t, "\n%s", s.title)
		for _, c := range s.columns {
			fmt.Fprintf(t, "\t%s", c.head)
		}
		fmt.Fprintln(t)
		for _, r := range rows {
			fmt.Fprintln(t, strings.Join(append([]string{r.Title}, r.cells...), "\t"))
		}
	}
	for name, why := range o.Absent {
		fmt.Fprintf(t, "\nnot measured: %s: %s\n", name, why)
	}
	if lines := o.better(); len(lines) > 0 {
		fmt.Fprintf(t, "\nwhere a peer is better than flowgate:\n  %s\n", strings.Join(lines, "\n  "))
	}
	return t.Flush()
}

// machine says where and when it was measured.
func (o outcome) machine() string {
	short := ""
	if o.Short {
		short = "a short run of several side by side, whose figures mean nothing; "
	}
	return short + fmt.Sprintf("%d cores (%s), %s, %s, %s; load of the machine before the run %s; took %s",
		o.Processors, o.Processor, o.System, o.Go, o.Began.Format("2006-01-02 15:04 UTC"), o.Load, o.Took)
}
