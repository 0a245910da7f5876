package algorithms

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A change of rule mints nothing and takes nothing: what was left is left, up to
// the new burst, and grew at the old rate until the change. The part of a token
// is kept to within a nanosecond of waiting.
func TestRebaseKeepsWhatWasUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (TokenBucket, Rate, uint64) {
			pace, burst := anyRate.Draw(t, "rate"), anyBurst.Draw(t, "burst")
			limit, err := NewTokenBucket(Rule{TokenBucketName, pace, burst})
			if err != nil {
				t.Fatal(err)
			}
			return limit, pace, burst
		}
		limit, pace, burst := draw()
		exact := newRational(pace, burst)
		var b Bucket
		var now int64
		for range rapid.IntRange(1, 10).Draw(t, "requests") {
			now = anyStep(t, now, 0)
			n := anyRequest(t, burst)
			got, _ := limit.Take(&b, now, n)
			if want := exact.take(now, n); got != want {
				t.Fatalf("before the change: %+v, exactly %+v", got, want)
			}
		}
		now = anyStep(t, now, 0)
		changed, newPace, newBurst := draw()
		changed.Rebase(&b, now, limit)

		after := newRational(newPace, newBurst)
		if exact.used {
			old := exact.filled(now)
			after.tokens, after.at, after.used = minRat(old.tokens, after.burst), old.at, true
		}
		n := anyRequest(t, newBurst)
		got, _ := changed.Look(b, now, n)
		want := after.take(now, n)
		if late := got.RetryAfter - want.RetryAfter; late != 0 && (late != 1 || want.RetryAfter == Never) {
			t.Fatalf("%s burst %d to %s burst %d: wait %d, exactly %d", pace, burst, newPace, newBurst, got.RetryAfter, want.RetryAfter)
		}
		if got.Allowed != want.Allowed || got.Remaining != want.Remaining {
			t.Fatalf("%s burst %d to %s burst %d: %+v, exactly %+v", pace, burst, newPace, newBurst, got, want)
		}
	})
}

func TestRebaseCases(t *testing.T) {
	hour := int64(time.Hour)
	cases := []struct {
		name     string
		from, to Rule
		take     int64 // at 0
		at       int64 // of the change, and of the look after it
		want     uint64
	}{
		{"raised: no fresh burst", Rule{Rate: Rate{1, time.Hour}, Burst: 1}, Rule{Rate: Rate{100, time.Second}, Burst: 100}, 1, 0, 0},
		{"lowered with a full bucket", Rule{Rate: Rate{100, time.Second}, Burst: 100}, Rule{Rate: Rate{1, time.Second}, Burst: 5}, 0, 0, 5},
		{"the old rate counts until the change", Rule{Rate: Rate{10, time.Second}, Burst: 10}, Rule{Rate: Rate{1, time.Second}, Burst: 10}, 10, hour / 7200, 5},
		{"shut for an hour, then opened", Rule{Rate: Rate{0, time.Second}, Burst: 10}, Rule{Rate: Rate{1, time.Second}, Burst: 10}, 10, hour, 0},
		{"opened, then shut", Rule{Rate: Rate{1, time.Second}, Burst: 10}, Rule{Rate: Rate{0, time.Second}, Burst: 10}, 10, 3e9, 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			from, to := mustBucket(t, c.from.Rate.N, c.from.Rate.Per, c.from.Burst), mustBucket(t, c.to.Rate.N, c.to.Rate.Per, c.to.Burst)
			var b Bucket
			if d, _ := from.Take(&b, 0, c.take); !d.Allowed {
				t.Fatalf("a full bucket refused: %+v", d)
			}
			to.Rebase(&b, c.at, from)
			if d, _ := to.Look(b, c.at, 0); d.Remaining != c.want {
				t.Errorf("%d tokens after the change, want %d", d.Remaining, c.want)
			}
		})
	}
}

func TestRebaseLeavesAnUnusedBucketFull(t *testing.T) {
	from, to := mustBucket(t, 1, time.Second, 5), mustBucket(t, 1, time.Second, 100)
	var b Bucket
	to.Rebase(&b, 0, from)
	if d, _ := to.Look(b, 0, 0); d.Remaining != 100 {
		t.Errorf("a key never seen has %d tokens under the new rule, want 100", d.Remaining)
	}
}
