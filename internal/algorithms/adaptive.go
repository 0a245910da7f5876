package algorithms

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// AdaptiveRate moves a rate between a floor and a ceiling by what becomes of the
// deliveries: additive increase while they go well, multiplicative decrease at a
// sign of trouble (Chiu & Jain, "Analysis of the increase and decrease algorithms
// for congestion avoidance", 1989), in the form TCP has given it, with a rate in
// place of the window. With r the rate per second:
//
//	start     r = 10 (or the bounds)                       initial window, RFC 6928
//	r < s     r += 1 a good answer, so e-fold a second     slow start, RFC 5681
//	r ≥ s     r = p + (p − f)·((t − K)/K)³                  CUBIC, RFC 9438
//	trouble   p = answers a second, within r/2 and r       at most one a window
//	          r = s = f = 0.9·p, t = 0
//	slow      the same, by target/latency if that is less  as Vegas and gradients do;
//	          than 0.9, at least 0.5                       Brakmo & Peterson 1995
//	outage    s = r/2, r = start                           retransmission timeout, RFC 5681
//	unused    s = max(s, 3r/4), r = max(start, 2·answers)  RFC 7661
//
// p, the plateau, is what the consumer could do when trouble last came: overload tells
// by what it did answer, a target that was missed by the most it answered while it was
// met. The curve goes there from f within K = 4 s, stays around it, and only then
// probes beyond; so the rate hovers close below the capacity. After 2K without trouble
// p is out of date and slow start goes on, so a capacity that has grown is found soon.
// K is longer for plateaus below 8/s: the time of 32 deliveries.
//
// Trouble is an answer of overload, an attempt that ran into its timeout, or a
// target missed: of at least 8 calls over at least 250 ms more than half took longer
// than the target. The target is a given number. A baseline that is learnt would
// follow a slow decline until it is normal.
//
// A window lasts from a decrease until a delivery that started after it has come to
// grief: what started before answers to the old rate. It is at least as long as the
// slowest call that led to the decrease, and 250 ms, and four departures, so that a
// queue at the consumer can shrink. A delivery in which the message itself was at
// fault counts as an answer and says nothing else.
//
// An outage is trouble without one answer since the decrease before: that says
// nothing of the rate. So further failures change nothing; holding deliveries back
// is a circuit breaker's affair.
//
// The rate goes up only while it is what holds deliveries back: a departure waited for it
// alone, and nine in ten that it allows do leave. So without a ceiling too, and where
// the bound on what is in flight is what limits, it stays within about 1.3 times what is
// delivered. One that was not used for 10 s, or four departures, is no evidence of what
// the consumer can do now.
//
// Time is in nanoseconds from any fixed origin. It is not safe for concurrent use
// and allocates nothing.
type AdaptiveRate struct {
	floor, ceiling Rate
	least, most    float64 // the same a second
	start          float64
	target         int64
	rate           float64
	threshold      float64 // s; below it slow start
	plateau, foot  float64 // p and f; no plateau: 0
	age            int64   // t
	grown          int64   // when age was counted up to
	reason         RateReason
	began          bool
	changed        int64 // the last decrease
	settled        int64 // what started before cannot decrease again
	answered       int64 // start of the newest delivery that was answered
	used           int64 // the last departure that the rate held back
	checked        int64 // when it was last found not to be used
	use            use
	calls, slow    uint64
	slowest, took  int64   // the slowest call of the present look, and all together
	lookAt         int64   // when it began
	best           float64 // most answers a second while the target was met, since the last decrease
	answers        answers
}

// RateReason is why the rate is what it is.
type RateReason uint8

// The reasons.
const (
	// RateConfigured: the ceiling, nothing speaks against it.
	RateConfigured RateReason = iota
	// RateSlowStart: on the way up after a start, an outage or a time without use.
	RateSlowStart
	// RateUnused: something else holds deliveries back, or there are few; what was not
	// used is not raised.
	RateUnused
	// RateLatency: most attempts took longer than the target.
	RateLatency
	// RateOverload: the consumer was overloaded.
	RateOverload
	// RateTimeout: an attempt ran into its timeout.
	RateTimeout
	// RateRetryAfter: the consumer asked for a pause.
	RateRetryAfter
	// RateOutage: nothing got through.
	RateOutage
)

// RateReasons are all of them.
var RateReasons = [...]RateReason{RateConfigured, RateSlowStart, RateUnused, RateLatency, RateOverload, RateTimeout, RateRetryAfter, RateOutage}

// String names the reason as status and metrics show it.
func (r RateReason) String() string {
	return [...]string{"configured", "slow_start", "unused", "latency", "overload", "timeout", "retry_after", "outage"}[r]
}

// Answer is what became of one call: a delivery of one message or a batch.
type Answer struct {
	// Started is the instant of its departure, Took how long the call was.
	Started, Took int64
	// Done is how many of its messages were delivered, Failed how many had a fault of
	// their own.
	Done, Failed uint64
	// Trouble is RateOverload, RateTimeout or RateRetryAfter; RateConfigured: none.
	Trouble RateReason
}

