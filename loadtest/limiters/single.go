package main

import (
	"fmt"
	"runtime"
)

// measureSingle is one limiter that everyone shares, with the clock read.
func measureSingle(p pace) (report, error) {
	r := report{Table: table{Name: "single limiter with the clock read", Unit: "ns a decision"}}
	for _, c := range []struct {
		column     string
		quota      quota
		goroutines int
		admit      bool
	}{
		{"allow, 1 goroutine", plenty, 1, true},
		{"allow, contended", plenty, runtime.GOMAXPROCS(0), true},
		{"deny, 1 goroutine", scarce, 1, false},
		{"deny, contended", scarce, runtime.GOMAXPROCS(0), false},
	} {
		var contestants []contestant
		for _, s := range singles {
			if !c.admit && s.admits == 0 {
				continue
			}
			decide, err := s.make(c.quota)
			if err != nil {
				return r, fmt.Errorf("%s: %w", s.name, err)
			}
			decide(1)
			contestants = append(contestants, contestant{s.name, func(_, n int) int { return decide(n) }})
		}
		figures, err := p.interleaved(contestants, c.goroutines, c.admit)
		if err != nil {
			return r, err
		}
		r.Table.Columns = append(r.Table.Columns, c.column)
		for i, f := range figures {
			row := r.Table.row(contestants[i].name)
			row.Values[c.column] = f.ns
			row.Values["allocations"] = max(row.Values["allocations"], f.allocations)
		}
		r.Floors = append(r.Floors, r.Table.times(c.column, 1))
	}
	r.Table.Columns = append(r.Table.Columns, "allocations")
	r.Floors = append(r.Floors, r.Table.most(ours, "allocations", noAllocations))
	return r, nil
}
