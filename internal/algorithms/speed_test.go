package algorithms

import (
	"fmt"
	"math/rand/v2"
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
