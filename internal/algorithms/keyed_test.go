package algorithms

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
		{"different algorithms", "token-bucket:10/s,burst=1;sliding-window-log:1/m;fixed-window:1/s", 1, 1, 1, time.Minute},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := mustKeyed(t, c.rules, 10)
			if d, _, _ := k.Take(theKey, 0, c.spend); !d.Allowed {
				t.Fatalf("an unused key refused: %+v", d)
			}
			look, lookRule, _ := k.Peek(theKey, 0, c.ask)
			d, rule, _ := k.Take(theKey, 0, c.ask)
			if want := rulesOf(k, theKey)[c.rule]; d.Allowed || *rule != want || d.RetryAfter != c.retry {
				t.Errorf("%+v by %s; want %s, retry after %s", d, rule, want, c.retry)
			}
			if lookRule != rule || look != d {
				t.Errorf("Peek says %+v by %s, Take %+v by %s", look, lookRule, d, rule)
			}
		})
	}
}

func TestKeyedTakesFromAllOrNone(t *testing.T) {
	for _, long := range []string{"token-bucket:1/h,burst=100", "fixed-window:100/h", "sliding-window-log:100/h", "sliding-window-counter:100/h"} {
		k := mustKeyed(t, long+";token-bucket:1/s,burst=1", 10)
		now, admitted := int64(0), 0
		// Asked ten times a second: the nine refusals a second by the second rule must
		// not drain the first.
		for range 900 {
			if d, _, _ := k.Take(theKey, now, 1); d.Allowed {
				admitted++
			}
			now += int64(100 * time.Millisecond)
		}
		if admitted != 90 {
			t.Errorf("%s: %d admitted in 90 s at 1/s, want 90", long, admitted)
		}
		if d, rule, _ := k.Take(theKey, now, 10); d.Allowed || rule.Burst != 1 || d.RetryAfter != Never {
			t.Errorf("10 at once: %+v by %s; want the second rule to refuse for ever", d, rule)
		}
	}
	k := mustKeyed(t, "token-bucket:1/h,burst=7;token-bucket:1/s,burst=50", 10)
	if d, rule, _ := k.Peek(theKey, 0, 2); !d.Allowed || d.Remaining != 5 || rule.Burst != 7 {
		t.Errorf("%+v by %s; want the least that any rule has left, 5", d, rule)
	}
	var each []string
	k.Take(theKey, 0, 3)
	k.Each(theKey, 0, func(r Rule, d Decision) { each = append(each, fmt.Sprint(r.Burst, " ", d.Remaining)) })
	k.Each("another", 0, func(r Rule, d Decision) { each = append(each, fmt.Sprint(r.Burst, " ", d.Remaining)) })
	if got := strings.Join(each, ", "); got != "7 4, 50 47, 7 7, 50 50" {
		t.Errorf("each rule: %s", got)
	}
}

