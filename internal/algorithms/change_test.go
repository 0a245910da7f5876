package algorithms

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustChange(t rapid.TB, k *Keyed, now int64, rules ...Rule) {
	t.Helper()
	if err := k.Change(Policy{Default: rules}, now); err != nil {
		t.Fatal(err)
	}
}

func one(t rapid.TB, r Rule) *Keyed {
	t.Helper()
	k, err := NewKeyed(Policy{Default: Rules{r}}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Of buckets: what was used stays used up to the new burst, at the old rate until the
// change; a part of a token to within a nanosecond of waiting.
func TestChangeOfBucketsKeepsWhatWasUsed(t *testing.T) {
	bucket := rapid.Custom(func(t *rapid.T) Rule {
		return someRule(rapid.SampledFrom([]string{TokenBucket, GCRA, LeakyBucket}).Draw(t, "algorithm")).Draw(t, "rule")
	})
	rapid.Check(t, func(t *rapid.T) {
		from, to := bucket.Draw(t, "from"), bucket.Draw(t, "to")
		k, exact := one(t, from), newBucketModel(from)
		now := anyStart.Draw(t, "start")
		var last Decision
		for range rapid.IntRange(1, 10).Draw(t, "requests") {
			now = anyWalk(t, now, from, last, false)
			n := anyRequest(t, from.Burst)
			last, _, _ = k.Take(theKey, now, n)
			exact.decide(now, n, true)
		}
		now = anyWalk(t, now, from, last, false)
		mustChange(t, k, now, to)

		used := new(big.Rat).Sub(exact.burst, exact.filled(now))
		after := newBucketModel(to)
		after.tokens, after.at, after.used = new(big.Rat).Sub(after.burst, minRat(used, after.burst)), now, true
		if from == to {
			after = exact
		} else if to.Rate.N == 0 {
			after.tokens = new(big.Rat).SetInt(floor(after.tokens)) // it knows whole ones
		}
		n := anyRequest(t, to.Burst)
		got, _, _ := k.Peek(theKey, now, n)
		want := after.decide(now, n, false)
		if late := got.RetryAfter - want.RetryAfter; late != 0 && (late != 1 || want.RetryAfter == Never) {
			t.Fatalf("%s to %s: wait %d, exactly %d", from, to, got.RetryAfter, want.RetryAfter)
		}
		if got.Allowed != want.Allowed || got.Remaining != want.Remaining {
			t.Fatalf("%s to %s: %+v, exactly %+v", from, to, got, want)
		}
	})
}

// Windows of the same algorithm and period go on with another limit, exactly; logs
// with another period, too.
func TestChangeOfWindowsGoesOn(t *testing.T) {
	for _, name := range []string{FixedWindow, SlidingWindowCounter, SlidingWindowLog, SlidingWindow} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				from := someRule(name).Draw(t, "from")
				to := from
				to.Rate.N = someRule(name).Draw(t, "to").Rate.N
				log := name == SlidingWindowLog || name == SlidingWindow
				if log && rapid.Bool().Draw(t, "another period") {
					to.Rate.Per = time.Duration(anyPeriod.Draw(t, "period"))
					to.Algorithm = rapid.SampledFrom([]string{SlidingWindow, SlidingWindowLog}).Draw(t, "log")
				}
				k, exact := one(t, from), newModel(from)
				now := anyStart.Draw(t, "start")
				var last Decision
				steps := func(r Rule) {
					for range rapid.IntRange(1, 20).Draw(t, "requests") {
						now = anyWalk(t, now, r, last, false)
						n := anyRequest(t, r.Capacity())
						last, _, _ = k.Take(theKey, now, n)
						if want := exact.decide(now, n, true); last != want {
							t.Fatalf("%s to %s: %d at %d: %+v, exactly %+v", from, to, n, now, last, want)
						}
					}
				}
				steps(from)
				mustChange(t, k, now, to)
				limit := new(big.Int).SetUint64(to.Rate.N)
				switch m := exact.(type) {
				case *windowModel:
					m.limit = limit
				case *counterModel:
					m.limit = limit
				case *logModel:
					// What the old window did not reach at the last request is gone.
					m.limit = limit
					var kept []event
					for _, e := range m.entries {
						if last := m.latest(math.MinInt64); e.at > last-m.period && last+m.period > now {
							kept = append(kept, e)
						}
					}
					m.entries, m.period = kept, int64(to.Rate.Per)
				}
				steps(to)
			})
		})
	}
}