const (
	rateStart    = 10.0 // a second
	rateDecrease = 0.9
	rateClimb    = int64(4 * time.Second) // K
	climbAnswers = 32
	rateLook     = int64(250 * time.Millisecond)
	lookCalls    = 8
	windowLeast  = 4 // departures
	rateUnused   = int64(10 * time.Second)
	rateUsed     = 0.9 // part of the departures it allows
)

// NewAdaptiveRate makes one that begins with slow start. The floor is above 0 and at
// most the ceiling; an unlimited ceiling is 10⁹ a second.
func NewAdaptiveRate(floor, ceiling Rate, target time.Duration) (*AdaptiveRate, error) {
	if err := errors.Join(floor.valid(), ceiling.valid()); err != nil {
		return nil, fmt.Errorf("algorithms: adaptive rate: %w", err)
	}
	if ceiling.IsUnlimited() {
		ceiling = Rate{N: maxPerSecond, Per: time.Second}
	}
	a := &AdaptiveRate{floor: floor, ceiling: ceiling, least: floor.PerSecond(), most: ceiling.PerSecond(), target: int64(target)}
	if a.least <= 0 || a.least > a.most {
		return nil, fmt.Errorf("algorithms: adaptive rate: the floor %s is not above 0 and at most %s", floor, ceiling)
	}
	if target <= 0 {
		return nil, fmt.Errorf("algorithms: adaptive rate: target %s is not above 0", target)
	}
	a.start = a.within(rateStart)
	a.rate, a.threshold, a.reason = a.start, a.most, RateSlowStart
	a.reached()
	return a, nil
}

func (a *AdaptiveRate) within(rate float64) float64 { return min(max(rate, a.least), a.most) }

// Rate is the present rate, never over the ceiling and never under the floor.
func (a *AdaptiveRate) Rate() Rate {
	switch {
	case a.rate >= a.most:
		return a.ceiling
	case a.rate <= a.least:
		return a.floor
	}
	const fine = 1000 // parts of a delivery a second
	r := Rate{N: uint64(a.rate * fine), Per: fine * time.Second}
	if a.rate < 1 {
		r = Rate{N: 1, Per: time.Duration(math.Ceil(1e9 / a.rate))}
	}
	if r.PerSecond() < a.least {
		return a.floor
	}
	return r
}

// Reason is why it is what it is.
func (a *AdaptiveRate) Reason() RateReason { return a.reason }

// Depart takes note that n left together. held says that at the end they waited for the
// rate and for nothing else. It reports whether the rate was lowered for want of use.
func (a *AdaptiveRate) Depart(now int64, n uint64, held bool) (lowered bool) {
	if !a.began {
		a.began = true
		a.changed, a.settled, a.answered = now, math.MinInt64, math.MinInt64
		a.used, a.checked, a.grown, a.lookAt = now, now, now, now
		a.answers.begin(now)
	}
	// Where the bound on what is in flight is what limits, a departure waits for one of
	// those to end, and then as often as not for the rate as well, if only for a moment.
	if part := a.use.depart(now, a.interval(float64(n)), a.look(), held); held && part >= rateUsed {
		a.used = now
		return false
	}
	if now-max(a.used, a.checked) <= max(rateUnused, a.interval(windowLeast)) {
		return false
	}
	a.checked = now
	// 2·answers: who has all in flight that may be is not held back by the rate.
	if to := max(a.start, 2*a.answers.perSecond(now, a.look())); to < a.rate {
		a.plateau = max(a.plateau, a.rate)
		a.threshold = max(a.threshold, 0.75*a.rate)
		a.rate, lowered = to, true
	}
	if a.rate < a.most {
		a.reason = RateUnused
	}
	return lowered
}

// look is how long answers are counted to tell their rate: 16 of them come to 6 %.
func (a *AdaptiveRate) look() int64 { return max(rateLook, a.interval(16)) }

// interval is how long n departures take; bounded, for a day is long enough.
func (a *AdaptiveRate) interval(n float64) int64 {
	return int64(min(n/a.rate, 86400) * 1e9)
}

// Observe takes what became of a call, at the instant of its answer, and reports
// whether the rate was lowered.
func (a *AdaptiveRate) Observe(now int64, s Answer) (lowered bool) {
	if !a.began {
		return false
	}
	a.answers.add(now, s.Done+s.Failed, a.look())
	a.use.answered = now
	if s.Done > 0 && a.reason == RateOutage {
		a.use.spent, a.use.passed = 0, 0 // probes were what was in flight
	}
	if s.Done+s.Failed > 0 {
		a.answered = max(a.answered, s.Started)
	}
	if s.Trouble != RateConfigured {
		return s.Started >= a.settled && a.lower(now, s.Trouble, s.Took, rateDecrease)
	}
	if s.Done == 0 {
		return false
	}
	if s.Started >= a.settled {
		a.calls++
		a.slowest = max(a.slowest, s.Took)
		a.took += min(s.Took, int64(time.Hour))
		if s.Took > a.target {
			a.slow++
		}
		if a.calls >= lookCalls && now-a.lookAt >= rateLook {
			missed, slowest, mean := a.slow > a.calls/2, a.slowest, a.took/int64(a.calls)
			a.lookAgain(now)
			if missed {
				return a.lower(now, RateLatency, slowest, float64(a.target)/float64(max(mean, 1)))
			}
			a.best = max(a.best, a.answers.perSecond(now, a.look()))
		}
	}
	if s.Took <= a.target {
		a.raise(now, s)
	}
	return false
}