// Keys of every length that a cell, a length byte or the long ones begin or end at.
func TestNoTwoKeysShare(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/h,burst=1", 10_000)
	var keys []string
	for n := range 300 {
		keys = append(keys, strings.Repeat("a", n), strings.Repeat("a", n)+"b", strings.Repeat("\x00", n+1), strings.Repeat("a", n)+"\x00")
	}
	for _, n := range []int{1000, maxKey - 1, maxKey} {
		keys = append(keys, strings.Repeat("a", n), strings.Repeat("a", n-1)+"b", strings.Repeat("\x00", n))
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	different := map[string]bool{}
	for _, key := range keys {
		if d, _, _ := k.Take(key, 0, 1); d.Allowed == different[key] {
			t.Fatalf("a key of %d bytes: %+v", len(key), d)
		}
		different[key] = true
	}
	for range 2 {
		for _, key := range keys {
			if d, _, _ := k.Take(key, 0, 1); d.Allowed {
				t.Fatalf("a key of %d bytes has a second token", len(key))
			}
		}
		k.Sweep(0, shardCount)
		mustChange(t, k, 0, mustRule(t, "gcra:1/h,burst=1"))
	}
	if k.Len() != len(different) {
		t.Errorf("%d keys, want %d", k.Len(), len(different))
	}
	// Past 65,535 bytes the rest does not count, wherever one looks.
	long := strings.Repeat("a", maxKey) + "and so on"
	if d, _, _ := k.Take(long, 0, 1); d.Allowed {
		t.Error("more than 65,535 bytes are another key")
	}
	k.Each(long, 0, func(_ Rule, d Decision) {
		if d.Remaining != 0 {
			t.Errorf("Each knows nothing of what Take took: %+v", d)
		}
	})
}

// A hash that two keys share, tag and place and all, does not make them one.
func TestKeysOfOneHash(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/h", 10)
	l := &lengths{}
	keys := []string{"a", "b", "", "a\x00", strings.Repeat("a", 100), strings.Repeat("a", 99) + "b"}
	for _, key := range keys {
		l.add(len(key))
	}
	const h = 1<<64 - 1 // the last place: the others begin again at the first
	for _, h := range []uint64{h, 0, 1} {
		table := newTable(k.policy.Load(), l)
		slots := map[string]int{}
		for i, key := range keys {
			if slot, _ := table.find(key, h); slot >= 0 {
				t.Fatalf("%q is found before it is there", key)
			}
			slot, head := table.add([]byte(key), h, i)
			table.unlock(slot, head)
			slots[key] = slot
		}
		for i, key := range keys {
			slot, head := table.find(key, h)
			if slot != slots[key] || int(head>>planShift) != i || string(table.name(slot, nil)) != key {
				t.Errorf("%q: slot %d, head %x; want slot %d, plan %d", key, slot, head, slots[key], i)
			}
		}
	}
}

// A key that several bring at once is one key.
func TestAKeyIsPutInOnce(t *testing.T) {
	const keys, goroutines = 20_000, 4
	k := mustKeyed(t, "fixed-window:1000/d", 2*keys)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range keys {
				k.Take(fmt.Sprint(i), 0, 1)
			}
		})
	}
	wg.Wait()
	if k.Len() != keys {
		t.Errorf("%d keys, want %d", k.Len(), keys)
	}
	for i := range keys {
		if d, _, _ := k.Peek(fmt.Sprint(i), 0, 0); d.Remaining != 1000-goroutines {
			t.Fatalf("%d left of key %d, want %d", d.Remaining, i, 1000-goroutines)
		}
	}
}

func TestKeyedWithoutRulesAdmitsAll(t *testing.T) {
	k := mustKeyed(t, "unlimited", 10)
	for range 1000 {
		if d, rule, err := k.Take(theKey, 0, 1_000_000); !d.Allowed || rule != nil || err != nil {
			t.Fatalf("%+v by %v, %v", d, rule, err)
		}
	}
	if k.Len() != 0 {
		t.Errorf("%d keys held for no rule", k.Len())
	}
}

