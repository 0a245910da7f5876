package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// decider decides n times and says how often it admitted; safe for concurrent use.
// Each has its own loop, so that no call in between is measured.
type decider func(n int) (admitted int)

// single is a limiter of one key.
type single struct {
	name string
	make func(quota) (decider, error)
	// admits is how many a burst of 5 lets pass at once; 0 for one that waits and
	// refuses none.
	admits int
}

// singles are ours and the peers, each used as its documentation does.
var singles = []single{
	{ours, func(q quota) (decider, error) {
		l, err := newLimiter(q.rule())
		return func(n int) (admitted int) {
			for range n {
				if d, _ := l.Take(int64(time.Since(base)), 1); d.Allowed {
					admitted++
				}
			}
			return admitted
		}, err
	}, 5},
	{"x/time/rate", func(q quota) (decider, error) {
		l := newXTime(q)
		return func(n int) (admitted int) {
			for range n {
				if l.AllowN(time.Now(), 1) {
					admitted++
				}
			}
			return admitted
		}, nil
	}, 5},
	{"uber-go/ratelimit", func(q quota) (decider, error) {
		l := uber.New(1, uber.Per(q.even()))
		return func(n int) int {
			for range n {
				l.Take()
			}
			return n
		}, nil
	}, 0},
	{"throttled", func(q quota) (decider, error) {
		l, err := newThrottled(q)
		ctx := context.Background()
		return func(n int) (admitted int) {
			for range n {
				if limited, _, err := l.RateLimitCtx(ctx, "key", 1); !limited && err == nil {
					admitted++
				}
			}
			return admitted
		}, err
	}, 5},
	{"sethvargo/go-limiter", func(q quota) (decider, error) {
		l, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.burst), Interval: window})
		ctx := context.Background()
		return func(n int) (admitted int) {
			for range n {
				if _, _, _, ok, err := l.Take(ctx, "key"); ok && err == nil {
					admitted++
				}
			}
			return admitted
		}, err
	}, 5},
	{"ulule/limiter", func(q quota) (decider, error) {
		l := newUlule(q)
		ctx := context.Background()
		return func(n int) (admitted int) {
			for range n {
				if c, err := l.Get(ctx, "key"); !c.Reached && err == nil {
					admitted++
				}
			}
			return admitted
		}, nil
	}, 5},
	{"failsafe-go smooth", func(q quota) (decider, error) {
		l := newFailsafe(q)
		return func(n int) (admitted int) {
			for range n {
				if l.TryAcquirePermit() {
					admitted++
				}
			}
			return admitted
		}, nil
	}, 1},
	{"juju/ratelimit", func(q quota) (decider, error) {
		l := juju.NewBucketWithQuantum(q.interval, int64(q.burst), 1)
		return func(n int) (admitted int) {
			for range n {
				if l.TakeAvailable(1) == 1 {
					admitted++
				}
			}
			return admitted
		}, nil
	}, 5},
}

func newXTime(q quota) *rate.Limiter { return rate.NewLimiter(rate.Every(q.interval), q.burst) }

func newThrottled(q quota) (*throttled.GCRARateLimiterCtx, error) {
	s, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	return throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(1, q.interval), MaxBurst: q.burst - 1})
}

func newUlule(q quota) *ulule.Limiter {
	return ulule.New(memory.NewStore(), ulule.Rate{Period: window, Limit: int64(q.burst)})
}

func newFailsafe(q quota) ratelimiter.RateLimiter[any] {
	return ratelimiter.NewSmoothWithMaxRate[any](q.even())
}
