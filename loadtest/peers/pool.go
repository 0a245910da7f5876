package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// poolPeer is what one writes without a broker.
type poolPeer struct {
	work  chan []byte
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// errFull is this program's own: there is nobody else to say anything.
var errFull = errors.New("the channel is full")

func (p *poolPeer) Start(ctx context.Context, s setup) error {
	running, stop := context.WithCancel(ctx)
	p.work, p.stop = make(chan []byte, s.Backlog), stop
	limit := rate.Inf
	if s.Rate > 0 {
		limit = rate.Limit(s.Rate)
	}
	limiter := rate.NewLimiter(limit, 1)
	for range s.Workers {
		p.ended.Go(func() {
			for {
				select {
				case <-running.Done():
					return
				case payload := <-p.work:
					p.write(running, limiter, s, payload)
				}
			}
		})
	}
	return nil
}

// write tries until the database takes it.
func (p *poolPeer) write(ctx context.Context, limiter *rate.Limiter, s setup, payload []byte) {
	for limiter.Wait(ctx) == nil && s.Write(ctx, payload) != nil {
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

func (p *poolPeer) Publish(_ context.Context, _ string, payload []byte) error {
	select {
	case p.work <- payload:
		return nil
	default:
		return errFull
	}
}

func (p *poolPeer) Close() error {
	if p.stop != nil {
		p.stop()
	}
	p.ended.Wait()
	return nil
}