func TestNewKeyedRefuses(t *testing.T) {
	r := Rule{TokenBucket, Rate{1, time.Second}, 1}
	for name, p := range map[string]Policy{
		"a wrong rule":        {Default: Rules{r, {TokenBucket, Rate{1, 0}, 1}}},
		"a rule twice":        {Exact: map[string]Rules{"a": {r, r}}},
		"a glob that is none": {Globs: []Glob{{"[", Rules{r}}}},
		"nine rules":          {Default: Rules{r, {GCRA, r.Rate, 1}, {GCRA, r.Rate, 2}, {GCRA, r.Rate, 3}, {GCRA, r.Rate, 4}, {GCRA, r.Rate, 5}, {GCRA, r.Rate, 6}, {GCRA, r.Rate, 7}, {GCRA, r.Rate, 8}}},
	} {
		if _, err := NewKeyed(p, 10); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Against a store of its own for every key, that holds nothing else, is not swept and
// so never moves a key but for a change.
func TestKeyedAgreesWithAStoreForEachKey(t *testing.T) {
	policies := make([]Policy, 4)
	for i, text := range [][3]string{
		{"token-bucket:5/s,burst=10;token-bucket:1/m,burst=4", "fixed-window:3/s", "sliding-window:20/m"},
		{"token-bucket:3/s,burst=6", "sliding-window-log:4/s", "unlimited"},
		{"sliding-window-counter:30/10s;gcra:2/s,burst=9", "leaky-bucket:1/s,burst=3;fixed-window:9/m", "sliding-window:40/m"},
		{"token-bucket:5/s,burst=30", "fixed-window:30/s", "token-bucket:0/s,burst=12"},
	} {
		rules := func(s string) Rules {
			parsed, err := ParseRules(s)
			if err != nil {
				t.Fatal(err)
			}
			return parsed
		}
		policies[i] = Policy{Default: rules(text[0]), Exact: map[string]Rules{"tenant-7": rules(text[1]), "tenant-70": rules(text[2])}, Globs: []Glob{{"tenant-*5", rules(text[2])}}}
	}
	for seed := range uint64(2) {
		k, err := NewKeyed(policies[0], 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		alone := map[string]*Keyed{}
		p := policies[0]
		random := rand.New(rand.NewPCG(seed, 1))
		now, longest := int64(0), 0
		for i := range 5000 {
			// New keys come all the time, old ones come back now and then.
			key := fmt.Sprint("tenant-", max(0, i-int(random.ExpFloat64()*float64(random.IntN(1500)))))
			now += int64(random.ExpFloat64() * float64(50*time.Millisecond))
			n := int64(random.IntN(4))
			if i%1000 == 999 {
				p = policies[random.IntN(len(policies))]
				if err := k.Change(p, now); err != nil {
					t.Fatal(err)
				}
				for _, one := range alone {
					_ = one.Change(p, now)
				}
			}
			if i%50 == 0 {
				k.Sweep(now, 40)
			}
			if alone[key] == nil {
				alone[key], _ = NewKeyed(p, 1)
			}
			got, rule, _ := k.Take(key, now, n)
			want, wantRule, _ := alone[key].Take(key, now, n)
			if got != want || (rule == nil) != (wantRule == nil) || rule != nil && *rule != *wantRule {
				t.Fatalf("seed %d, step %d: %s gets %+v by %v, alone %+v by %v", seed, i, key, got, rule, want, wantRule)
			}
			longest = max(longest, k.Len())
		}
		if longest >= len(alone)*3/4 {
			t.Errorf("%d keys held at once of %d: nothing was swept", longest, len(alone))
		}
	}
}

// Past the most keys, new ones share one state, and are counted; keys that the policy
// names are not among them. When keys are idle there is room again.
func TestKeyedIsBounded(t *testing.T) {
	rules := Rules{mustRule(t, "token-bucket:1/s,burst=2")}
	k, err := NewKeyed(Policy{Default: rules, Exact: map[string]Rules{"named": rules}, Globs: []Glob{{"glob-*", rules}}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		k.Take(key, 0, 2)
	}
	admitted := func(prefix string, now int64) (n int) {
		for i := range 20 {
			if d, _, _ := k.Take(fmt.Sprint(prefix, i), now, 1); d.Allowed {
				n++
			}
		}
		return n
	}
	if n := admitted("x", 0); n != 2 {
		t.Errorf("%d admitted of the keys that share a burst of 2", n)
	}
	if n := admitted("glob-", 0); n != 2 {
		t.Errorf("%d admitted of the keys that share a glob's burst of 2", n)
	}
	if k.Len() != 3 || k.Overflowed() != 40 {
		t.Errorf("%d keys and %d decided by the overflow, want 3 and 40", k.Len(), k.Overflowed())
	}
	// Whoever looks first and takes only what passes is counted once.
	if d, _, _ := k.Peek("x0", 0, 1); d.Allowed || k.Overflowed() != 41 {
		t.Errorf("a look that refuses: %+v, %d decided by the overflow, want 41", d, k.Overflowed())
	}
	if d, _, _ := k.Peek("x0", 1e9, 1); !d.Allowed || k.Overflowed() != 41 {
		t.Errorf("a look that does not: %+v, %d decided by the overflow, want 41", d, k.Overflowed())
	}
	for key, want := range map[string]uint64{"x0": 0, "one that never came": 0, "named": 2, "a": 0} {
		var stands Decision
		k.Each(key, 0, func(_ Rule, d Decision) { stands = d })
		if d, _, _ := k.Peek(key, 0, 0); d != stands || d.Remaining != want {
			t.Errorf("%q stands at %+v, and is decided on by %+v; want %d left", key, stands, d, want)
		}
	}
	if d, _, _ := k.Take("named", 0, 2); !d.Allowed || k.Len() != 4 {
		t.Errorf("a named key is not held apart: %+v, %d keys", d, k.Len())
	}
	// What they share fills like any other, and nobody's own is touched.
	if d, _, _ := k.Take("b", 1e9, 2); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("a key that was there: %+v, want a second more", d)
	}
	// All are full again after 2 s; a and c were seen last at 0, b takes again.
	k.Take("b", 2e9, 2)
	for i := range shardCount { // the shards in turn are looked through for room
		k.Peek(fmt.Sprint("y", i), 2e9+int64(i), 1)
	}
	if d, _, _ := k.Take("d", 2e9+500, 2); !d.Allowed || k.Len() > 4 {
		t.Errorf("there is room again, but %+v, %d keys", d, k.Len())
	}
	if d, _, _ := k.Take("d", 2e9+500, 1); d.Allowed {
		t.Error("not held, though there is room")
	}
}

// Whatever comes, no more keys than allowed and one a goroutine that is just putting one
// in; and no more passes than the burst of each and of the overflow.
func TestKeyedIsBoundedUnderLoad(t *testing.T) {
	const most, goroutines, each = 500, 8, 4000
	k := mustKeyed(t, "token-bucket:1/h,burst=2", most)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				for range 3 {
					if d, _, _ := k.Take(fmt.Sprint(g, "-", i), int64(i), 1); d.Allowed {
						admitted.Add(1)
					}
				}
				if n := k.Len(); n > most+goroutines {
					t.Errorf("%d keys, at most %d", n, most)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n > 2*(most+goroutines+1) || n < 2*(most+1) {
		t.Errorf("%d admitted by %d keys and an overflow of 2", n, k.Len())
	}
}

// Spent, a key stays spent, whoever else comes, and whatever changes for others.
func TestNobodyIsForgottenEarly(t *testing.T) {
	for most, others := range map[int]int{100: 200_000, 1_000_000: 50_000} {
		rules := Rules{mustRule(t, "token-bucket:1/h,burst=1")}
		k, err := NewKeyed(Policy{Default: rules}, most)
		if err != nil {
			t.Fatal(err)
		}
		k.Take(theKey, 0, 1)
		second := int64(time.Second)
		spent := func(now int64) {
			t.Helper()
			if d, _, _ := k.Take(theKey, now, 1); d.Allowed || d.RetryAfter != time.Hour-time.Duration(now) {
				t.Errorf("%+v at %s; want the rest of the hour", d, time.Duration(now))
			}
		}
		for i := range others {
			k.Take(fmt.Sprint("other-", i), int64(i)*1000, 1)
		}
		spent(second)
		if err := k.Change(Policy{Default: rules}, second); err != nil {
			t.Fatal(err)
		}
		spent(2 * second)
		if err := k.Change(Policy{Default: rules, Exact: map[string]Rules{"beta": {mustRule(t, "fixed-window:9/s")}}}, 2*second); err != nil {
			t.Fatal(err)
		}
		k.Sweep(3*second, shardCount)
		spent(3 * second)
		if most == 100 && k.Len() != most {
			t.Errorf("%d keys, want %d", k.Len(), most)
		}
		if err := k.Change(Policy{Default: rules, Exact: map[string]Rules{theKey: {mustRule(t, "token-bucket:100/s")}}}, 4*second); err != nil {
			t.Fatal(err)
		}
		if d, _, _ := k.Take(theKey, 5*second, 1); !d.Allowed {
			t.Errorf("a second after it was raised to 100/s: %+v", d)
		}
	}
}

// A decision that meets a table on the move is neither lost nor made twice.
func TestRebuildsLoseNothing(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		const goroutines, each = 4, 5000
		k := mustKeyed(t, algorithm+":1000000/d", 1_000_000)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					if d, _, _ := k.Take(fmt.Sprint("shared-", i%50), 0, 1); !d.Allowed {
						t.Errorf("refused: %+v", d)
						return
					}
					k.Take(fmt.Sprint(g, "-", i), 0, 1) // tables grow
					k.Each(fmt.Sprint("shared-", i%50), 0, func(_ Rule, d Decision) {
						if d.Remaining >= 1_000_000 {
							t.Errorf("nothing is taken of a key that is in use: %+v", d)
						}
					})
				}
			})
		}
		stop := make(chan struct{})
		var sweeper sync.WaitGroup
		sweeper.Go(func() {
			for now := int64(0); ; now++ {
				select {
				case <-stop:
					return
				default:
				}
				k.Sweep(0, 16)
				if now%20 == 0 {
					p := Policy{Default: k.policy.Load().plans[0].rules}
					if now%40 == 0 {
						p.Globs = []Glob{{"shared-*", p.Default}}
					}
					if err := k.Change(p, 0); err != nil {
						t.Error(err)
					}
				}
			}
		})
		wg.Wait()
		close(stop)
		sweeper.Wait()
		for i := range 50 {
			if d, _, _ := k.Peek(fmt.Sprint("shared-", i), 0, 0); d.Remaining != 1_000_000-goroutines*each/50 {
				t.Fatalf("%d taken of key %d, want %d", 1_000_000-d.Remaining, i, goroutines*each/50)
			}
		}
		if want := 50 + goroutines*each; k.Len() != want {
			t.Errorf("%d keys, want %d", k.Len(), want)
		}
	})
}

