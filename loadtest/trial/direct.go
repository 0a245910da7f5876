package trial

import (
	"container/heap"
	"context"
	"iter"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/fragile"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/producers"
	"github.com/flowgate/flowgate/loadtest/scenario"
)

// The consumer without flowgate is one of a plain JetStream stream: each message is a call of
// its own as soon as it is there; what fails is delivered again a second later. The broker
// hands out up to 1,000 unacknowledged ones, its default, and those that wait to be
// delivered again are among them.
const (
	directPending = 1000
	directAgain   = time.Second
)

// sampling is how often the database is looked at.
const sampling = 100 * time.Millisecond

// direct sends the scenario's arrivals straight to its database. It does so in virtual time:
// the model is the one that stands behind the gateway in real time. Instants are since
// the beginning.
func direct(ctx context.Context, s *scenario.Scenario, length time.Duration) (*Side, error) {
	model, err := fragile.New(s.Database)
	if err != nil {
		return nil, err
	}
	d := &directRun{s: s, model: model, side: &Side{Record: &invariants.Record{}}, calls: map[uint64]call{}}
	model.Advance(0)
	var stop func()
	d.next, stop = iter.Pull(s.Arrivals.Schedule(time.Duration(s.For)))
	defer stop()
	d.coming, d.more = d.next()
	d.run(ctx, length)
	return d.side, ctx.Err()
}

type directRun struct {
	s     *scenario.Scenario
	model *fragile.Database
	side  *Side

	next    func() (arrivals.Arrival, bool)
	coming  arrivals.Arrival
	more    bool
	ready   []int // messages that can be delivered, in order
	later   retries
	calls   map[uint64]call
	sampled time.Duration
	faults  int // of those of the scenario, so many are over
}

type call struct {
	message int
	started time.Duration
}

// run goes from event to event.
func (d *directRun) run(ctx context.Context, length time.Duration) {
	for now := time.Duration(0); now <= length && ctx.Err() == nil; {
		for _, o := range d.model.Advance(int64(now)) {
			d.end(o)
		}
		for ; d.faults < len(d.s.Faults) && time.Duration(d.s.Faults[d.faults].At) <= now; d.faults++ {
			switch d.s.Faults[d.faults].What {
			case scenario.DatabaseStops:
				d.model.Halt(int64(now))
			case scenario.DatabaseReturns:
				d.model.Return(int64(now))
			}
		}
		for ; d.more && d.coming.At <= now; d.coming, d.more = d.next() {
			id := invariants.RowID(d.coming.Tenant, producers.ID(len(d.side.Record.Messages)))
			d.ready = append(d.ready, d.side.Record.Send(invariants.Message{ID: id, Tenant: d.coming.Tenant, Due: int64(d.coming.At)}))
		}
		for len(d.later) > 0 && d.later[0].at <= now {
			d.start(heap.Pop(&d.later).(retry).message, now)
		}
		for len(d.ready) > 0 && len(d.calls)+len(d.later) < directPending {
			d.start(d.ready[0], now)
			d.ready = d.ready[1:]
		}
		for ; d.sampled <= now; d.sampled += sampling {
			d.side.Health = append(d.side.Health, Sample{At: d.sampled, Database: d.model.Health(int64(now)), Peak: d.model.Peak(int64(now))})
		}
		// To the next event.
		then := d.sampled
		if at, ok := d.model.Next(); ok {
			then = min(then, time.Duration(at))
		}
		if d.more {
			then = min(then, d.coming.At)
		}
		if len(d.later) > 0 {
			then = min(then, d.later[0].at)
		}
		if d.faults < len(d.s.Faults) {
			then = min(then, time.Duration(d.s.Faults[d.faults].At))
		}
		now = max(now, then)
	}
}

func (d *directRun) start(message int, now time.Duration) {
	id, err := d.model.Start(int64(now))
	if err != nil {
		d.fail(message, now)
		return
	}
	d.calls[id] = call{message, now}
}

func (d *directRun) end(o fragile.Outcome) {
	c, ok := d.calls[o.ID]
	if !ok {
		return
	}
	delete(d.calls, o.ID)
	m := d.side.Record.Messages[c.message]
	if o.Err != nil || poisonous(m.ID, d.s.Poison) {
		d.fail(c.message, time.Duration(o.At))
		return
	}
	d.side.Record.Arrive(invariants.Arrived{ID: m.ID, Tenant: m.Tenant, Released: int64(c.started), Started: int64(c.started), Ended: o.At, Done: true})
}

// fail counts a call that did, which is all that is kept of it: there are many.
func (d *directRun) fail(message int, ended time.Duration) {
	d.side.Failed++
	heap.Push(&d.later, retry{ended + directAgain, message})
}

type retry struct {
	at      time.Duration
	message int
}

// retries orders them by time, and those of one time by message.
type retries []retry

func (r retries) Len() int { return len(r) }
func (r retries) Less(i, j int) bool {
	if r[i].at != r[j].at {
		return r[i].at < r[j].at
	}
	return r[i].message < r[j].message
}
func (r retries) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(v any)   { *r = append(*r, v.(retry)) }
func (r *retries) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}
