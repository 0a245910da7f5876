package algorithms

import (
	"errors"
	"math"
	"math/bits"
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
}

// TokenBucket is a rule: a bucket of Burst tokens that fills at Rate. It admits
// at most rate·t + burst in any time t. One key's state is a Bucket; a decision
// costs two 128-bit multiplications and no allocation.
type TokenBucket struct {
	n, per uint64 // n tokens in per ns, reduced
	burst  uint64
}

// Bucket is the state of one key under a TokenBucket: the tokens there were at an
// instant, exactly. The zero Bucket was never used, and is full.
type Bucket struct {
	tokens uint64
	// part is what has come in of the next token, in 1/per of it.
	part uint64
	at   int64
	used bool
}

// NewTokenBucket compiles a rule. A rate of 0 gives the burst once and never
// more.
func NewTokenBucket(r Rule) (TokenBucket, error) {
	if r.Rate.IsUnlimited() || r.Rate.valid() != nil {
		return TokenBucket{}, errors.New("algorithms: a token bucket needs a rate with a period above 0 and at most 10⁹ tokens a second")
	}
	n, per := r.Rate.N, uint64(r.Rate.Per)
	if shared := gcd(n, per); shared > 1 {
		n, per = n/shared, per/shared
	}
	return TokenBucket{n: n, per: per, burst: r.Burst}, nil
}

// filled is b brought up to the instant now.
func (t *TokenBucket) filled(b Bucket, now int64) Bucket {
	if !b.used {
		return Bucket{tokens: t.burst, at: now, used: true}
	}
	if now <= b.at {
		// A clock that stepped back: its time was credited already.
		return b
	}
	elapsed := uint64(now - b.at)
	b.at = now
	if b.tokens >= t.burst {
		b.part = 0
		return b
	}
	// tokens·per + part + elapsed·n, in 1/per of a token.
	hi, lo := bits.Mul64(elapsed, t.n)
	lo, carry := bits.Add64(lo, b.part, 0)
	hi += carry
	if hi >= t.per {
		b.tokens, b.part = t.burst, 0
		return b
	}
	whole, part := bits.Div64(hi, lo, t.per)
	if whole >= t.burst-b.tokens {
		b.tokens, b.part = t.burst, 0
		return b
	}
	b.tokens, b.part = b.tokens+whole, part
	return b
}

// Look decides on n tokens at the instant now and takes nothing.
func (t *TokenBucket) Look(b Bucket, now, n int64) (Decision, error) {
	if n < 0 {
		return Decision{}, ErrNegative
	}
	b = t.filled(b, now)
	want := uint64(n)
	if want <= b.tokens {
		return Decision{Allowed: true, Remaining: b.tokens - want}, nil
	}
	return Decision{Remaining: b.tokens, RetryAfter: t.wait(b, now, want)}, nil
}

// Take decides as Look does and, if the request passes, takes its tokens.
func (t *TokenBucket) Take(b *Bucket, now, n int64) (Decision, error) {
	d, err := t.Look(*b, now, n)
	if err == nil && d.Allowed {
		*b = t.filled(*b, now)
		b.tokens -= uint64(n)
	}
	return d, err
}

// wait is how long it takes from now until b, brought up to now, holds want.
func (t *TokenBucket) wait(b Bucket, now int64, want uint64) time.Duration {
	if want > t.burst || t.n == 0 {
		return Never
	}
	// ceil(((want-tokens)·per − part) / n) ns after b.at.
	hi, lo := bits.Mul64(want-b.tokens, t.per)
	lo, borrow := bits.Sub64(lo, b.part, 0)
	hi -= borrow
	if hi >= t.n {
		return math.MaxInt64
	}
	ns, rest := bits.Div64(hi, lo, t.n)
	// Time that a stepped-back clock has to make up for comes on top.
	behind := uint64(b.at - now)
	if ns >= math.MaxInt64 || behind >= math.MaxInt64-ns {
		return math.MaxInt64
	}
	if rest > 0 {
		ns++
	}
	return time.Duration(ns + behind)
}

// Full reports whether forgetting b changes no answer from now on.
func (t *TokenBucket) Full(b Bucket, now int64) bool {
	return !b.used || now >= b.at && t.filled(b, now).tokens >= t.burst
}

// Rebase moves b from the rule old to t at the instant now: what was used stays
// used, what is over the new burst is gone.
func (t *TokenBucket) Rebase(b *Bucket, now int64, old TokenBucket) {
	if !b.used {
		return
	}
	f := old.filled(*b, now)
	f.part = 0
	if f.tokens < t.burst && old.per > 0 {
		// The part of a token carries over, rounded down.
		hi, lo := bits.Mul64(old.filled(*b, now).part, t.per)
		f.part, _ = bits.Div64(hi, lo, old.per)
	}
	f.tokens = min(f.tokens, t.burst)
	*b = f
}
