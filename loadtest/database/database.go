// Package database runs the model of a fragile database in real time: calls block as a
// driver's do.
package database

import (
	"context"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/fragile"
)

// Database is safe for concurrent use. It keeps no goroutine; a timer is set while
// something is in flight.
type Database struct {
	began time.Time

	mu      sync.Mutex
	model   *fragile.Database
	waiting map[uint64]chan error
	timer   *time.Timer
}

// New makes one that is up.
func New(cfg fragile.Config) (*Database, error) {
	model, err := fragile.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Database{began: time.Now(), model: model, waiting: map[uint64]chan error{}}, nil
}

// Do runs one statement: nil when it is done, fragile.ErrDown, fragile.ErrCrashed, or the
// context's error, with which the statement ends too.
func (d *Database) Do(ctx context.Context) error {
	d.mu.Lock()
	id, err := d.model.Start(d.now())
	var ended chan error
	if err == nil {
		ended = make(chan error, 1)
		d.waiting[id] = ended
	}
	d.settle()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.model.Cancel(d.now(), id)
	d.settle()
	select {
	case err := <-ended: // it ended before
		return err
	default:
		delete(d.waiting, id)
		return ctx.Err()
	}
}

// Halt takes it down until Return.
func (d *Database) Halt() { d.change(d.model.Halt) }

// Return brings it back.
func (d *Database) Return() { d.change(d.model.Return) }

func (d *Database) change(f func(now int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.now())
	d.settle()
}

// Health looks at it.
func (d *Database) Health() fragile.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.model.Health(d.now())
	d.settle()
	return h
}

func (d *Database) now() int64 { return int64(time.Since(d.began)) }

// settle tells the callers of what has ended, and sets the timer for what ends next. It
// requires that mu is held.
func (d *Database) settle() {
	for _, o := range d.model.Advance(d.now()) {
		if ended := d.waiting[o.ID]; ended != nil {
			ended <- o.Err
			delete(d.waiting, o.ID)
		}
	}
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if len(d.waiting) == 0 {
		return
	}
	if at, ok := d.model.Next(); ok {
		d.timer = time.AfterFunc(time.Duration(at-d.now()), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.settle()
		})
	}
}