// Whatever happens to the keys of logs, each has the place of its requests to itself,
// and gives it back.
func TestLogsAreGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := make([]Policy, 3)
		for i, text := range []string{"sliding-window:5/s;sliding-window-log:9/m", "sliding-window-log:9/m;fixed-window:3/s", "unlimited"} {
			rules, err := ParseRules(text)
			if err != nil {
				t.Fatal(err)
			}
			policies[i] = Policy{Default: rules, Exact: map[string]Rules{"b": {{SlidingWindowLog, Rate{9, time.Minute}, 0}}}, Globs: []Glob{{"[cd]", rules}}}
		}
		policies[2].Globs = nil
		k, err := NewKeyed(policies[0], rapid.IntRange(1, 6).Draw(t, "most"))
		if err != nil {
			t.Fatal(err)
		}
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 20e9).Draw(t, "step")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				if err := k.Change(rapid.SampledFrom(policies).Draw(t, "policy"), now); err != nil {
					t.Fatal(err)
				}
			case 1:
				k.Sweep(now, shardCount)
			default:
				k.Take(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "key"), now, 1)
			}
			// Every number that a state holds, by its log: no two the same, none left over.
			used := map[*slidingLog]map[uint64]bool{}
			logs := func(p *plan, s []uint64) {
				for j, a := range p.algorithms {
					l, ok := a.(*slidingLog)
					if !ok {
						continue
					}
					if used[l] == nil {
						used[l] = map[uint64]bool{}
					}
					if n := p.part(s, j)[0]; n != 0 {
						if used[l][n] || (*l.rings.Load())[n-1] == nil {
							t.Fatalf("the requests %d of a log are of two keys, or gone", n)
						}
						used[l][n] = true
					}
				}
			}
			for i := range k.shards {
				if table := k.shards[i].table.Load(); table != nil {
					for slot, head := range table.heads {
						logs(table.plan(head), table.state(slot))
					}
				}
			}
			for _, p := range k.policy.Load().plans {
				logs(p, p.overflow.state)
			}
			for l, numbers := range used {
				if rings := l.rings.Load(); rings != nil && len(*rings)-len(l.free) != len(numbers) {
					t.Fatalf("%d requests' places in use, %d not given back", len(numbers), len(*rings)-len(l.free))
				}
			}
		}
	})
}

