package main

import (
	"testing"
	"time"
)

func TestEvenness(t *testing.T) {
	start := time.Now()
	at := func(ms ...float64) (calls []time.Time) {
		for _, m := range ms {
			calls = append(calls, start.Add(time.Duration(m*float64(time.Millisecond))))
		}
		return calls
	}
	for name, test := range map[string]struct {
		calls []time.Time
		want  even
	}{
		"even":      {at(0, 10, 20, 30, 40), even{held: 100, crowd: 2}},
		"one late":  {at(0, 10, 25, 30, 40), even{held: 100, most: 5 * time.Millisecond, p99: 5 * time.Millisecond, crowd: 2}},
		"too slow":  {at(0, 20, 40), even{held: 50, p50: 10 * time.Millisecond, p99: 10 * time.Millisecond, most: 10 * time.Millisecond, crowd: 1}},
		"a burst":   {at(0, 1, 2, 3, 4, 50), even{held: 100, most: 36 * time.Millisecond, p99: 36 * time.Millisecond, crowd: 5}},
		"no number": {at(0, 10), even{}},
	} {
		if got := evenness(test.calls, 100); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
