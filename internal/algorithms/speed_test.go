package algorithms

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

func BenchmarkLimiterTake(b *testing.B) {
	for _, rule := range []string{
		"token-bucket:1000000/s,burst=1000", "token-bucket:999983/s,burst=1000", "fixed-window:1000000000/s", "sliding-window:1000/s",
		"sliding-window-log:1000/s", "sliding-window-counter:1000000000/s",
	} {
		b.Run(rule, func(b *testing.B) {
			rules, err := ParseRules(rule)
			if err != nil {
				b.Fatal(err)
			}
			l, err := New(rules[0])
			if err != nil {
				b.Fatal(err)
			}
			var now int64
			b.ReportAllocs()
			for b.Loop() {
				now += 1001
				_, _ = l.Take(now, 1)
			}
		})
	}
}

func BenchmarkKeyedTake(b *testing.B) {
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			k := mustKeyed(b, "token-bucket:1/h,burst=1000000", 2*keys)
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprintf("tenant-%012d", i)
				k.Take(names[i], 0, 1)
			}
			order := make([]int32, 1<<20)
			for i := range order {
				order[i] = int32(rand.IntN(keys))
			}
			base := time.Now()
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := rand.IntN(len(order))
				for pb.Next() {
					i = (i + 1) & (len(order) - 1)
					k.Take(names[order[i]], int64(time.Since(base)), 1)
				}
			})
		})
	}
}

// mustKeyed is a store with rules for every key.
func mustKeyed(t testing.TB, rules string, keys int) *Keyed {
	t.Helper()
	parsed, err := ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeyed(Policy{Default: parsed}, keys)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The default rule is changed with a million keys held, while somebody decides all the
// time: longest is what one decision was held up by.
func BenchmarkChangeAMillionKeys(b *testing.B) {
	for _, rules := range [][2]string{
		{"token-bucket:1/h,burst=1000", "token-bucket:2/h,burst=1000"}, {"token-bucket:1/h,burst=1000", "fixed-window:1000/d"},
		{"sliding-window:1000/d", "sliding-window-counter:1000/d"}, {"sliding-window-log:1000/d", "sliding-window-log:1001/d"},
	} {
		b.Run(rules[0]+" and "+rules[1], func(b *testing.B) {
			const keys = 1_000_000
			k := mustKeyed(b, rules[0], keys)
			for i := range keys {
				k.Take(fmt.Sprintf("tenant-%012d", i), 1, 1)
			}
			var stop atomic.Bool
			var longest time.Duration
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; !stop.Load(); i++ {
					start := time.Now()
					k.Peek(fmt.Sprintf("tenant-%012d", i*7919%keys), 1, 1)
					longest = max(longest, time.Since(start))
				}
			}()
			next := 1
			b.ResetTimer()
			for b.Loop() {
				parsed, err := ParseRules(rules[next])
				if err != nil {
					b.Fatal(err)
				}
				if err := k.Change(Policy{Default: parsed}, 1); err != nil {
					b.Fatal(err)
				}
				next = 1 - next
			}
			stop.Store(true)
			<-done
			b.ReportMetric(float64(longest)/1e6, "longest-ms")
			if k.Len() != keys {
				b.Errorf("%d keys left", k.Len())
			}
		})
	}
}
