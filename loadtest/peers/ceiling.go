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
)

// measureCeiling is how many messages a second get through with no rate and a database
// that costs nothing: published for so long, counted until the last has arrived.
func measureCeiling(ctx context.Context, c contestant, length time.Duration, dir, broker string) (_ result, err error) {
	var sent, delivered, last atomic.Int64
	began := time.Now()
	s := setup{Dir: dir, Broker: broker, Backlog: ceilingBacklog, Workers: ceilingWorkers, Ahead: ahead * ceilingWorkers, Write: func(context.Context, []byte) error {
		delivered.Add(1)
		last.Store(int64(time.Since(began)))
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
	for end := time.Now().Add(30 * time.Second); delivered.Load() < accepted.Load() && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	out := result{
		Phase: ceiling, Offered: int(min(sent.Load(), ceilingBacklog)), Accepted: int(accepted.Load()), Refused: int(refused.Load()), Unanswered: int(unanswered.Load()),
		Delivered: int(delivered.Load()), Missing: int(max(0, accepted.Load()-delivered.Load())), Settled: true,
	}
	if took := time.Duration(last.Load()).Seconds(); took > 0 {
		out.Through = float64(delivered.Load()) / took
	}
	return out, ctx.Err()
}
