package algorithms

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"
)

// ErrNegative refuses a request for fewer than 0 tokens.
var ErrNegative = errors.New("algorithms: a request for fewer than 0 tokens")

// Never is the RetryAfter of a request that cannot pass whatever the wait.
const Never time.Duration = -1

// Decision is a limiter's answer.
type Decision struct {
	Allowed bool
	// Remaining is the whole tokens left after the decision.
	Remaining uint64
	// RetryAfter is the least time after which the same request passes: 0 if it
	// passed, Never if it cannot; the largest duration if it takes longer still.
	RetryAfter time.Duration
	// Reset is the time after which, with no further request, nothing of what was
	// taken counts any more; 0 if nothing does; Never if that does not happen.
	Reset time.Duration
}

// Limiter decides at instants, in nanoseconds from any fixed origin. Asking for 0
// tokens passes; for more than the capacity never does; for fewer than 0 is
// ErrNegative. A request that is refused takes nothing. A clock that steps back
// mints nothing. Safe for concurrent use, and nothing is allocated on the way.
type Limiter interface {
	// Peek decides on n tokens and takes nothing.
	Peek(now, n int64) (Decision, error)
	// Take decides as Peek does and takes the tokens of a request that passes.
	Take(now, n int64) (Decision, error)
}

// New makes the limiter of a rule, unused; the error says what a wrong rule
// lacks. A token bucket, GCRA or leaky bucket whose interval is a whole number of
// half nanoseconds is one word, changed by compare-and-swap; the others have a
// lock.
func New(r Rule) (Limiter, error) {
	a, err := compile(r)
	if err != nil {
		return nil, err
	}
	if b, ok := a.(*bucket); ok {
		return &atomicBucket{bucket: *b}, nil
	}
	return &locked{algorithm: a}, nil
}

// maxWords is the most words of state that an algorithm has.
const maxWords = 3

// algorithm is a compiled rule: arithmetic over words of state that belong to
// somebody else, who also sees to it that nobody else touches them meanwhile. All
// words 0 is the state before the first use.
type algorithm interface {
	// words is how many words of state there are.
	words() int
	// decide judges n ≥ 0 tokens. It changes the state only if take is set and the
	// request passes.
	decide(s []uint64, now, n int64, take bool) Decision
	// idle reports whether forgetting the state changes no answer from now on.
	idle(s []uint64, now int64) bool
	// used is how much of the capacity is taken, rounded up: whole tokens and
	// 2⁻⁶⁴ths of one.
	used(s []uint64, now int64) (whole, part uint64)
	// occupy makes of an unused state one of which so much is taken, at most the
	// capacity.
	occupy(s []uint64, now int64, whole, part uint64)
	// forget gives back what the state holds beyond its words.
	forget(s []uint64)
}

// compile makes the algorithm of a rule.
func compile(r Rule) (algorithm, error) {
	if r.Rate.IsUnlimited() {
		return unlimited{}, nil
	}
	if r.Rate.Per <= 0 || r.Rate.Per > maxPeriod || r.Rate.N > maxCount || r.Burst > maxBurst {
		return nil, fmt.Errorf("algorithms: limit %q needs a period above 0 and up to 366 days, and a number up to 2^60 and a burst below 2^62", r)
	}
	switch r.Algorithm {
	case TokenBucket, GCRA, LeakyBucket:
		return newBucket(r), nil
	case FixedWindow:
		return &fixedWindow{limit: r.Rate.N, period: int64(r.Rate.Per)}, nil
	case SlidingWindow:
		return &slidingLog{limit: r.Rate.N, period: int64(r.Rate.Per), cell: max(1, (int64(r.Rate.Per)+cells-1)/cells)}, nil
	case SlidingWindowLog:
		return &slidingLog{limit: r.Rate.N, period: int64(r.Rate.Per)}, nil
	case SlidingWindowCounter:
		return &slidingCounter{limit: r.Rate.N, period: int64(r.Rate.Per)}, nil
	}
	return nil, fmt.Errorf("algorithms: no algorithm %q; there are %s", r.Algorithm, algorithmNames)
}

// locked is a limiter with a lock around its state.
type locked struct {
	algorithm algorithm

	mu    sync.Mutex
	state [maxWords]uint64
}

// Peek implements Limiter.
func (l *locked) Peek(now, n int64) (Decision, error) { return l.decide(now, n, false) }

// Take implements Limiter.
func (l *locked) Take(now, n int64) (Decision, error) { return l.decide(now, n, true) }

func (l *locked) decide(now, n int64, take bool) (Decision, error) {
	if n < 0 {
		return Decision{}, ErrNegative
	}
	l.mu.Lock()
	d := l.algorithm.decide(l.state[:], min(now, lastInstant), n, take)
	l.mu.Unlock()
	return d, nil
}

// unlimited admits everything.
type unlimited struct{}

func (unlimited) words() int { return 0 }
func (unlimited) decide([]uint64, int64, int64, bool) Decision {
	return Decision{Allowed: true, Remaining: math.MaxUint64}
}
func (unlimited) idle([]uint64, int64) bool              { return true }
func (unlimited) used([]uint64, int64) (uint64, uint64)  { return 0, 0 }
func (unlimited) occupy([]uint64, int64, uint64, uint64) {}
func (unlimited) forget([]uint64)                        {}

// until is how long it is from now to an instant; the largest duration if it is
// longer.
func until(instant, now int64) time.Duration {
	if instant <= now {
		return 0
	}
	return time.Duration(min(uint64(instant)-uint64(now), math.MaxInt64))
}

// Longer reports whether the wait a is longer than b; Never is the longest.
func Longer(a, b time.Duration) bool { return b != Never && (a == Never || a > b) }

// saturating is a duration of so many nanoseconds, the largest one if there are more.
func saturating(hi, lo uint64) time.Duration {
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// later is d after an instant; the largest instant if that is beyond it.
func later(instant, d int64) int64 {
	if instant > math.MaxInt64-d {
		return math.MaxInt64
	}
	return instant + d
}

// floorDiv rounds towards minus infinity; b is above 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// lastInstant is what the largest instant counts as, so that every window has an end
// after it.
const lastInstant = math.MaxInt64 - 1

// Instants are kept in words so that 0 is before all of them.
func encode(instant int64) uint64 { return uint64(instant) ^ 1<<63 }
func decode(word uint64) int64    { return int64(word ^ 1<<63) }

// mulDivCeil is ceil(a·b/c), at most the largest uint64; c is above 0.
func mulDivCeil(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	q, rest := bits.Div64(hi, lo, c)
	if rest > 0 && q < math.MaxUint64 {
		q++
	}
	return q
}
