package main

import (
	"context"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/fragile"
)

// bears is what the database of every phase bears: 250 calls a second, five at a time.
// With forty open it goes down.
var bears = fragile.Config{
	Latency: 20 * time.Millisecond, Knee: 5, Thrash: 1, Noise: 0.3,
	CrashAt: 40, Recovery: 3 * time.Second, Warmup: 2 * time.Second, Cold: 3, Seed: 1,
}

// database is the model in real time.
type database struct {
	began time.Time

	mu      sync.Mutex
	model   *fragile.Database
	waiting map[uint64]chan error
	timer   *time.Timer
}

func newDatabase(cfg fragile.Config) (*database, error) {
	model, err := fragile.New(cfg)
	if err != nil {
		return nil, err
	}
	d := &database{began: time.Now(), model: model, waiting: map[uint64]chan error{}}
	d.timer = time.AfterFunc(time.Hour, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.settle(d.now())
	})
	return d, nil
}

func (d *database) now() int64 { return int64(time.Since(d.began)) }

// write is one statement, however long it takes.
func (d *database) write(ctx context.Context) error {
	d.mu.Lock()
	now := d.now()
	id, err := d.model.Start(now)
	ended := make(chan error, 1)
	if err == nil {
		d.waiting[id] = ended
	}
	d.settle(now)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		now := d.now()
		d.model.Cancel(now, id)
		d.settle(now)
		delete(d.waiting, id)
		return ctx.Err()
	}
}

// settle tells those whose statements ended, and comes back for the next.
func (d *database) settle(now int64) {
	for _, o := range d.model.Advance(now) {
		if w := d.waiting[o.ID]; w != nil {
			w <- o.Err
			delete(d.waiting, o.ID)
		}
	}
	if at, ok := d.model.Next(); ok {
		d.timer.Reset(time.Duration(at - now))
	}
}

// crashes is how often it went down.
func (d *database) crashes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int(d.model.Health(d.now()).Counts.Crashes)
}

func (d *database) close() { d.timer.Stop() }
