package algorithms

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The drawing's arrivals, in milliseconds: five before the edge of the first second,
// five after it, then one every 100 ms.
func drawnArrivals() (at []int64) {
	for ms := int64(900); ms < 1100; ms += 20 {
		at = append(at, ms)
	}
	for ms := int64(1300); ms < 4000; ms += 100 {
		at = append(at, ms)
	}
	return at
}

const drawnLimit = 5

// drawnRow is one algorithm's answers to the arrivals.
type drawnRow struct {
	name   string
	passed []bool
	leaves []int64 // the queue's departures, ms
}

func drawnRows(t *testing.T) (rows []drawnRow) {
	t.Helper()
	for _, name := range Names() {
		r := Rule{Algorithm: name, Rate: Rate{drawnLimit, time.Second}}
		if r.bucket() {
			r.Burst = drawnLimit
		}
		l := mustNew(t, r)
		row := drawnRow{name: name}
		for _, ms := range drawnArrivals() {
			d, _ := l.Take(ms*1e6, 1)
			row.passed = append(row.passed, d.Allowed)
		}
		rows = append(rows, row)
	}
	q, err := NewLeakyQueue(Rate{drawnLimit, time.Second}, drawnLimit-1)
	if err != nil {
		t.Fatal(err)
	}
	row := drawnRow{name: "leaky bucket as a queue"}
	for _, ms := range drawnArrivals() {
		delay, d, _ := q.Offer(ms*1e6, 1)
		row.passed = append(row.passed, d.Allowed)
		if d.Allowed {
			row.leaves = append(row.leaves, ms+delay.Milliseconds())
		}
	}
	return append(rows, row)
}

const drawnTitle = "The same 37 arrivals under a limit of 5 a second"

const drawnStyle = `<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}
.axis,.edge{stroke:#59636e;stroke-width:1}.edge{stroke-dasharray:3 4}
.in{fill:#0b6bcb}.out{stroke:#b3261e;stroke-width:1.6;fill:none}.leave{stroke:#1f2328;stroke-width:2}
.small{font-size:11px}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.axis,.edge{stroke:#9198a1}.in{fill:#6cb6ff}.out{stroke:#ff8a80}.leave{stroke:#e6edf3}}
</style>
`

func TestDocsDrawing(t *testing.T) {
	rows := drawnRows(t)
	arrivals := drawnArrivals()
	if len(arrivals) != 37 {
		t.Fatalf("%d arrivals: the title says 37", len(arrivals))
	}
	const left, top, step, width, row = 200, 44, 150, 900, 34
	x := func(ms int64) float64 { return left + float64(ms)*step/1000 }
	bottom := top + row*len(rows)
	var b, text strings.Builder
	var arrived [4]int
	for _, ms := range arrivals {
		arrived[ms/1000]++
	}
	fmt.Fprintf(&text, "| passed | around the first edge, of 10 | in the 1st second, of %d | 2nd, of %d | 3rd, of %d | 4th, of %d | all, of %d |\n|---|---|---|---|---|---|---|\n", arrived[0], arrived[1], arrived[2], arrived[3], len(arrivals))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", width, bottom+66)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n", drawnTitle)
	b.WriteString("<desc id=\"desc\">A row for each algorithm, time from left to right. A dot is a request that passed, a cross one that was refused. Dashed lines are the edges of the windows.")
	for _, r := range rows {
		n := 0
		for _, ok := range r.passed {
			if ok {
				n++
			}
		}
		fmt.Fprintf(&b, " %s: %d passed.", r.name, n)
	}
	b.WriteString("</desc>\n" + drawnStyle)
	for s := int64(0); s <= 4; s++ {
		fmt.Fprintf(&b, `<line class="edge" x1="%g" y1="%d" x2="%g" y2="%d"/><text class="small" x="%g" y="%d" text-anchor="middle">%d s</text>`+"\n", x(s*1000), top-18, x(s*1000), bottom, x(s*1000), bottom+16, s)
	}
	fmt.Fprintf(&b, `<text class="small" x="%d" y="%d">passed</text>`+"\n", width-70, top-10)
	for i, r := range rows {
		y := float64(top + row*i + row/2)
		fmt.Fprintf(&b, `<text x="8" y="%g">%s</text><line class="axis" x1="%g" y1="%g" x2="%g" y2="%g"/>`+"\n", y+4, r.name, x(0), y, x(4000), y)
		var passed [4]int // in each second
		edge := 0
		for j, ok := range r.passed {
			at := x(arrivals[j])
			if ok {
				fmt.Fprintf(&b, `<circle class="in" cx="%g" cy="%g" r="3.6"/>`, at, y)
				passed[arrivals[j]/1000]++
				if arrivals[j] < 1100 {
					edge++
				}
			} else {
				fmt.Fprintf(&b, `<path class="out" d="M%g %gl6 6m0 -6l-6 6"/>`, at-3, y-3)
			}
		}
		for _, ms := range r.leaves {
			if ms <= 4000 {
				fmt.Fprintf(&b, `<line class="leave" x1="%g" y1="%g" x2="%g" y2="%g"/>`, x(ms), y+5, x(ms), y+13)
			}
		}
		all := passed[0] + passed[1] + passed[2] + passed[3]
		fmt.Fprintf(&b, "\n"+`<text x="%d" y="%g">%d</text>`+"\n", width-70, y+4, all)
		fmt.Fprintf(&text, "| %s | %d | %d | %d | %d | %d | %d |\n", r.name, edge, passed[0], passed[1], passed[2], passed[3], all)
	}
	y := bottom + 46
	fmt.Fprintf(&b, `<circle class="in" cx="%d" cy="%d" r="3.6"/><text class="small" x="%d" y="%d">passed</text>`, left+4, y-4, left+14, y)
	fmt.Fprintf(&b, `<path class="out" d="M%d %dl6 6m0 -6l-6 6"/><text class="small" x="%d" y="%d">refused</text>`, left+90, y-7, left+102, y)
	fmt.Fprintf(&b, `<line class="leave" x1="%d" y1="%d" x2="%d" y2="%d"/><text class="small" x="%d" y="%d">leaves the queue</text>`, left+180, y-8, left+180, y, left+188, y)
	fmt.Fprintf(&b, `<line class="edge" x1="%d" y1="%d" x2="%d" y2="%d"/><text class="small" x="%d" y="%d">edge of a fixed window</text>`+"\n</svg>\n", left+310, y-12, left+310, y+2, left+318, y)
	held(t, docsDrawing, readDocs(t, docsDrawing), b.String())
	writeBlock(t, "drawing", text.String())
}
