package app

import "time"

// clock gives nanoseconds that never step back within a process, anchored to the
// time of day at its start so that they mean something to the next process.
type clock struct {
	start time.Time
	base  int64
}

func newClock() clock {
	now := time.Now()
	return clock{start: now, base: now.UnixNano()}
}

func (c clock) now() int64 { return c.base + int64(time.Since(c.start)) }