// Across algorithms the count goes along, up to the new capacity.
func TestChangeAcrossAlgorithms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Names())
		from := someRule(name.Draw(t, "from")).Draw(t, "from rule")
		to := someRule(name.Draw(t, "to")).Draw(t, "to rule")
		if from.Algorithm == to.Algorithm {
			t.Skip()
		}
		k, exact := one(t, from), newModel(from)
		now := anyStart.Draw(t, "start")
		var last Decision
		for range rapid.IntRange(1, 10).Draw(t, "requests") {
			now = anyWalk(t, now, from, last, false)
			n := anyRequest(t, from.Capacity())
			last, _, _ = k.Take(theKey, now, n)
			exact.decide(now, n, true)
		}
		now = anyWalk(t, now, from, last, false)
		mustChange(t, k, now, to)
		used := from.Capacity() - exact.decide(now, 0, false).Remaining
		if m, ok := exact.(*logModel); ok {
			used = m.sum(now).Uint64()
			if to.Algorithm == SlidingWindow || to.Algorithm == SlidingWindowLog {
				t.Skip() // they carry the requests themselves
			}
		}
		got, _, _ := k.Peek(theKey, now, 0)
		if want := to.Capacity() - min(used, to.Capacity()); got.Remaining != want {
			t.Fatalf("%s to %s: %d left, want %d: %d of %d were used", from, to, got.Remaining, want, used, from.Capacity())
		}
	})
}

func TestChangeCases(t *testing.T) {
	hour := int64(time.Hour)
	cases := []struct {
		name, from, to string
		take, at       int64 // taken at 0; the change, and the look after it
		want           uint64
	}{
		{"raised: the burst is not fresh", "token-bucket:1/h,burst=1", "token-bucket:100/s", 1, 0, 99},
		{"lowered with a full bucket", "token-bucket:100/s", "token-bucket:1/s,burst=5", 0, 0, 5},
		{"lowered below what is used", "token-bucket:1/h,burst=100", "token-bucket:1/h,burst=5", 50, 0, 0},
		{"the old rate counts until the change", "token-bucket:10/s", "token-bucket:1/s,burst=10", 10, hour / 7200, 5},
		{"shut for an hour, then opened", "token-bucket:0/s,burst=10", "token-bucket:1/s,burst=10", 10, hour, 0},
		{"opened, then shut", "token-bucket:1/s,burst=10", "token-bucket:0/s,burst=10", 10, 3e9, 3},
		{"another name for the same", "token-bucket:1/s,burst=10", "gcra:1/s,burst=10", 7, 2e9, 5},
		{"bucket to window", "token-bucket:1/s,burst=10", "fixed-window:20/h", 7, 0, 13},
		{"window to bucket", "fixed-window:20/h", "token-bucket:1/h,burst=10", 7, 0, 3},
		{"log to counter", "sliding-window-log:20/h", "sliding-window-counter:20/m", 7, 0, 13},
		{"a rule more at the end", "token-bucket:1/h,burst=10", "token-bucket:1/h,burst=10;fixed-window:5/h", 3, 0, 5},
		{"a rule more at the front takes after the one at its place", "token-bucket:1/h,burst=10", "fixed-window:5/h;token-bucket:1/h,burst=10", 3, 0, 2},
		{"rules change places and go on", "token-bucket:1/h,burst=10;fixed-window:5/h", "fixed-window:5/h;token-bucket:1/h,burst=10", 3, 0, 2},
		{"the counter's estimate, rounded up", "sliding-window-counter:10/m", "token-bucket:1/d,burst=10", 5, 90e9, 7},
		{"the same algorithm before the same place", "gcra:1/s,burst=10;fixed-window:5/d", "fixed-window:7/d;gcra:1/s,burst=20", 3, 2e9, 4},
		{"a rule goes", "token-bucket:1/h,burst=10;fixed-window:5/h", "token-bucket:1/h,burst=10", 3, 0, 7},
		{"one of two of an algorithm changes", "gcra:1/h,burst=10;gcra:1/m,burst=5", "gcra:1/h,burst=10;gcra:1/m,burst=8", 3, 0, 5},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := mustKeyed(t, c.from, 10)
			if d, _, _ := k.Take(theKey, 0, c.take); !d.Allowed {
				t.Fatalf("an unused key refused: %+v", d)
			}
			to, err := ParseRules(c.to)
			if err != nil {
				t.Fatal(err)
			}
			mustChange(t, k, c.at, to...)
			if d, _, _ := k.Peek(theKey, c.at, 0); d.Remaining != c.want {
				t.Errorf("%d tokens after the change, want %d", d.Remaining, c.want)
			}
		})
	}
}

