package algorithms

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func mustKeyed(t testing.TB, rules string) *Keyed {
	t.Helper()
	parsed, err := ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeyed(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyedNamesTheLongestWait(t *testing.T) {
	cases := []struct {
		name, rules string
		spend, ask  int64
		rule        int
		retry       time.Duration
	}{
		{"the later rule waits longer", "token-bucket:10/s,burst=1;token-bucket:1/s,burst=1", 1, 1, 1, time.Second},
		{"the earlier rule waits longer", "token-bucket:1/s,burst=1;token-bucket:10/s,burst=1", 1, 1, 0, time.Second},
		{"one rule refuses", "token-bucket:10/s,burst=10;token-bucket:1/s,burst=1", 1, 1, 1, time.Second},
		{"never is the longest, first", "token-bucket:10/s,burst=1;token-bucket:1/h,burst=5", 1, 5, 0, Never},
		{"never is the longest, last", "token-bucket:1/h,burst=5;token-bucket:10/s,burst=1", 1, 5, 1, Never},
		{"the cost is over every capacity", "token-bucket:10/s,burst=1;token-bucket:1/h,burst=1", 1, 2, 0, Never},
		{"fewer than no tokens", "token-bucket:10/s;token-bucket:1/h", 0, -1, 0, Never},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := mustKeyed(t, c.rules)
			if _, d := k.Take("acme", 0, c.spend); !d.Allowed {
				t.Fatalf("full buckets refused: %+v", d)
			}
			lookRule, look := k.Look("acme", 0, c.ask)
			rule, d := k.Take("acme", 0, c.ask)
			if d.Allowed || rule != c.rule || d.RetryAfter != c.retry {
				t.Errorf("rule %d, %+v; want rule %d, retry after %s", rule, d, c.rule, c.retry)
			}
			if lookRule != rule || look != d {
				t.Errorf("Look says rule %d, %+v, Take rule %d, %+v", lookRule, look, rule, d)
			}
		})
	}
}

func TestKeyedTakesFromAllOrNone(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/h,burst=100;token-bucket:1/s,burst=1")
	now := int64(0)
	admitted := 0
	// Asked ten times a second: the nine refusals a second by the second rule must
	// not drain the first.
	for range 900 {
		if _, d := k.Take("acme", now, 1); d.Allowed {
			admitted++
		}
		now += int64(100 * time.Millisecond)
	}
	if admitted != 90 {
		t.Errorf("%d admitted in 90 s at 1/s, want 90", admitted)
	}
	if rule, d := k.Take("acme", now, 10); d.Allowed || rule != 1 || d.RetryAfter != Never {
		t.Errorf("10 at once: rule %d, %+v; want rule 1 to refuse for ever", rule, d)
	}
	k = mustKeyed(t, "token-bucket:1/h,burst=100;token-bucket:1/s,burst=1")
	if _, d := k.Take("acme", 0, 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v; want the least that any rule has left, 0", d)
	}
	k = mustKeyed(t, "token-bucket:1/h,burst=7;token-bucket:1/s,burst=50")
	if _, d := k.Look("acme", 0, 2); !d.Allowed || d.Remaining != 5 {
		t.Errorf("%+v; want the least that any rule has left, 5", d)
	}
}

func TestKeyedKeysAreApart(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/h,burst=1")
	key := []byte("acme")
	if _, d := k.Take(string(key), 0, 1); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	for _, other := range []string{"Acme", "acme2", "", "acm"} {
		if _, d := k.Take(other, 0, 1); !d.Allowed {
			t.Errorf("%q pays for acme: %+v", other, d)
		}
	}
	if _, d := k.Take("acme", 0, 1); d.Allowed {
		t.Error("acme has a second token")
	}
}

func TestKeyedWithoutRulesAdmitsAll(t *testing.T) {
	k := mustKeyed(t, "unlimited")
	for range 1000 {
		if _, d := k.Take("acme", 0, 1_000_000); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if k.Len() != 0 {
		t.Errorf("%d keys held for no rule", k.Len())
	}
}

func TestNewKeyedRefusesAWrongRule(t *testing.T) {
	if _, err := NewKeyed(Rules{{TokenBucketName, Rate{1, time.Second}, 1}, {TokenBucketName, UnlimitedRate(), 1}}); err == nil {
		t.Error("an unlimited bucket was accepted")
	}
}

// Against the same rules on a plain map that forgets nothing.
func TestKeyedSweepingChangesNoAnswer(t *testing.T) {
	rules, err := ParseRules("token-bucket:5/s,burst=10;token-bucket:1/m,burst=4")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		k, err := NewKeyed(rules)
		if err != nil {
			t.Fatal(err)
		}
		unswept := map[string][2]Bucket{}
		random := rand.New(rand.NewPCG(seed, 1))
		now := int64(0)
		longest := 0
		for i := range 15_000 {
			// New keys come all the time, old ones come back now and then.
			key := fmt.Sprint("tenant-", max(0, i-int(random.ExpFloat64()*float64(random.IntN(3000)))))
			now += int64(random.ExpFloat64() * float64(50*time.Millisecond))
			n := int64(random.IntN(4))

			buckets := unswept[key]
			want := true
			for r := range rules {
				d, _ := k.limits[r].Look(buckets[r], now, n)
				want = want && d.Allowed
			}
			if want {
				for r := range rules {
					k.limits[r].Take(&buckets[r], now, n)
				}
				unswept[key] = buckets
			}
			if _, d := k.Take(key, now, n); d.Allowed != want {
				t.Fatalf("seed %d, step %d: %s gets %+v, without sweeping allowed is %v", seed, i, key, d, want)
			}
			longest = max(longest, k.Len())
		}
		if longest >= len(unswept)/2 {
			t.Errorf("%d keys held at once of %d: nothing was swept", longest, len(unswept))
		}
	}
}

func TestKeyedHoldsNoMoreThanItMust(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1000/s,burst=1000")
	spent := mustKeyed(t, "token-bucket:1/h,burst=1")
	spent.Take("acme", 0, 1)
	longest := 0
	for i := range 60_000 {
		now := int64(i) * int64(100*time.Microsecond)
		key := fmt.Sprint("other-", i)
		k.Take(key, now, 1) // full again 1 ms later: at most 11 matter at once
		longest = max(longest, k.Len())
		if i%10 == 0 {
			spent.Take(key, now, 1)
		}
	}
	if longest > 2*firstSweep {
		t.Errorf("%d keys held, of which 11 matter at once", longest)
	}
	// 6 s of other keys have not refilled the one that was spent.
	if _, d := spent.Take("acme", int64(6*time.Second), 1); d.Allowed || d.RetryAfter != time.Hour-6*time.Second {
		t.Errorf("%+v; want the rest of the hour", d)
	}
}

func TestKeyedAdmitsTheBurstOnceUnderContention(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/h,burst=500;token-bucket:1/h,burst=400")
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				if _, d := k.Take("acme", 0, 1); d.Allowed {
					admitted.Add(1)
				}
				k.Take(fmt.Sprint(g, "-", i), 0, 1)
				k.Look("acme", 0, 1)
				k.Len()
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 400 {
		t.Errorf("%d admitted of one burst of 400", admitted.Load())
	}
	if want := 1 + 8*300; k.Len() != want {
		t.Errorf("%d keys, want %d", k.Len(), want)
	}
}
