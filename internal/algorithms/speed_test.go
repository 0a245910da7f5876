package algorithms

import (
	"fmt"
	"testing"
	"time"
)

func TestDecisionsDoNotAllocate(t *testing.T) {
	limit := mustBucket(t, 1_000_000, time.Second, 1000)
	var b Bucket
	k := mustKeyed(t, "token-bucket:1000000/s;token-bucket:1000/s")
	k.Take("acme", 0, 1)
	clock := mustClock(t, Rate{200, time.Second}, 5*time.Millisecond)
	meter := NewMeter(10*time.Second, 10)
	var now int64
	for name, f := range map[string]func(){
		"TokenBucket.Take": func() { _, _ = limit.Take(&b, now, 1) },
		"Keyed, a hit":     func() { k.Look("acme", now, 1); k.Take("acme", now, 1) },
		"Keyed, a refusal": func() { k.Look("acme", now, 5000); k.Take("acme", now, 5000) },
		"DepartureClock":   func() { now += int64(clock.Wait(now)); clock.Depart(now, 1) },
		"Meter":            func() { meter.Add(now, 1); meter.PerSecond(now) },
	} {
		if n := testing.AllocsPerRun(1000, func() { now += 1000; f() }); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}

func BenchmarkTokenBucketTake(b *testing.B) {
	limit := mustBucket(b, 999_983, time.Second, 1000)
	var bucket Bucket
	var now int64
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		_, _ = limit.Take(&bucket, now, 1)
	}
}

func BenchmarkKeyedLookAndTake(b *testing.B) {
	for _, keys := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			k := mustKeyed(b, "token-bucket:1/h,burst=4611686018427387903")
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("tenant-", i)
				k.Take(names[i], 0, 1)
			}
			var now int64
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				now += 1000
				i = (i + 7919) % keys
				k.Look(names[i], now, 1)
				k.Take(names[i], now, 1)
			}
		})
	}
}

func BenchmarkDepartureClockStep(b *testing.B) {
	clock := mustClock(b, Rate{999_983, time.Second}, 5*time.Millisecond)
	var now int64
	b.ReportAllocs()
	for b.Loop() {
		now += int64(clock.Wait(now))
		clock.Depart(now, 1)
	}
}
