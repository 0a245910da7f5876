package trial

import (
	"fmt"
	"slices"
	"time"

	"github.com/flowgate/flowgate/loadtest/invariants"
)

// leaks compares, in the longest life of a gateway, what it held at the end of the first
// fifth with what it held in the last one; medians, since faults make peaks.
func leaks(health []Sample) invariants.Check {
	c := invariants.Check{Promise: "memory, goroutines, files and keys stay flat"}
	lives := map[int][]Sample{}
	var longest []Sample
	for _, s := range health {
		if s.RSS == 0 {
			continue
		}
		lives[s.Process] = append(lives[s.Process], s)
		if len(lives[s.Process]) > len(longest) {
			longest = lives[s.Process]
		}
	}
	if len(longest) < 20 {
		c.Broken = append(c.Broken, fmt.Sprintf("only %d looks at one gateway, which show nothing", len(longest)))
		return c
	}
	fifth := len(longest) / 5
	early, late := longest[fifth:2*fifth], longest[len(longest)-fifth:]
	c.Found = fmt.Sprintf("over %s:", (longest[len(longest)-1].At - longest[0].At).Round(time.Second))
	for _, q := range []struct {
		name         string
		of           func(Sample) float64
		factor, more float64
	}{
		{"RSS in MiB", func(s Sample) float64 { return s.RSS / (1 << 20) }, 1.2, 8},
		{"goroutines", func(s Sample) float64 { return float64(s.Goroutines) }, 1, 10},
		{"files", func(s Sample) float64 { return float64(s.Files) }, 1, 10},
		{"keys", func(s Sample) float64 { return float64(s.Keys) }, 1, 20},
	} {
		was, is := median(early, q.of), median(late, q.of)
		c.Found += fmt.Sprintf(" %s %.0f, then %.0f;", q.name, was, is)
		if is > was*q.factor+q.more {
			c.Broken = append(c.Broken, fmt.Sprintf("%s: %.0f in the second fifth, %.0f in the last, at most %.0f", q.name, was, is, was*q.factor+q.more))
		}
	}
	return c
}

func median(samples []Sample, of func(Sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