// The policy in force for any key is the first that names it.
func TestPolicyFindsTheEntry(t *testing.T) {
	rules := func(n int) Rules { return Rules{mustRule(t, fmt.Sprintf("gcra:%d/s", n))} }
	k, err := NewKeyed(Policy{
		Default: rules(1), Exact: map[string]Rules{"acme": rules(2), "free-7": nil},
		Globs: []Glob{{"free-*", rules(3)}, {"*-7", rules(4)}, {"a?me", rules(5)}},
	}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"acme": "gcra:2/s", "free-7": "unlimited", "free-8": "gcra:3/s", "paid-7": "gcra:4/s", "axme": "gcra:5/s", "beta": "gcra:1/s", "": "gcra:1/s",
	} {
		if got := rulesOf(k, key).String(); got != want {
			t.Errorf("%q is under %s, want %s", key, got, want)
		}
	}
}

// Anything may come in any order: the answers are in range and the count is right.
func TestKeyedCountsItsKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := one(t, someRule(rapid.SampledFrom(Names()).Draw(t, "algorithm")).Draw(t, "rule"))
		now := int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += rapid.Int64Range(0, 1e12).Draw(t, "step")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				k.Sweep(now, rapid.IntRange(0, shardCount).Draw(t, "shards"))
			default:
				_, _, _ = k.Take(rapid.StringN(0, 3, 70).Draw(t, "key"), now, 1)
			}
			held := 0
			for i := range k.shards {
				if table := k.shards[i].table.Load(); table != nil {
					for range table.heads {
						held++
					}
					if table.keys > int(table.size) || table.room < 0 {
						t.Fatalf("%d keys, room for %d", table.keys, table.room)
					}
				}
			}
			if held != k.Len() {
				t.Fatalf("%d keys held, %d counted", held, k.Len())
			}
		}
	})
}
