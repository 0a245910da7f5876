package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/database"
)

// bears is what the database of every phase bears: 250 calls a second, five at a time.
// With forty open it goes down.
var bears = fragile.Config{
	Latency: 20 * time.Millisecond, Knee: 5, Thrash: 1, Noise: 0.3,
	CrashAt: 40, Recovery: 3 * time.Second, Warmup: 2 * time.Second, Cold: 3, Seed: 1,
}

const (
	perSecond   = 200 // the rate: 80 % of what the database bears
	workers     = 8
	ahead       = 8 // messages for each of them
	messageSize = 256
	tenants     = 5
	answerIn    = 5 * time.Second // a producer waits no longer
	quiet       = "quiet-"        // the beginning of the quiet tenants' names
	noisy       = "noisy"
)

// phase is one piece of work, the same for all.
type phase struct {
	Name string
	// Length is for how long messages arrive; what comes before Warm is left out of the
	// figures of what holds while work waits.
	Length, Warm time.Duration
	Backlog      int
	Pattern      arrivals.Pattern
	// Drain is how long it may take afterwards, Still how long nothing happens before what
	// is missing counts as lost.
	Drain, Still time.Duration
}

// The names of the phases.
const (
	steady   = "steady"
	overload = "overload"
	noise    = "noisy neighbour"
	ceiling  = "ceiling"
	crash    = "crash"
)

// phases are all but the last two, which are work of another kind.
func phases(short bool) []phase {
	length, warm, backlog := 20*time.Second, 6*time.Second, 1000
	if short {
		length, warm, backlog = 2*time.Second, 500*time.Millisecond, 100
	}
	drain := 30 * time.Second
	if short {
		drain = 10 * time.Second
	}
	five := func(rate float64) arrivals.Pattern {
		return arrivals.Pattern{Seed: 1, Groups: []arrivals.Group{group("tenant-", tenants, rate)}}
	}
	list := []phase{
		{Name: steady, Pattern: five(0.7 * perSecond)},
		{Name: overload, Pattern: five(3 * bears.Capacity())},
		{Name: noise, Pattern: arrivals.Pattern{Seed: 1, Groups: []arrivals.Group{group(quiet, tenants-1, 0.4*perSecond), group(noisy, 1, 2*perSecond)}}},
	}
	for i := range list {
		list[i].Length, list[i].Warm, list[i].Backlog, list[i].Drain, list[i].Still = length, warm, backlog, drain, 8*time.Second
	}
	return list
}

func group(tenant string, n int, rate float64) arrivals.Group {
	return arrivals.Group{
		Tenant: tenant, Tenants: n, Bytes: messageSize,
		Phases: []arrivals.Phase{{For: 24 * time.Hour, From: rate, To: rate}},
	}
}

// crashPhase ends with the process: see work.go.
func crashPhase(short bool) phase {
	p := phases(short)[1]
	p.Name = crash
	return p
}

// measure runs a contestant through a phase in this process.
func measure(ctx context.Context, c contestant, p phase, dir, broker string, ledger *os.File) (_ result, err error) {
	db, err := database.New(bears)
	if err != nil {
		return result{}, err
	}
	r := newRecord()
	r.ledger = ledger
	s := setup{Dir: dir, Broker: broker, Rate: perSecond, Backlog: p.Backlog, Workers: workers, Write: r.wrap(db.Do)}
	if c.bare {
		s.Rate, s.Workers = 0, bareWorkers
	}
	s.Ahead = ahead * s.Workers
	one := c.make()
	defer func() { err = errors.Join(err, one.Close()) }()
	if err := one.Start(ctx, s); err != nil {
		return result{}, fmt.Errorf("start: %w", err)
	}
	r.began = time.Now()
	r.drive(ctx, one, p)
	settled := r.drain(ctx, p)
	return r.result(p, settled, int(db.Health().Counts.Crashes)), ctx.Err()
}

// drive publishes what the pattern says when it says it, whatever the answers, and waits
// for these.
func (r *record) drive(ctx context.Context, one peer, p phase) {
	var open sync.WaitGroup
	for a := range p.Pattern.Schedule(p.Length) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.At - r.since()):
		}
		id := r.due(a)
		open.Go(func() {
			in, cancel := context.WithTimeout(ctx, answerIn)
			defer cancel()
			r.answer(id, one.Publish(in, a.Tenant, payload(a.Tenant, id, a.Bytes)))
		})
	}
	open.Wait()
}

// drain waits until nothing is owed, or nothing happens any more; settled is false if
// there is work left after all the time that there is.
func (r *record) drain(ctx context.Context, p phase) (settled bool) {
	for end := r.since() + p.Drain; ; {
		last, owed := r.last()
		switch {
		case owed == 0, r.since()-last > p.Still:
			return true
		case r.since() > end, ctx.Err() != nil:
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
}