func TestChangeLeavesAnUnusedKeyUnused(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/s,burst=5", 10)
	mustChange(t, k, 0, mustRule(t, "token-bucket:1/s,burst=100"))
	if d, _, _ := k.Peek(theKey, 0, 0); d.Remaining != 100 {
		t.Errorf("a key never seen has %d tokens under the new rule, want 100", d.Remaining)
	}
}

// A key goes from the default to a glob, to an entry of its own, and back; and through
// no limit at all, where nothing is counted.
func TestChangeMovesAKeyBetweenEntries(t *testing.T) {
	rules := func(burst int) Rules { return Rules{mustRule(t, fmt.Sprintf("token-bucket:1/h,burst=%d", burst))} }
	k, err := NewKeyed(Policy{Default: rules(100)}, 10)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name   string
		policy Policy
		want   uint64 // left after one more is taken
	}{
		{"the default", Policy{Default: rules(100)}, 99},
		{"a glob", Policy{Default: rules(100), Globs: []Glob{{"ac*", rules(50)}}}, 48},
		{"an entry", Policy{Default: rules(100), Globs: []Glob{{"ac*", rules(50)}}, Exact: map[string]Rules{theKey: rules(20)}}, 17},
		{"another glob first", Policy{Default: rules(100), Globs: []Glob{{"a*", rules(10)}, {"ac*", rules(50)}}}, 6},
		{"a glob that does not match", Policy{Default: rules(100), Globs: []Glob{{"b*", rules(10)}}}, 95},
		{"no limit", Policy{Default: rules(100), Exact: map[string]Rules{theKey: nil}}, 1<<64 - 1},
		{"and back", Policy{Default: rules(100)}, 99},
	}
	for _, s := range steps {
		if err := k.Change(s.policy, 0); err != nil {
			t.Fatal(err)
		}
		if d, _, _ := k.Take(theKey, 0, 1); !d.Allowed || d.Remaining != s.want {
			t.Errorf("%s: %+v, want %d left", s.name, d, s.want)
		}
	}
}

// Whether a key was swept or not changes no answer, before a change of rules or after:
// least of all when a burst is raised.
func TestSweepingChangesNoAnswerAcrossChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) Rule {
			r := Rule{Algorithm: rapid.SampledFrom(Names()).Draw(t, "algorithm"), Rate: Rate{rapid.Uint64Range(0, 9).Draw(t, "n"), time.Duration(rapid.SampledFrom([]int64{1, 1000, 7000, 1e9}).Draw(t, "per"))}}
			if r.bucket() {
				r.Burst = rapid.Uint64Range(0, 20).Draw(t, "burst")
			}
			return r
		})
		policy := rapid.Custom(func(t *rapid.T) Policy {
			some := rapid.SliceOfNDistinct(rule, 0, 3, rapid.ID)
			return Policy{Default: some.Draw(t, "default"), Exact: map[string]Rules{"b": some.Draw(t, "b")}, Globs: []Glob{{"[bc]", some.Draw(t, "glob")}}}
		})
		p := policy.Draw(t, "policy")
		swept, err := NewKeyed(p, 1000)
		if err != nil {
			t.Fatal(err)
		}
		unswept, _ := NewKeyed(p, 1000)
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 3000), rapid.Int64Range(0, 3e9)).Draw(t, "step")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				p = policy.Draw(t, "policy")
				if err := swept.Change(p, now); err != nil {
					t.Fatal(err)
				}
				_ = unswept.Change(p, now)
			case 1:
				swept.Sweep(now, shardCount)
			default:
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
				n := rapid.Int64Range(0, 5).Draw(t, "n")
				a, ruleA, _ := swept.Take(key, now, n)
				b, ruleB, _ := unswept.Take(key, now, n)
				if a != b || (ruleA == nil) != (ruleB == nil) || ruleA != nil && *ruleA != *ruleB {
					t.Fatalf("%q, %d at %d: swept %+v by %v, unswept %+v by %v", key, n, now, a, ruleA, b, ruleB)
				}
			}
		}
	})
}

