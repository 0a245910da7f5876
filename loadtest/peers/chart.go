package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// picture is an SVG that reads on a light page and on a dark one.
type picture struct {
	body          strings.Builder
	title, about  string
	width, height int
}

const style = `text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}.title{font-size:15px;font-weight:600}
.back{fill:#fff;stroke:#d1d9e0}.axis{stroke:#59636e}.grid{stroke:#d1d9e0}.mark{stroke:#b3261e;stroke-width:1.5;stroke-dasharray:5 3}
.ours{fill:#0b6bcb}.peer{fill:#8c959f}.bare{fill:#b3261e}.line{fill:none;stroke-width:1.4}.came{stroke:#8c959f}.called{stroke:#0b6bcb}.done{stroke:#1a7f37}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.back{fill:#0d1117;stroke:#3d444d}.axis{stroke:#9198a1}.grid{stroke:#3d444d}.mark{stroke:#ff8a80}
.ours{fill:#6cb6ff}.peer{fill:#6e7681}.bare{fill:#ff8a80}.came{stroke:#6e7681}.called{stroke:#6cb6ff}.done{stroke:#57d364}}`

func (p *picture) add(format string, args ...any) { fmt.Fprintf(&p.body, format+"\n", args...) }

func (p *picture) text(class string, x, y float64, anchor, text string) {
	p.add(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(text))
}

func (p *picture) String() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s</desc>
<style>
%s
</style>
<rect class="back" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>
%s</svg>
`, p.width, p.height, html.EscapeString(p.title), html.EscapeString(p.about), style, p.width-1, p.height-1, p.body.String())
}

// bar is one of a chart of bars.
type bar struct {
	label, text string
	value       float64
	class       string
}

// bars draws them one below the other; a mark is a value that all are held against, 0 is
// none.
func bars(title, note string, list []bar, mark float64, markText string) string {
	const left, right, each = 210.0, 640.0, 26.0
	p := &picture{title: title, width: 860, height: int(70 + each*float64(len(list)))}
	top := mark
	var told []string
	for _, b := range list {
		top = max(top, b.value)
		told = append(told, b.label+": "+b.text)
	}
	if top == 0 {
		top = 1
	}
	p.about = note + " " + strings.Join(told, "; ") + "."
	p.text("title", 16, 26, "start", title)
	p.text("small", 16, 44, "start", note)
	for i, b := range list {
		y := 58 + each*float64(i)
		p.text("", left-10, y+14, "end", b.label)
		p.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="17" rx="2"/>`, b.class, left, y, max(1, (right-left)*b.value/top))
		p.text("", max(left+(right-left)*b.value/top, left)+8, y+14, "start", b.text)
	}
	if mark > 0 {
		x := left + (right-left)*mark/top
		p.add(`<line class="mark" x1="%.1f" y1="52" x2="%.1f" y2="%.1f"/>`, x, x, 60+each*float64(len(list)))
		p.text("small", x, 48, "middle", markText)
	}
	return p.String()
}

func classOf(c contestant) string {
	switch {
	case c.bare:
		return "bare"
	case c.Name == "flowgate":
		return "ours"
	default:
		return "peer"
	}
}

// barsOf makes bars of one figure.
func (o outcome) barsOf(phase string, value func(result) float64, text func(result) string) (list []bar) {
	for _, c := range contestants {
		if r, ok := o.result(c.Name, phase); ok && value(r) > 0 { // else there is nothing that was measured
			list = append(list, bar{c.Title, text(r), value(r), classOf(c)})
		}
	}
	return list
}

// courses draws the overload of each below the other: what came, what was called, and
// what was finished, a second.
func (o outcome) courses() string {
	const left, width, each, plot = 210.0, 620.0, 78.0, 58.0
	var shown []contestant
	for _, c := range contestants {
		if r, ok := o.result(c.Name, overload); ok && len(r.Series.Called) > 0 {
			shown = append(shown, c)
		}
	}
	p := &picture{title: "Three times what the database bears: calls of it a second", width: 860, height: int(80 + each*float64(len(shown)))}
	p.about = "For each contestant a row with time from left to right: calls of the database and what it finished, by spans of a fifth of a second, and the rate as a dashed line."
	p.text("title", 16, 26, "start", p.title)
	top := 2.0 * perSecond
	p.text("small", 16, 44, "start", fmt.Sprintf("blue: calls of the database; green: finished; dashed: the rate of %d/s; the height of a row is %.0f/s, more is cut off", perSecond, top))
	for i, c := range shown {
		r, _ := o.result(c.Name, overload)
		base := 60 + each*float64(i) + plot
		p.text("", left-10, base-plot/2+4, "end", c.Title)
		p.text("small", left-10, base-plot/2+20, "end", fmt.Sprintf("finished %s/s, down %d times", digits(r.Goodput), r.Crashes))
		p.add(`<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, left, base, left+width, base)
		rate := base - plot*perSecond/top
		p.add(`<line class="mark" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, left, rate, left+width, rate)
		p.line("called", r.Series.Called, r.Series.Each, left, base, width, plot, top)
		p.line("done", r.Series.Finished, r.Series.Each, left, base, width, plot, top)
	}
	end := 60 + each*float64(len(shown))
	p.text("small", left, end, "start", "0 s")
	if len(shown) > 0 {
		r, _ := o.result(shown[0].Name, overload)
		p.text("small", left+width, end, "end", fmt.Sprintf("%.0f s", float64(len(r.Series.Called))*r.Series.Each))
	}
	return p.String()
}

func (p *picture) line(class string, counts []int, each, left, base, width, height, top float64) {
	var points []string
	for i, n := range counts {
		x := left + width*(float64(i)+0.5)/float64(len(counts))
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, base-height*min(1, float64(n)/each/top)))
	}
	p.add(`<polyline class="line %s" points="%s"/>`, class, strings.Join(points, " "))
}

// chart is a picture of a run and what its file is called.
type chart struct{ file, svg string }

func (o outcome) charts() []chart {
	return []chart{
		{"comparison-overload.svg", o.courses()},
		// Without a rate most calls are of the moment before the database goes down: nothing to
		// compare.
		{"comparison-jitter.svg", bars("Time between calls of the database, standard deviation", "in the overload; less is more even", slices.DeleteFunc(o.barsOf(overload,
			func(r result) float64 { return r.GapStd }, inMS(func(r result) float64 { return r.GapStd })), func(b bar) bool { return b.class == "bare" }), 0, "")},
		{"comparison-fairness.svg", bars("What a quiet tenant's message waits beside a noisy one, p99", "from when it was due to when the database had it, of those accepted; in brackets how many were",
			o.barsOf(noise, func(r result) float64 { return r.QuietP99 }, func(r result) string {
				return fmt.Sprintf("%s ms (%.0f %%)", digits(r.QuietP99), 100*r.QuietShare)
			}), 0, "")},
		{"comparison-ceiling.svg", bars("Most messages a second with no rate", "256 producers that each wait for their answer; a database that costs nothing", o.barsOf(ceiling,
			func(r result) float64 { return r.Through }, func(r result) string { return digits(r.Through) + "/s" }), 0, "")},
		{"comparison-memory.svg", bars("Most memory in the overload", "resident: contestant, producers, and broker where it is a program of its own", o.barsOf(overload,
			func(r result) float64 { return r.MiB }, resident1), 0, "")},
	}
}
