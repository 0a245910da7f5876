package main

import (
	"fmt"
	"runtime"
)

// leastTimes is how many times as fast as the best peer ours should be, by the
// number of keys.
var leastTimes = map[int]float64{100_000: 1.5, 1_000_000: 1.8}

// measureKeyed is limiters by key with the clock read, every key there already.
func measureKeyed(p pace) (report, error) {
	p.slice *= 4 // to get at a good part of the keys
	r := report{Table: table{Name: "limiters by key", Unit: "ns a decision, of all processors together"}}
	for _, keys := range p.keys {
		if err := r.measureKeys(p, keys); err != nil {
			return r, fmt.Errorf("%d keys: %w", keys, err)
		}
	}
	r.Table.Columns = append(r.Table.Columns, "allocations")
	r.Floors = append(r.Floors, r.Table.most(ours, "allocations", noAllocations))
	return r, nil
}

func (r *report) measureKeys(p pace, keys int) error {
	inserted := names(keys)
	deciders := make([]keyDecider, len(stores))
	for i, s := range stores {
		decide, stop, err := s.make(lasting, keys)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer stop()
		decide(inserted)
		deciders[i] = decide
	}
	goroutines := runtime.GOMAXPROCS(0)
	for _, zipf := range []bool{false, true} {
		column := fmt.Sprintf("%d uniform", keys)
		if zipf {
			column = fmt.Sprintf("%d zipf", keys)
		}
		requests := drawRequests(p.requests, goroutines, keys, zipf)
		contestants := make([]contestant, len(stores))
		for i, s := range stores {
			contestants[i] = walk(s.name, deciders[i], requests)
		}
		figures, err := p.interleaved(contestants, goroutines, true)
		if err != nil {
			return err
		}
		r.Table.Columns = append(r.Table.Columns, column)
		for i, f := range figures {
			row := r.Table.row(stores[i].name)
			row.Values[column] = f.ns
			row.Values["allocations"] = max(row.Values["allocations"], f.allocations)
		}
		if least, bounded := leastTimes[keys]; bounded {
			r.Floors = append(r.Floors, r.Table.times(column, least))
		}
	}
	return nil
}

// walk goes on in each goroutine's requests where it left off.
func walk(name string, decide keyDecider, requests [][]string) contestant {
	at := make([]int, len(requests))
	return contestant{name, func(g, n int) (admitted int) {
		for n > 0 {
			part := requests[g][at[g]:]
			part = part[:min(n, len(part))]
			admitted += decide(part)
			n -= len(part)
			at[g] = (at[g] + len(part)) % len(requests[g])
		}
		return admitted
	}}
}