func (a *AdaptiveRate) lookAgain(now int64) {
	a.calls, a.slow, a.slowest, a.took, a.lookAt = 0, 0, 0, 0, now
}

// lower answers trouble. took is how long deliveries take that are under way, to the
// part of what was answered that is aimed at.
func (a *AdaptiveRate) lower(now int64, why RateReason, took int64, to float64) bool {
	was := a.rate
	if a.answered < a.changed { // nothing since
		if a.rate <= a.start {
			return false
		}
		a.plateau = max(a.plateau, a.rate)
		a.threshold = max(a.rate/2, a.start)
		a.rate, why = a.start, RateOutage
	} else {
		answers := a.answers.perSecond(now, a.look())
		could := max(min(a.rate, answers), a.rate/2)
		switch {
		case why != RateLatency:
			a.plateau = max(could, min(answers, a.plateau))
		case a.best > 0:
			// A consumer may do less once it has too much; and while its queue shrinks it
			// answers more than it is sent.
			a.plateau = max(could, min(a.best, a.rate))
		}
		a.plateau = max(a.plateau, could)
		a.rate = a.within(min(max(to, 0.5), rateDecrease) * could)
		a.threshold, a.foot, a.age = a.rate, a.rate, 0
	}
	a.reason, a.best = why, 0
	a.changed, a.grown = now, now
	a.settled = now + min(max(took, rateLook, a.interval(windowLeast)), int64(24*time.Hour))
	a.lookAgain(a.settled)
	return a.rate < was
}

// raise answers a call that went well.
func (a *AdaptiveRate) raise(now int64, s Answer) {
	since := max(0, now-a.grown)
	a.grown = now
	if s.Started > a.used { // nothing has waited for the rate since
		return
	}
	if a.reason == RateUnused || a.reason == RateOutage {
		a.reason = RateSlowStart
	}
	if a.rate < a.threshold {
		a.rate = a.within(a.rate + min(float64(s.Done), a.rate))
		a.foot, a.age = min(a.rate, a.plateau), 0
	} else if a.plateau > 0 {
		k := max(rateClimb, int64(min(climbAnswers/a.plateau, 86400)*1e9))
		if a.age += min(since, k/8); a.age > 2*k {
			a.threshold = a.most // far beyond what it knew
			return
		}
		t := float64(a.age-k) / float64(k)
		arc := max(a.plateau-a.foot, (1-rateDecrease)*a.plateau)
		a.rate = a.within(max(a.rate, a.plateau+arc*t*t*t))
	}
	a.reached()
}

// reached says so if the rate is at its ceiling.
func (a *AdaptiveRate) reached() {
	if a.rate >= a.most {
		a.reason = RateConfigured
	}
}

// use is how much of the rate could be used by what may be in flight: the departures of
// late, as the time they take at the rate, to the time that passed.
type use struct {
	departed, answered int64 // the last of each
	spent, passed      float64
}

// depart takes note of a departure that takes so long at the rate, and returns the part
// that was used of late; look is how long that is.
func (u *use) depart(now, takes, look int64, held bool) float64 {
	passed := max(0, now-u.departed)
	switch {
	case held:
		passed = takes // what is more is the timer's lateness
	case passed > takes: // behind the last answer there was nothing to do, or a pause
		passed = min(max(takes, u.answered-u.departed), passed, look)
	}
	u.departed = now
	keep := math.Exp(-float64(passed) / float64(look))
	u.spent = u.spent*keep + float64(takes)
	u.passed = u.passed*keep + float64(passed)
	return u.spent / max(u.passed, 1)
}

// answers counts answers over the present look and the one before.
type answers struct {
	before, now   uint64
	since, turned int64 // when they began
}

func (c *answers) begin(now int64) { *c = answers{since: now, turned: now} }

// turn begins a new look when the present one is over.
func (c *answers) turn(now, look int64) {
	switch {
	case now-c.turned >= 4*look: // what was before is long ago
		c.begin(now - look)
	case now-c.turned >= look:
		c.before, c.now = c.now, 0
		c.since, c.turned = c.turned, now
	}
}

func (c *answers) add(now int64, n uint64, look int64) {
	c.turn(now, look)
	c.now += n
}

// perSecond is their rate, over at least one look.
func (c *answers) perSecond(now, look int64) float64 {
	c.turn(now, look)
	return float64(c.before+c.now) / (float64(max(now-c.since, look, 1)) / 1e9)
}
