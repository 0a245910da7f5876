package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	ceilingWorkers = 256       // of the peer, and producers who each wait for their answer
	ceilingBacklog = 1_000_000 // and most messages
	ceilingDrain   = time.Minute
	ceilingStill   = 8 * time.Second
)

// measureCeiling is how many messages a second get through with no rate and a database
// that costs nothing: published for so long, counted until the last has arrived. A message
// that comes twice counts once.
func measureCeiling(ctx context.Context, c contestant, length time.Duration, dir, broker string) (_ result, err error) {
	var sent, delivered, repeats, last atomic.Int64
	came := make([]atomic.Bool, ceilingBacklog+1)
	began := time.Now()
	s := setup{Dir: dir, Broker: broker, Backlog: ceilingBacklog, Workers: ceilingWorkers, Ahead: ahead * ceilingWorkers, Write: func(_ context.Context, p []byte) error {
		switch _, id, err := named(p); {
		case err != nil:
			report(err)
		case came[id].Swap(true):
			repeats.Add(1)
		default:
			delivered.Add(1)
			last.Store(int64(time.Since(began)))
		}
		return nil
	}}
	one := c.make()
	defer func() { err = errors.Join(err, one.Close()) }()
	if err := one.Start(ctx, s); err != nil {
		return result{}, err
	}
	began = time.Now()
	var accepted, unanswered, refused atomic.Int64
	var producers sync.WaitGroup
	for range ceilingWorkers {
		producers.Go(func() {
			for time.Since(began) < length && ctx.Err() == nil {
				n := sent.Add(1)
				if n > ceilingBacklog {
					return
				}
				in, cancel := context.WithTimeout(ctx, answerIn)
				err := one.Publish(in, "tenant-1", payload("tenant-1", int(n), messageSize))
				switch {
				case err == nil:
					accepted.Add(1)
				case in.Err() != nil:
					unanswered.Add(1)
				default:
					refused.Add(1)
					runtime.Gosched()
				}
				cancel()
			}
		})
	}
	producers.Wait()
	// What is missing is lost only if nothing comes any more.
	settled := false
	for end := time.Now().Add(ceilingDrain); !settled && time.Now().Before(end) && ctx.Err() == nil; {
		settled = delivered.Load() >= accepted.Load() || time.Since(began)-time.Duration(last.Load()) > ceilingStill
		time.Sleep(10 * time.Millisecond)
	}
	out := result{
		Phase: ceiling, Offered: int(min(sent.Load(), ceilingBacklog)), Accepted: int(accepted.Load()), Refused: int(refused.Load()), Unanswered: int(unanswered.Load()),
		Delivered: int(delivered.Load()), Missing: int(max(0, accepted.Load()-delivered.Load())), Repeats: int(repeats.Load()), Settled: settled,
	}
	if took := time.Duration(last.Load()).Seconds(); took > 0 {
		out.Through = float64(delivered.Load()) / took
	}
	return out, ctx.Err()
}
