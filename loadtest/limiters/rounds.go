package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// pace is how thoroughly to measure.
type pace struct {
	rounds int
	slice  time.Duration // of one contestant in one round
	keys   []int
	// requests are drawn for a goroutine before it begins again.
	requests int
}

// contestant decides n times on goroutine g and says how often it admitted.
type contestant struct {
	name   string
	decide func(g, n int) (admitted int)
}

// figure is the median of a contestant's slices: wall time over the decisions of
// all goroutines, and allocations a decision.
type figure struct{ ns, allocations float64 }

// interleaved measures every contestant once a round, so that what else the
// machine does hits all alike. They must all admit, or all refuse.
func (p pace) interleaved(contestants []contestant, goroutines int, admit bool) ([]figure, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var garbage garbage
	garbage.collect()
	taken := make([]slice, len(contestants))
	sizes := make([]int, len(contestants))
	for i, c := range contestants {
		sizes[i] = p.size(c, goroutines)
	}
	for round := range p.rounds {
		for k := range contestants {
			garbage.collectIfMuch()
			i := (round + k) % len(contestants)
			c := contestants[i]
			// What it holds went out of the caches while the others were measured.
			c.measure(goroutines, (sizes[i]+1)/2)
			f, admitted := c.measure(goroutines, sizes[i])
			// A peer that gives up under contention, as throttled does after ten
			// tries, refuses a few in a hundred.
			share := float64(admitted) / float64(sizes[i]*goroutines)
			if admit && share < 0.9 || !admit && admitted > 0 {
				return nil, fmt.Errorf("%s admitted %d of %d", c.name, admitted, sizes[i]*goroutines)
			}
			taken[i] = append(taken[i], f)
		}
	}
	figures := make([]figure, len(contestants))
	for i, s := range taken {
		figures[i] = s.median()
	}
	return figures, nil
}

// size is how many decisions a goroutine makes in a slice's time.
func (p pace) size(c contestant, goroutines int) int {
	for n := 64; ; n *= 4 {
		f, _ := c.measure(goroutines, n)
		took := f.ns * float64(n*goroutines)
		if took >= float64(p.slice)/4 {
			return max(1, int(float64(n)*float64(p.slice)/took))
		}
	}
}

// garbage is what was allocated since the last collection; none runs by itself.
type garbage struct{ since uint64 }

const muchGarbage = 256 << 20

func (g *garbage) collect() {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	g.since = m.TotalAlloc
}

func (g *garbage) collectIfMuch() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.TotalAlloc-g.since > muchGarbage {
		g.collect()
	}
}

func (c contestant) measure(goroutines, n int) (figure, int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	admitted := make([]int, goroutines)
	var took time.Duration
	if goroutines == 1 {
		start := time.Now()
		admitted[0] = c.decide(0, n)
		took = time.Since(start)
	} else {
		var ready, done sync.WaitGroup
		begin := make(chan struct{})
		ready.Add(goroutines)
		for g := range goroutines {
			done.Go(func() {
				ready.Done()
				<-begin
				admitted[g] = c.decide(g, n)
			})
		}
		ready.Wait()
		start := time.Now()
		close(begin)
		done.Wait()
		took = time.Since(start)
	}
	runtime.ReadMemStats(&after)
	total := 0
	for _, a := range admitted {
		total += a
	}
	decisions := float64(n * goroutines)
	return figure{float64(took) / decisions, float64(after.Mallocs-before.Mallocs) / decisions}, total
}

type slice []figure

func (s slice) median() figure {
	ns := make([]float64, len(s))
	allocations := make([]float64, len(s))
	for i, f := range s {
		ns[i], allocations[i] = f.ns, f.allocations
	}
	return figure{median(ns), median(allocations)}
}

func median(values []float64) float64 {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
