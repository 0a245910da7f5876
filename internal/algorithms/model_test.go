package algorithms

import (
	"flag"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The properties are cheap: more cases than rapid's 100, unless the command says how
// many.
func init() { _ = flag.Set("rapid.checks", "400") }

// model is an algorithm as it is meant: exact, unbounded, slow.
type model interface {
	decide(now, n int64, take bool) Decision
}

func newModel(r Rule) model {
	limit := new(big.Int).SetUint64(r.Rate.N)
	switch r.Algorithm {
	case FixedWindow:
		return &windowModel{limit: limit, period: int64(r.Rate.Per), seen: math.MinInt64, counts: map[int64]*big.Int{}}
	case SlidingWindowLog, SlidingWindow:
		return &logModel{limit: limit, period: int64(r.Rate.Per)}
	case SlidingWindowCounter:
		return &counterModel{windowModel{limit: limit, period: int64(r.Rate.Per), seen: math.MinInt64, counts: map[int64]*big.Int{}}}
	}
	return newBucketModel(r)
}

// bucketModel is the token bucket by its definition: tokens, a fraction of one
// included, that grow from the last use on. debt is how far the clock is behind it.
type bucketModel struct {
	pace, burst, tokens *big.Rat
	at                  int64
	used                bool
}

func newBucketModel(r Rule) *bucketModel {
	return &bucketModel{
		pace:  new(big.Rat).SetFrac(new(big.Int).SetUint64(r.Rate.N), big.NewInt(int64(r.Rate.Per))),
		burst: new(big.Rat).SetInt(new(big.Int).SetUint64(r.Burst)),
	}
}

// filled is the tokens at an instant. Before the last use there are fewer than
// then, but a bucket that was full since then would be less than full: the time that
// is taken back is taken from it, too.
func (m *bucketModel) filled(now int64) *big.Rat {
	if !m.used {
		return m.burst
	}
	grown := new(big.Rat).Mul(span(m.at, now), m.pace)
	return minRat(grown.Add(grown, m.tokens), m.burst)
}

func (m *bucketModel) decide(now, n int64, take bool) Decision {
	tokens := m.filled(now)
	after := new(big.Rat).Sub(tokens, new(big.Rat).SetInt64(n))
	var d Decision
	switch {
	case n == 0 || after.Sign() >= 0:
		d.Allowed = true
		if take && n > 0 {
			m.tokens, m.at, m.used = after, now, true
		}
		tokens = after
	case new(big.Rat).SetInt64(n).Cmp(m.burst) > 0 || m.pace.Sign() == 0:
		d.RetryAfter = Never
	default:
		d.RetryAfter = saturated(ceil(after.Neg(after).Quo(after, m.pace)))
	}
	d.Remaining = maxInt(floor(tokens)).Uint64()
	if missing := new(big.Rat).Sub(m.burst, tokens); missing.Sign() > 0 {
		d.Reset = Never
		if m.pace.Sign() > 0 {
			d.Reset = saturated(ceil(missing.Quo(missing, m.pace)))
		}
	}
	return d
}

func maxInt(a *big.Int) *big.Int {
	if a.Sign() < 0 {
		return new(big.Int)
	}
	return a
}

// windowModel counts by the number of the window.
type windowModel struct {
	limit  *big.Int
	period int64
	seen   int64 // the last window in which something passed
	counts map[int64]*big.Int
}

func (m *windowModel) count(window int64) *big.Int {
	if c := m.counts[window]; c != nil {
		return c
	}
	return new(big.Int)
}

// at is the window of an instant, and how far into it that is; an instant before the
// last window is its start.
func (m *windowModel) at(now int64) (window, into int64) {
	window = now / m.period
	for window*m.period > now {
		window--
	}
	if window < m.seen {
		return m.seen, 0
	}
	return window, now - window*m.period
}

// passes reports whether n pass at an instant.
func (m *windowModel) passes(now, n int64) bool {
	window, _ := m.at(now)
	sum := new(big.Int).Add(m.count(window), big.NewInt(n))
	return n == 0 || sum.Cmp(m.limit) <= 0
}

func (m *windowModel) end(now int64) time.Duration {
	window, _ := m.at(now)
	return time.Duration((window+1)*m.period - now)
}

func (m *windowModel) pass(now, n int64) {
	window, _ := m.at(now)
	m.counts[window] = new(big.Int).Add(m.count(window), big.NewInt(n))
	m.seen = window
}

func (m *windowModel) decide(now, n int64, take bool) Decision {
	var d Decision
	window, _ := m.at(now)
	count := m.count(window)
	switch {
	case m.passes(now, n):
		d.Allowed = true
		count = new(big.Int).Add(count, big.NewInt(n))
		if take && n > 0 {
			m.pass(now, n)
		}
	case big.NewInt(n).Cmp(m.limit) > 0:
		d.RetryAfter = Never
	default:
		d.RetryAfter = m.end(now)
	}
	d.Remaining = maxInt(new(big.Int).Sub(m.limit, count)).Uint64()
	if count.Sign() > 0 {
		d.Reset = m.end(now)
	}
	return d
}

// counterModel weighs the window before; how long to wait it finds by trying.
type counterModel struct{ windowModel }

// estimate is current + previous·(1 − elapsed/period).
func (m *counterModel) estimate(now int64) *big.Rat {
	window, into := m.at(now)
	e := big.NewRat(m.period-into, m.period)
	e.Mul(e, new(big.Rat).SetInt(m.count(window-1)))
	return e.Add(e, new(big.Rat).SetInt(m.count(window)))
}

func (m *counterModel) left(now, n int64) *big.Rat {
	e := m.estimate(now)
	e.Add(e, new(big.Rat).SetInt64(n))
	return e.Sub(new(big.Rat).SetInt(m.limit), e)
}

func (m *counterModel) decide(now, n int64, take bool) Decision {
	var d Decision
	left := m.left(now, 0)
	switch {
	case n == 0 || m.left(now, n).Sign() >= 0:
		d.Allowed = true
		left = m.left(now, n)
		if take && n > 0 {
			m.pass(now, n)
		}
	case big.NewInt(n).Cmp(m.limit) > 0:
		d.RetryAfter = Never
	default:
		d.RetryAfter = m.least(now, func(at int64) bool { return m.left(at, n).Sign() >= 0 })
	}
	d.Remaining = maxInt(floor(left)).Uint64()
	if take || !d.Allowed || n == 0 {
		d.Reset = m.least(now, func(at int64) bool { return m.estimate(at).Sign() == 0 })
	} else {
		window, _ := m.at(now)
		d.Reset = time.Duration((window+2)*m.period - now)
	}
	return d
}

// least is the shortest wait after which something holds that then goes on to hold.
func (m *counterModel) least(now int64, holds func(int64) bool) time.Duration {
	window, _ := m.at(now)
	low, high := now-1, (window+2)*m.period
	for high-low > 1 {
		if middle := low + (high-low)/2; holds(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return time.Duration(high - now)
}

// logModel is a list of all that ever passed.
type logModel struct {
	limit   *big.Int
	period  int64
	entries []event
}

func (m *logModel) latest(now int64) int64 {
	if last := len(m.entries) - 1; last >= 0 {
		return max(now, m.entries[last].at)
	}
	return now
}

// sum is how much passed in (now − period, now].
func (m *logModel) sum(now int64) *big.Int {
	sum := new(big.Int)
	for _, e := range m.entries {
		if e.at > m.latest(now)-m.period {
			sum.Add(sum, new(big.Int).SetUint64(e.n))
		}
	}
	return sum
}

func (m *logModel) left(now, n int64) *big.Int {
	left := new(big.Int).Sub(m.limit, m.sum(now))
	return left.Sub(left, big.NewInt(n))
}

func (m *logModel) decide(now, n int64, take bool) Decision {
	d := Decision{Allowed: n == 0 || m.left(now, n).Sign() >= 0}
	left, last := m.left(now, 0), m.latest(math.MinInt64)
	switch {
	case d.Allowed && n > 0:
		left, last = m.left(now, n), m.latest(now)
		if take {
			m.entries = append(m.entries, event{last, uint64(n)})
		}
	case d.Allowed:
	case big.NewInt(n).Cmp(m.limit) > 0:
		d.RetryAfter = Never
	default:
		for _, e := range m.entries {
			if at := e.at + m.period; at > now && m.left(at, n).Sign() >= 0 {
				d.RetryAfter = time.Duration(at - now)
				break
			}
		}
	}
	d.Remaining = maxInt(left).Uint64()
	if left.Cmp(m.limit) < 0 {
		d.Reset = time.Duration(last + m.period - now)
	}
	return d
}

// instants is how many different ones are inside the window.
func (m *logModel) instants(now int64) int {
	different := map[int64]bool{}
	for _, e := range m.entries {
		if e.at > m.latest(now)-m.period {
			different[e.at] = true
		}
	}
	return len(different)
}

// anyWalk moves a clock over the scales that matter to a rule: some nanoseconds, parts
// of the period, its edge, the last hints and what is 1 ns short of them; back, if
// that is asked for.
func anyWalk(t *rapid.T, now int64, r Rule, last Decision, back bool) int64 {
	per := int64(r.Rate.Per)
	if r.bucket() && r.Rate.N > 0 {
		per = max(1, per/int64(min(r.Rate.N, math.MaxInt64)))
	}
	edge := per - ((now%per)+per)%per
	var step int64
	switch kind := rapid.IntRange(0, 11).Draw(t, "step"); kind {
	case 0, 1:
	case 2:
		step = rapid.Int64Range(0, 10).Draw(t, "ns")
	case 3, 4:
		step = rapid.Int64Range(0, per).Draw(t, "part")
	case 5:
		step = edge - rapid.Int64Range(0, min(1, edge)).Draw(t, "short of the edge")
	case 6, 7:
		step = max(0, int64(last.RetryAfter)-rapid.Int64Range(0, 1).Draw(t, "short of the hint"))
	case 8:
		step = max(0, int64(last.Reset)-rapid.Int64Range(0, 1).Draw(t, "short of the reset"))
	case 9:
		step = rapid.Int64Range(0, 3*per).Draw(t, "periods")
	case 10:
		step = rapid.Int64Range(0, int64(maxPeriod)).Draw(t, "far")
	case 11:
		if back {
			step = -rapid.Int64Range(0, 2*per).Draw(t, "back")
		}
	}
	if step > 0 && now > lastWalk-step {
		return max(now, lastWalk)
	}
	return now + step
}

// lastWalk is the year 2065, for a clock that counts from 1970.
const lastWalk = 3e18

// anyStart is when a clock begins: around 0, or today for one that counts from 1970.
var anyStart = rapid.OneOf(rapid.Int64Range(-1e17, 1e17), rapid.Int64Range(1.7e18, 2.5e18))

// someRule is a rule of an algorithm whose limit is reached now and then.
func someRule(algorithm string) *rapid.Generator[Rule] {
	return rapid.Custom(func(t *rapid.T) Rule {
		r := Rule{Algorithm: algorithm, Rate: Rate{Per: time.Duration(anyPeriod.Draw(t, "per"))}}
		r.Rate.N = rapid.OneOf(rapid.Uint64Range(0, 12), rapid.SampledFrom([]uint64{100, 1024, 999_983, 1_500_000_000, maxCount})).Draw(t, "n")
		if r.bucket() {
			r.Burst = anyBurst.Draw(t, "burst")
		}
		return r
	})
}

func mustNew(t testing.TB, r Rule) Limiter {
	t.Helper()
	l, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mustRule reads one rule.
func mustRule(t testing.TB, s string) Rule {
	t.Helper()
	rules, err := ParseRules(s)
	if err != nil || len(rules) != 1 {
		t.Fatalf("%q: %v", s, err)
	}
	return rules[0]
}
