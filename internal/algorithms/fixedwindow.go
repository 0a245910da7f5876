package algorithms

import "math"

// fixedWindow counts what passed in the present window; windows lie on multiples of
// the period. Around an edge twice the limit can pass within an instant: that is
// what it is, and what the others are for. Its state is the window's end and the
// count.
//
// A clock that steps back stays in the window that it has seen.
type fixedWindow struct {
	limit  uint64
	period int64
}

func (f *fixedWindow) words() int      { return 2 }
func (f *fixedWindow) forget([]uint64) {}

// window brings the state up to now.
func (f *fixedWindow) window(s []uint64, now int64) (end int64, count uint64) {
	if end = decode(s[0]); s[0] != 0 && now < end {
		return end, s[1]
	}
	return windowEnd(now, f.period), 0
}

// windowEnd is the first multiple of the period after now.
func windowEnd(now, period int64) int64 {
	// A remainder, not a product: it cannot overflow.
	into := now % period
	if into < 0 {
		into += period
	}
	return later(now, period-into)
}

func (f *fixedWindow) decide(s []uint64, now, n int64, take bool) Decision {
	end, count := f.window(s, now)
	want := uint64(n)
	d := Decision{Allowed: want == 0 || count < f.limit && want <= f.limit-count}
	if d.Allowed {
		count += want
		if take && want > 0 {
			s[0], s[1] = encode(end), count
		}
	} else if want > f.limit {
		d.RetryAfter = Never
	} else {
		d.RetryAfter = until(end, now)
	}
	if count < f.limit {
		d.Remaining = f.limit - count
	}
	if count > 0 {
		d.Reset = until(end, now)
	}
	return d
}

func (f *fixedWindow) idle(s []uint64, now int64) bool {
	_, count := f.window(s, now)
	return count == 0
}

func (f *fixedWindow) used(s []uint64, now int64) (whole, part uint64) {
	_, count := f.window(s, now)
	return count, 0
}

func (f *fixedWindow) occupy(s []uint64, now int64, whole, part uint64) {
	s[0], s[1] = encode(windowEnd(now, f.period)), min(roundUp(whole, part), f.limit)
}

func roundUp(whole, part uint64) uint64 {
	if part > 0 && whole < math.MaxUint64 {
		whole++
	}
	return whole
}
