package prediction

import (
	"math"
	"testing"
)

func outcome(change func(*Outcome)) Outcome {
	o := Outcome{Depths: []Depth{{0, 0}, {100, 100}, {400, 400}, {50, 50}}, Peak: 400, Mean: 150, Refused: map[string]uint64{"backlog": 200, "rate_limited": 100}, Delivered: 1000, Drain: 2}
	change(&o)
	return o
}

// What is off by more than 5 % and three messages is missed, and only what is held against it.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Outcome)
		missed string // the first row; empty: none is
	}{
		"the same":                      {func(*Outcome) {}, ""},
		"within":                        {func(o *Outcome) { o.Peak, o.Mean, o.Refused["backlog"], o.Depths[2] = 420, 145, 215, Depth{420, 420} }, ""},
		"few":                           {func(o *Outcome) { o.Depths[0] = Depth{3, 3} }, ""},
		"the largest":                   {func(o *Outcome) { o.Peak = 425 }, "depth, largest"},
		"the mean":                      {func(o *Outcome) { o.Mean = 170 }, "depth, mean"},
		"one second":                    {func(o *Outcome) { o.Depths[3] = Depth{80, 80} }, "depth, worst second (4)"},
		"a second more":                 {func(o *Outcome) { o.Depths = append(o.Depths, Depth{30, 30}) }, "depth, worst second (5)"},
		"refusals":                      {func(o *Outcome) { o.Refused["backlog"] = 219 }, "refused"},
		"another reason, the same sum":  {func(o *Outcome) { o.Refused["backlog"], o.Refused["deadline"] = 150, 50 }, ""},
		"none was refused":              {func(o *Outcome) { o.Refused = nil }, "refused"},
		"the drain alone, and for good": {func(o *Outcome) { o.Drain = math.Inf(1) }, ""},
	} {
		same := outcome(func(*Outcome) {})
		rows := Compare(outcome(c.change), same, 500, Within)
		got := ""
		for _, r := range rows {
			if r.Missed && got == "" {
				got = r.What
			}
		}
		if got != c.missed || Missed(rows) != (c.missed != "") {
			t.Errorf("%s: %q is missed, want %q: %+v", name, got, c.missed, rows)
		}
	}
}
