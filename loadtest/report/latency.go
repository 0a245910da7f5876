package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a distribution, in milliseconds.
type Latency struct {
	Count    int64   `json:"count"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	Max      float64 `json:"max_ms"`
	Spectrum []Point `json:"spectrum"`
}

// Point is a percentile, 0 to 100, and its latency in milliseconds.
type Point struct {
	Percentile float64 `json:"percentile"`
	Latency    float64 `json:"ms"`
}

type latencies struct{ h *hdrhistogram.Histogram }

// newLatencies holds microseconds up to a day, to three digits.
func newLatencies() latencies {
	return latencies{hdrhistogram.New(1, int64(24*time.Hour/time.Microsecond), 3)}
}

func (l latencies) add(ns int64) {
	// What is out of range would be an error, and there is none.
	_ = l.h.RecordValue(max(1, min(ns/1000, int64(24*time.Hour/time.Microsecond))))
}

func (l latencies) read() Latency {
	if l.h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(percentile float64) float64 { return float64(l.h.ValueAtPercentile(percentile)) / 1000 }
	out := Latency{Count: l.h.TotalCount(), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(l.h.Max()) / 1000}
	for _, p := range []float64{0, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 92.5, 95, 97, 98, 99, 99.3, 99.5, 99.7, 99.8, 99.9, 99.95, 99.97, 99.99} {
		if float64(out.Count)*(1-p/100) >= 1 {
			out.Spectrum = append(out.Spectrum, Point{p, at(p)})
		}
	}
	return out
}
