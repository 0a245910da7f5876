package consumers

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowgate/flowgate/internal/algorithms"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// certain makes a breaker without chance: waits of 1, 2, 3, 3, … s.
func certain() *Breaker {
	almostOne := func() float64 { return 1 }
	return NewBreaker(algorithms.Backoff{Base: time.Second, Max: 8 * time.Second}, almostOne)
}

// failing records failures at an instant, as many as open a closed breaker.
func failing(b *Breaker, after time.Duration) {
	for range breakerOpens {
		b.Record(start.Add(after), b.Epoch(), true, 0)
	}
}

// TestBreakerOpensAfterFailuresInARow: fewer, or with an answer in between, leave it
// closed.
func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	b := certain()
	for range 10 {
		for range breakerOpens - 1 {
			b.Record(start, b.Epoch(), true, 0)
		}
		wantState(t, b, "closed")
		allowed(t, b, 0, true, 0)
		b.Record(start, b.Epoch(), false, 0)
	}
	failing(b, 0)
	wantState(t, b, "open")
	// It takes as many again once it was closed, and one while it is half open.
	allowed(t, b, time.Second, true, 0)
	b.Record(start.Add(time.Second), b.Epoch(), true, 0)
	wantState(t, b, "open")
	allowed(t, b, 3*time.Second, true, 0)
	b.Record(start.Add(3*time.Second), b.Epoch(), false, 0)
	b.Record(start.Add(3*time.Second), b.Epoch(), true, 0)
	wantState(t, b, "closed")
}

// allowed checks Allow at the time after start.
func allowed(t *testing.T, b *Breaker, after time.Duration, ok bool, wait time.Duration) {
	t.Helper()
	if w, got := b.Allow(start.Add(after)); got != ok || (!ok && w != wait) {
		t.Errorf("after %s: allowed %t, ask again after %s; want %t, %s", after, got, w, ok, wait)
	}
}

func wantState(t *testing.T, b *Breaker, want string) {
	t.Helper()
	if got := b.State().String(); got != want {
		t.Errorf("the breaker is %s, want %s", got, want)
	}
}

func TestBreakerLetsOneProbeOut(t *testing.T) {
	b := certain()
	wantState(t, b, "closed")
	for range 10 {
		allowed(t, b, 0, true, 0)
	}
	failing(b, 0)
	wantState(t, b, "open")
	allowed(t, b, 0, false, time.Second)
	allowed(t, b, 999*time.Millisecond, false, time.Millisecond)
	allowed(t, b, time.Second, true, 0)
	wantState(t, b, "half_open")
	allowed(t, b, time.Second, false, time.Second) // the probe is out
	allowed(t, b, time.Hour, false, time.Second)   // however long it takes
	b.Record(start.Add(2*time.Second), b.Epoch(), false, 0)
	wantState(t, b, "closed")
	for range 10 {
		allowed(t, b, 2*time.Second, true, 0)
	}
}

func TestBreakerWaitsLongerEachTime(t *testing.T) {
	b := certain()
	now := start
	for round := range 2 {
		for range breakerOpens - 1 {
			b.Record(now, b.Epoch(), true, 0)
		}
		for _, seconds := range []time.Duration{1, 2, 3, 3, 3} {
			b.Record(now, b.Epoch(), true, 0)
			if wait, ok := b.Allow(now); ok || wait != seconds*time.Second {
				t.Errorf("round %d: wait %s, %t; want %ds", round, wait, ok, seconds)
			}
			now = now.Add(seconds * time.Second)
			if _, ok := b.Allow(now); !ok {
				t.Fatalf("round %d: no probe after %ds", round, seconds)
			}
		}
		b.Record(now, b.Epoch(), false, 0) // closed; the next round starts small
	}
}

func TestBreakerHonoursTheAskedPause(t *testing.T) {
	b := certain()
	b.Record(start, b.Epoch(), true, time.Minute) // the first failure
	wantState(t, b, "open")
	allowed(t, b, 59*time.Second, false, time.Second)
	allowed(t, b, time.Minute, true, 0)
	b.Record(start.Add(time.Minute), b.Epoch(), true, time.Millisecond) // less than its own 1 s
	allowed(t, b, time.Minute, false, time.Second)
	allowed(t, b, time.Minute+time.Second, true, 0)
	b.Record(start.Add(time.Minute+time.Second), b.Epoch(), false, 0)
	wantState(t, b, "closed")
	// It may do some of a batch and ask for a pause before the rest.
	b.Record(start.Add(2*time.Minute), b.Epoch(), false, time.Second)
	allowed(t, b, 2*time.Minute, false, time.Second)
	allowed(t, b, 2*time.Minute+time.Second, true, 0)
}