// Under load, changes neither lose what was used nor admit more than the largest rule.
func TestChangeUnderLoad(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		rule := func(limit int) Rule { return mustRule(t, fmt.Sprintf("%s:%d/d", algorithm, limit)) }
		k := one(t, rule(100))
		var admitted [3]atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for g := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if d, _, _ := k.Take(fmt.Sprint(i%3), 0, 1); d.Allowed {
						admitted[i%3].Add(1)
					}
					_, _, _ = k.Peek(fmt.Sprint(g, "-", i%1000), 0, 1)
				}
			})
		}
		for limit := 101; limit <= 400; limit++ {
			mustChange(t, k, 0, rule(limit))
			k.Sweep(0, 10)
		}
		close(stop)
		wg.Wait()
		for i := range admitted {
			for {
				d, _, _ := k.Take(fmt.Sprint(i), 0, 1)
				if !d.Allowed {
					break
				}
				admitted[i].Add(1)
			}
			if admitted[i].Load() != 400 {
				t.Errorf("%d admitted under rules of 100 to 400", admitted[i].Load())
			}
		}
	})
}

// The same for the state that keys share for which there is no room.
func TestChangeUnderLoadKeepsTheOverflow(t *testing.T) {
	forEach(t, func(t *testing.T, algorithm string) {
		rule := mustRule(t, algorithm+":400/d")
		k, err := NewKeyed(Policy{Default: Rules{rule}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if d, _, _ := k.Take(theKey, 0, 1); !d.Allowed {
			t.Fatal(d)
		}
		var admitted atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for g := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if d, _, _ := k.Take(fmt.Sprint(g, "-", i), 0, 1); d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		for i := range 300 {
			if err := k.Change(Policy{Default: Rules{rule}, Exact: map[string]Rules{"named": {mustRule(t, fmt.Sprintf("gcra:%d/s", i+1))}}}, 0); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		wg.Wait()
		for {
			d, _, _ := k.Take("one more", 0, 1)
			if !d.Allowed {
				break
			}
			admitted.Add(1)
		}
		if admitted.Load() != 400 || k.Len() != 1 {
			t.Errorf("%d admitted by one overflow of 400; %d keys", admitted.Load(), k.Len())
		}
	})
}

func TestTooManyEntries(t *testing.T) {
	k := mustKeyed(t, "token-bucket:1/h", 10)
	p := Policy{Exact: map[string]Rules{}}
	for i := range maxPlans {
		p.Exact[fmt.Sprint(i)] = nil
	}
	if err := k.Change(p, 0); err == nil || !strings.Contains(err.Error(), "65536") {
		t.Errorf("%d entries and the default: %v", maxPlans, err)
	}
	if _, err := NewKeyed(p, 10); err == nil {
		t.Error("accepted in a new store")
	}
	if r := rulesOf(k, "7"); r.String() != "token-bucket:1/h" {
		t.Errorf("a refused change left %s", r)
	}
	delete(p.Exact, "0")
	p.Exact["65535"] = Rules{mustRule(t, "token-bucket:1/h,burst=7")}
	if err := k.Change(p, 0); err != nil {
		t.Fatal(err)
	}
	if d, rule, _ := k.Take("65535", 0, 1); d.Remaining != 6 || rule.Burst != 7 {
		t.Errorf("the last entry: %+v by %v", d, rule)
	}
}

// rulesOf are the rules that a key is under.
func rulesOf(k *Keyed, key string) (rules Rules) {
	k.Each(key, 0, func(r Rule, _ Decision) { rules = append(rules, r) })
	return rules
}
