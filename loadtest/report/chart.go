package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Chart is a drawing of series over an axis, as SVG.
type Chart struct {
	Title, Unit string
	Note        string
	W, H        float64
	X, Y        []Tick
	XLabel      string
	Series      []Series
	Bars        []Bar
	Bands       []Band
	Marks       []Mark
	x, y        axis
	effective   []float64 // the gateway's rate, where it is drawn
}

// The drawing's margins and size.
const (
	chartW, chartH           = 560.0, 190.0
	left, right, top, bottom = 48.0, 18.0, 12.0, 30.0
)

// Left and the others are of the plot within the chart, for the template.
func (c *Chart) Left() float64       { return left }
func (c *Chart) Right() float64      { return c.W - right }
func (c *Chart) Top() float64        { return top }
func (c *Chart) Bottom() float64     { return c.H - bottom }
func (c *Chart) Middle() float64     { return (c.Left() + c.Right()) / 2 }
func (c *Chart) PlotHeight() float64 { return c.Bottom() - c.Top() }
func (c *Chart) Foot() float64       { return c.H - 3 }

// Tick is a place on an axis with its label.
type Tick struct {
	At    float64
	Label string
}

// Series is a line, or the area under it.
type Series struct {
	Name, Class string
	Path        string
	Area        bool
}

// Bar is a box.
type Bar struct {
	Class      string
	X, Y, W, H float64
	Title      string
}

// Band is a stretch of time with a meaning.
type Band struct {
	Class, Label string
	X, W         float64
}

// Mark is a level with a name.
type Mark struct {
	Class, Label string
	Y            float64
}

// axis maps values to places.
type axis struct {
	from, to float64
	at, end  float64
	log      bool
}

func (a axis) place(v float64) float64 {
	if a.log {
		v = math.Log10(max(v, a.from))
		return a.at + (a.end-a.at)*(v-math.Log10(a.from))/(math.Log10(a.to)-math.Log10(a.from))
	}
	return a.at + (a.end-a.at)*(v-a.from)/(a.to-a.from)
}

// newChart is one over time, from 0 to most.
func newChart(title, unit string, length, most float64) *Chart {
	c := &Chart{Title: title, Unit: unit, W: chartW, H: chartH, XLabel: "seconds since the beginning"}
	c.x = axis{0, length, left, chartW - right, false}
	c.X = c.x.ticks(6)
	c.y = axis{0, max(most*1.05, 1e-9), chartH - bottom, top, false}
	c.Y = c.y.ticks(4)
	return c
}

// logarithmic makes the chart's values so, from and to whole powers of ten.
func (c *Chart) logarithmic(from, to float64) {
	from, to = math.Pow(10, math.Floor(math.Log10(from))), math.Pow(10, math.Ceil(math.Log10(to)))
	if to <= from {
		to = from * 10
	}
	c.y = axis{from, to, c.H - bottom, top, true}
	c.Y = nil
	for v := from; v <= to*1.01; v *= 10 {
		c.Y = append(c.Y, Tick{c.y.place(v), number(v)})
	}
}

// ticks are about n round values.
func (a axis) ticks(n int) []Tick {
	raw := (a.to - a.from) / float64(n)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if step*m >= raw {
			step *= m
			break
		}
	}
	var ticks []Tick
	for v := math.Ceil(a.from/step) * step; v <= a.to*1.0001; v += step {
		ticks = append(ticks, Tick{a.place(v), number(v)})
	}
	return ticks
}

// number writes a value shortly.
func number(v float64) string {
	switch {
	case v >= 1_000_000:
		return strconv.FormatFloat(v/1_000_000, 'g', 3, 64) + "M"
	case v >= 10_000:
		return strconv.FormatFloat(v/1000, 'g', 4, 64) + "k"
	case v >= 1000:
		return fmt.Sprintf("%d,%03d", int(v)/1000, int(math.Round(v))%1000)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// line adds a series of values at even steps. Those below 0 are gaps.
func (c *Chart) line(name, class string, step float64, values []float64, area bool) {
	var b strings.Builder
	drawing, firstX, lastX := false, 0.0, 0.0
	end := func() {
		if drawing && area {
			fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1fZ", lastX, c.Bottom(), firstX, c.Bottom())
		}
		drawing = false
	}
	for i, v := range values {
		if v < 0 {
			end()
			continue
		}
		lastX = c.x.place(min(float64(i)*step, c.x.to))
		verb := "L"
		if !drawing {
			verb, drawing, firstX = "M", true, lastX
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", verb, lastX, c.y.place(v))
	}
	end()
	c.Series = append(c.Series, Series{name, class, b.String(), area})
}

// band marks stretches of time.
func (c *Chart) band(class, label string, spans []Span) {
	for _, s := range spans {
		from, to := c.x.place(s.From), c.x.place(min(s.To, c.x.to))
		b := Band{Class: class, X: from, W: max(1, to-from)}
		if b.W > 34 {
			b.Label = label
		}
		c.Bands = append(c.Bands, b)
	}
}

// mark adds a level, if it is on the chart.
func (c *Chart) mark(class, label string, v float64) {
	if v <= c.y.to && v >= c.y.from {
		c.Marks = append(c.Marks, Mark{class, label, c.y.place(v)})
	}
}
