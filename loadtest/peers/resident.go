package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// watchResident samples what all processes that this one started hold in memory, its
// own left out, until ctx ends; most is then in MiB, 0 where there is no /proc.
func watchResident(ctx context.Context) (most func() float64) {
	peak := make(chan float64, 1)
	go func() {
		top := 0.0
		for {
			top = max(top, resident(os.Getpid()))
			select {
			case <-ctx.Done():
				peak <- top
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() float64 { return <-peak }
}

// resident sums over the descendants of a process.
func resident(of int) (mib float64) {
	paths, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0
	}
	children, held := map[int][]int{}, map[int]float64{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var kib float64
		for lines := bufio.NewScanner(f); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimSpace(value)
			switch name {
			case "Pid":
				pid, _ = strconv.Atoi(value)
			case "PPid":
				parent, _ = strconv.Atoi(value)
			case "VmRSS":
				kib, _ = strconv.ParseFloat(strings.TrimSuffix(value, " kB"), 64)
			}
		}
		_ = f.Close()
		children[parent] = append(children[parent], pid)
		held[pid] = kib
	}
	for next := children[of]; len(next) > 0; {
		one := next[0]
		mib += held[one] / 1024
		next = append(next[1:], children[one]...)
	}
	return mib
}
