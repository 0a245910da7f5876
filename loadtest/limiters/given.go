package main

import (
	"fmt"
	"slices"
	"time"
)

// mostGiven is the bound on the time of the algorithms that need a word or two.
const mostGiven = 15 // ns

var bounded = map[string]bool{"token-bucket": true, "gcra": true, "leaky-bucket": true}

// measureGiven is each of our algorithms with the time given, so that no clock is
// in it.
func measureGiven(p pace) (report, error) {
	r := report{Table: table{Name: "single limiter with the time given", Unit: "ns a decision", Columns: []string{"allow", "deny", "allocations"}}}
	for _, admit := range []bool{true, false} {
		column := "deny"
		if admit {
			column = "allow"
		}
		var contestants []contestant
		for _, algorithm := range algorithmNames {
			r.Table.row(algorithm)
			decide, err := steady(algorithm, admit)
			if err != nil {
				// The row stays empty, which misses its bounds.
				if note := err.Error(); !slices.Contains(r.Notes, note) {
					r.Notes = append(r.Notes, note)
				}
				continue
			}
			contestants = append(contestants, contestant{algorithm, decide})
		}
		figures, err := p.interleaved(contestants, 1, admit)
		if err != nil {
			return r, err
		}
		for i, f := range figures {
			row := r.Table.row(contestants[i].name)
			row.Values[column] = f.ns
			row.Values["allocations"] = max(row.Values["allocations"], f.allocations)
		}
	}
	for _, algorithm := range algorithmNames {
		if bounded[algorithm] {
			r.Floors = append(r.Floors, r.Table.most(algorithm, "allow", mostGiven), r.Table.most(algorithm, "deny", mostGiven))
		}
		r.Floors = append(r.Floors, r.Table.most(algorithm, "allocations", noAllocations))
	}
	return r, nil
}

// steady uses a limiter of 1,000 a second so that it stays neither full nor empty
// and admits all, or stays used up and refuses all.
func steady(algorithm string, admit bool) (func(g, n int) int, error) {
	l, err := newLimiter(algorithm + ":1000/s")
	if err != nil {
		return nil, err
	}
	now := int64(time.Hour)
	spend, step := int64(1000), int64(0)
	if admit {
		// One comes in each step and one leaves; a window, half full, moves on.
		spend, step = 500, int64(time.Millisecond)
		if !bounded[algorithm] {
			step = int64(2 * time.Millisecond)
		}
	}
	d, err := l.Take(now, spend)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", algorithm, err)
	}
	if !d.Allowed {
		return nil, fmt.Errorf("%s refuses its first %d", algorithm, spend)
	}
	if !bounded[algorithm] {
		now += step * 1000 // past the first window
	}
	return func(_, n int) (admitted int) {
		for range n {
			now += step
			if d, _ := l.Take(now, 1); d.Allowed {
				admitted++
			}
		}
		return admitted
	}, nil
}