// TestBreakerBelievesThePresent has deliveries that began before it opened end
// after: they say nothing of now.
func TestBreakerBelievesThePresent(t *testing.T) {
	b := certain()
	old := b.Epoch()
	failing(b, 0)
	b.Record(start, old, false, 0) // ended well, too late
	wantState(t, b, "open")
	b.Record(start, old, true, time.Hour) // ten that failed together are one opening
	allowed(t, b, 0, false, time.Second)

	allowed(t, b, time.Second, true, 0) // the probe
	b.Release(old)
	allowed(t, b, time.Second, false, time.Second) // is still out
	b.Record(start.Add(time.Second), old, false, 0)
	wantState(t, b, "half_open")
	b.Release(b.Epoch())                // the probe came to nothing
	allowed(t, b, time.Second, true, 0) // so another goes
	b.Record(start.Add(time.Second), b.Epoch(), false, 0)
	wantState(t, b, "closed")
}

// TestBreakerModel drives a breaker with any sequence of events beside a model of
// what the diagram says.
func TestBreakerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.IntRange(1, 1000).Draw(t, "base")) * time.Millisecond
		top := base * time.Duration(rapid.IntRange(1, 100).Draw(t, "max"))
		random := 0.0
		b := NewBreaker(algorithms.Backoff{Base: base, Max: top}, func() float64 { return random })

		now := start
		var out []uint64 // epochs of deliveries under way
		var probes int   // of the present epoch, let out half open
		openings := 0    // since it was closed
		inRow := 0       // failures since an answer
		earliest := now  // no delivery may start before, while open
		latest := now    // one may start from here on
		state := BreakerClosed
		epoch := b.Epoch()
		ending := func() (int, bool) {
			if len(out) == 0 {
				return 0, false
			}
			return rapid.IntRange(0, len(out)-1).Draw(t, "which"), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*top)).Draw(t, "d")))
			},
			"start": func(t *rapid.T) {
				wait, ok := b.Allow(now)
				if !ok && wait <= 0 {
					t.Fatalf("refused, and to ask again after %s", wait)
				}
				switch state {
				case BreakerClosed:
					if !ok {
						t.Fatal("refused while closed")
					}
				case BreakerOpen:
					if ok && now.Before(earliest) {
						t.Fatalf("let out %s early", earliest.Sub(now))
					}
					if !ok && !now.Before(latest) {
						t.Fatalf("refused %s after the longest wait", now.Sub(latest))
					}
					if !ok && now.Add(wait).After(latest) {
						t.Fatalf("told to wait past the longest wait")
					}
					if ok {
						state, probes = BreakerHalfOpen, 0
					}
				}
				if state == BreakerHalfOpen {
					if ok != (probes == 0) {
						t.Fatalf("%d probes are out, and another is let out: %t", probes, ok)
					}
					if ok {
						probes++
					}
				}
				if ok {
					out = append(out, b.Epoch())
				}
			},
			"end": func(t *rapid.T) {
				i, ok := ending()
				if !ok {
					t.Skip("nothing is under way")
				}
				of := out[i]
				out = append(out[:i], out[i+1:]...)
				failed := rapid.Bool().Draw(t, "overloaded")
				asked := time.Duration(max(0, rapid.Int64Range(-int64(top), int64(top)).Draw(t, "asked")))
				random = rapid.Float64Range(0, 0.999).Draw(t, "random")
				b.Record(now, of, failed, asked)
				switch {
				case of != epoch: // old news
				case failed && (inRow+1 >= 5 || state == BreakerHalfOpen):
					inRow++
					openings++
					full := min(top, 3*time.Second, min(base, 3*time.Second)<<min(openings-1, 20))
					earliest, latest = now.Add(max(asked, full/2)), now.Add(max(asked, full))
					state, probes, epoch = BreakerOpen, 0, b.Epoch()
				default:
					if inRow++; !failed {
						state, probes, openings, inRow = BreakerClosed, 0, 0, 0
					}
					if asked > 0 {
						earliest, latest = now.Add(asked), now.Add(asked)
						state, probes, epoch = BreakerOpen, 0, b.Epoch()
					}
				}
			},
			"come to nothing": func(t *rapid.T) {
				i, ok := ending()
				if !ok {
					t.Skip("nothing is under way")
				}
				of := out[i]
				out = append(out[:i], out[i+1:]...)
				b.Release(of)
				if of == epoch {
					probes = 0
				}
			},
			"": func(t *rapid.T) {
				if got := b.State(); got != state {
					t.Fatalf("the breaker is %s, want %s", got, state)
				}
				if got := b.Epoch(); got != epoch {
					t.Fatalf("epoch %d, want %d", got, epoch)
				}
			},
		})
	})
}
