package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const tenants = 1000

// measureAdmission is a request under several rules of its tenant, all of which
// must admit, or nothing is taken from any. Of the peers only x/time/rate can give
// back.
func measureAdmission(p pace) (report, error) {
	r := report{Table: table{Name: fmt.Sprintf("several rules, %d tenants", tenants), Unit: "ns a request, of all processors together"}}
	inserted := names(tenants)
	goroutines := runtime.GOMAXPROCS(0)
	requests := drawRequests(p.requests, goroutines, tenants, false)
	for _, rules := range []int{1, 2, 4} {
		s, err := newStore(lasting.joined(rules), 2*tenants)
		if err != nil {
			return r, err
		}
		deciders := map[string]keyDecider{ours: s.decide, "x/time/rate": reservations(lasting, rules)}
		var contestants []contestant
		for _, name := range []string{ours, "x/time/rate"} {
			deciders[name](inserted)
			contestants = append(contestants, walk(name, deciders[name], requests))
		}
		figures, err := p.interleaved(contestants, goroutines, true)
		if err != nil {
			return r, err
		}
		column, allocations := fmt.Sprintf("%d rules", rules), fmt.Sprintf("allocations, %d", rules)
		r.Table.Columns = append(r.Table.Columns, column, allocations)
		for i, f := range figures {
			row := r.Table.row(contestants[i].name)
			row.Values[column], row.Values[allocations] = f.ns, f.allocations
		}
		r.Floors = append(r.Floors, r.Table.most(ours, allocations, noAllocations))
	}
	return r, nil
}

// reservations are so many x/time limiters a key; a request reserves from all and gives
// back if one would make it wait.
func reservations(q quota, rules int) keyDecider {
	var m sync.Map
	return func(keys []string) (admitted int) {
		var held [8]*rate.Reservation
		for _, key := range keys {
			limits, ok := m.Load(key)
			if !ok {
				made := make([]*rate.Limiter, rules)
				for k := range made {
					made[k] = newXTime(q)
				}
				limits, _ = m.LoadOrStore(key, made)
			}
			now := time.Now()
			all := true
			for k, l := range limits.([]*rate.Limiter) {
				held[k] = l.ReserveN(now, 1)
				all = all && held[k].DelayFrom(now) == 0
			}
			if all {
				admitted++
				continue
			}
			for k := range rules {
				held[k].CancelAt(now)
			}
		}
		return admitted
	}
}
