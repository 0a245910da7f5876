package algorithms

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Spans counts durations in steps of half an octave, from 10 µs to 20 s. It takes
// constant room, adding costs an atomic addition, and what was counted in between is the
// difference of two readings. Safe for concurrent use.
type Spans struct{ counts [SpanSteps]atomic.Uint64 }

const (
	// SpanSteps is how many steps there are; the last holds all that is longer.
	SpanSteps = 44
	firstSpan = 10 * time.Microsecond
)

// SpanCounts is a reading.
type SpanCounts [SpanSteps]uint64

// spanBounds are the longest durations of all steps but the last.
var spanBounds = func() (b [SpanSteps - 1]time.Duration) {
	for i := range b {
		b[i] = firstSpan << (i / 2)
		if i%2 == 1 {
			b[i] = time.Duration(math.Round(float64(b[i]) * math.Sqrt2))
		}
	}
	return b
}()

// SpanBounds are the longest durations of all steps but the last, ascending.
func SpanBounds() []time.Duration { return append([]time.Duration(nil), spanBounds[:]...) }

// spanStep is the step that a duration lies in.
func spanStep(d time.Duration) int {
	if d <= firstSpan {
		return 0
	}
	octave := bits.Len64(uint64((d - 1) / firstSpan)) // 2^(octave-1) to 2^octave of the first
	i := 2*octave - 1
	if i >= SpanSteps {
		return SpanSteps - 1
	}
	if d > spanBounds[min(i, SpanSteps-2)] {
		i++
	}
	return min(i, SpanSteps-1)
}

// Add counts n durations.
func (s *Spans) Add(d time.Duration, n uint64) { s.counts[spanStep(d)].Add(n) }

// Read is what was counted so far.
func (s *Spans) Read() (c SpanCounts) {
	for i := range s.counts {
		c[i] = s.counts[i].Load()
	}
	return c
}

// Since is what was counted after an earlier reading.
func (c SpanCounts) Since(before SpanCounts) SpanCounts {
	for i := range c {
		c[i] -= before[i]
	}
	return c
}

// Total is how many durations were counted.
func (c SpanCounts) Total() (n uint64) {
	for _, k := range c {
		n += k
	}
	return n
}

// Quantile is the duration that a part q of all are not longer than, interpolated within
// its step, so that it is off by a factor of 1.41 at most; of what is longer than the last
// bound, that bound. ok is false if nothing was counted.
func (c SpanCounts) Quantile(q float64) (d time.Duration, ok bool) {
	total := c.Total()
	if total == 0 {
		return 0, false
	}
	rank, below := q*float64(total), uint64(0)
	for i, n := range c {
		if n == 0 || float64(below+n) < rank {
			below += n
			continue
		}
		if i == SpanSteps-1 {
			break
		}
		low := time.Duration(0)
		if i > 0 {
			low = spanBounds[i-1]
		}
		part := max(0, rank-float64(below)) / float64(n)
		return low + time.Duration(part*float64(spanBounds[i]-low)), true
	}
	return spanBounds[SpanSteps-2], true
}
