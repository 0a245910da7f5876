package main

import (
	"context"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"
)

// keyDecider decides once for each of the keys and says how often it admitted. A key's first use inserts it. Safe for concurrent use.
type keyDecider func(keys []string) (admitted int)

// store is limiters by key, all under one quota.
type store struct {
	name string
	// keeps says that it holds the keys' own bytes.
	keeps bool
	// make gives also what ends it. It is for so many keys.
	make func(q quota, keys int) (keyDecider, func(), error)
	// admits is as for a single one.
	admits int
}

var stores = []store{
	{ours, keepsKeys, func(q quota, keys int) (keyDecider, func(), error) {
		s, err := newStore(q.rule(), 2*keys)
		return s.decide, func() {}, err
	}, 5},
	{"x/time/rate in a sync.Map", true, func(q quota, _ int) (keyDecider, func(), error) {
		var m sync.Map
		return func(keys []string) (admitted int) {
			for _, key := range keys {
				l, ok := m.Load(key)
				if !ok {
					l, _ = m.LoadOrStore(key, newXTime(q))
				}
				if l.(*rate.Limiter).AllowN(time.Now(), 1) {
					admitted++
				}
			}
			return admitted
		}, func() {}, nil
	}, 5},
	{"x/time/rate in a map, RWMutex", true, func(q quota, _ int) (keyDecider, func(), error) {
		var mu sync.RWMutex
		m := map[string]*rate.Limiter{}
		return func(keys []string) (admitted int) {
			for _, key := range keys {
				mu.RLock()
				l, ok := m[key]
				mu.RUnlock()
				if !ok {
					mu.Lock()
					if l, ok = m[key]; !ok {
						l = newXTime(q)
						m[key] = l
					}
					mu.Unlock()
				}
				if l.AllowN(time.Now(), 1) {
					admitted++
				}
			}
			return admitted
		}, func() {}, nil
	}, 5},
	{"failsafe-go in a sync.Map", true, func(q quota, _ int) (keyDecider, func(), error) {
		var m sync.Map
		return func(keys []string) (admitted int) {
			for _, key := range keys {
				l, ok := m.Load(key)
				if !ok {
					l, _ = m.LoadOrStore(key, newFailsafe(q))
				}
				if l.(ratelimiter.RateLimiter[any]).TryAcquirePermit() {
					admitted++
				}
			}
			return admitted
		}, func() {}, nil
	}, 1},
	{"throttled memstore", true, func(q quota, _ int) (keyDecider, func(), error) {
		l, err := newThrottled(q)
		ctx := context.Background()
		return func(keys []string) (admitted int) {
			for _, key := range keys {
				if limited, _, err := l.RateLimitCtx(ctx, key, 1); !limited && err == nil {
					admitted++
				}
			}
			return admitted
		}, func() {}, err
	}, 5},
	{"sethvargo memorystore", true, func(q quota, _ int) (keyDecider, func(), error) {
		l, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.burst), Interval: window})
		ctx := context.Background()
		return func(keys []string) (admitted int) {
			for _, key := range keys {
				if _, _, _, ok, err := l.Take(ctx, key); ok && err == nil {
					admitted++
				}
			}
			return admitted
		}, func() { _ = l.Close(ctx) }, err
	}, 5},
}
