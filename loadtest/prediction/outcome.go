package prediction

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/simulation"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/scenario"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// Outcome is what happened, or is predicted to.
type Outcome struct {
	// Depths are those at the end of each second since the beginning, Peak is the largest of
	// all, and Mean that over the time in which messages came.
	Depths []Depth
	Peak   uint64
	Mean   float64
	// Refused counts tries that were told so, by reason.
	Refused map[string]uint64

	Delivered, DeadLetters uint64
	// Drain is the time from the last arrival's end until all was delivered, in seconds; +Inf if
	// it was not.
	Drain float64
}

// Depth is the least and the most within a tenth of a second around an instant, where it was
// measured: a burst takes the clients some time. A prediction knows the instant itself.
type Depth struct{ Low, High uint64 }

const around = 100 * time.Millisecond

// Refusals are all of them.
func (o Outcome) Refusals() (n uint64) {
	for _, of := range o.Refused {
		n += of
	}
	return n
}

// Measured is what a trial came to. The depth is that between the broker's time of storing
// and the database's of being done, seen from outside.
func Measured(r *trial.Result) Outcome {
	length := time.Duration(r.Scenario.For)
	record := r.With.Record
	o := Outcome{Refused: map[string]uint64{}, DeadLetters: uint64(len(record.DeadLetters)), Drain: math.Inf(1)}
	levels := record.Depths()
	o.Depths = depths(levels, length)
	area, depth, last := 0.0, 0, int64(0)
	for _, l := range levels {
		if end := min(l.At, int64(length)); end > last {
			area += float64(depth) * float64(end-last)
		}
		depth, last = l.Depth, max(last, l.At)
		o.Peak = max(o.Peak, uint64(depth))
	}
	area += float64(depth) * float64(max(0, int64(length)-last))
	o.Mean = area / float64(length)
	if depth == 0 && record.Waiting == 0 {
		o.Drain = time.Duration(max(0, last-int64(length))).Seconds()
	}
	for _, t := range record.Tries {
		switch t.Told {
		case invariants.Acked, invariants.NotAsked, invariants.NoAnswer, invariants.Nobody:
		default:
			o.Refused[t.Told]++
		}
	}
	done := map[string]bool{}
	for _, d := range record.Deliveries {
		if d.Done {
			done[d.ID] = true
		}
	}
	o.Delivered = uint64(len(done))
	return o
}

// depths are those of each second until the last change, and of all that messages came in.
func depths(levels []invariants.Level, length time.Duration) (of []Depth) {
	now := 0
	for at := time.Second; len(levels) > 0 || at <= length; at += time.Second {
		for ; len(levels) > 0 && levels[0].At <= int64(at-around); levels = levels[1:] {
			now = levels[0].Depth
		}
		d := Depth{uint64(now), uint64(now)}
		for ; len(levels) > 0 && levels[0].At <= int64(at+around); levels = levels[1:] {
			now = levels[0].Depth
			d.Low, d.High = min(d.Low, uint64(now)), max(d.High, uint64(now))
		}
		of = append(of, d)
	}
	return of
}

// Predicted is what a simulation of a trial comes to.
func Predicted(ctx context.Context, r *trial.Result) (Outcome, error) {
	producers, silent := behaviour(r.Scenario)
	return simulate(ctx, r, r.Scenario.Arrivals.Schedule(time.Duration(r.Scenario.For)), time.Duration(r.Scenario.For), producers, silent)
}

// Replayed is what a simulation of its recording comes to: of the messages, as they came for the
// first time; or, without ids, by which they are known again, of all tries and no other.
func Replayed(ctx context.Context, r *trial.Result) (Outcome, error) {
	producers, silent := behaviour(r.Scenario)
	length := time.Duration(r.Scenario.For)
	if r.Scenario.NoIDs {
		producers = simulation.Producers{Default: simulation.Forget}
		if n := len(r.Recording.Tries); n > 0 { // the last come after the load's end
			length = max(length, r.Recording.Tries[n-1].At+time.Millisecond)
		}
	}
	return simulate(ctx, r, func(yield func(arrivals.Arrival) bool) {
		for _, t := range r.Recording.Tries {
			if (r.Scenario.NoIDs || !t.Again) && !yield(t.Arrival) {
				return
			}
		}
	}, length, producers, silent)
}

// simulate has messages come for so long; means and drain count from the scenario's end.
func simulate(ctx context.Context, r *trial.Result, came iter.Seq[arrivals.Arrival], length time.Duration, producers simulation.Producers, silent func(string) bool) (Outcome, error) {
	s, c := r.Scenario, r.Config
	producers.Patience = length + r.Drain
	sc := simulation.Scenario{
		Arrivals: came, Length: length, Producers: producers, Consumer: simulation.Database(s.Database), NoIDs: s.NoIDs, Seed: 1, After: 2 * r.Drain,
	}
	if s.Poison > 0 {
		sc.Poison = func(tenant string, number int) bool { return trial.Poisoned(s.Poison, tenant, number) }
	}
	got, err := simulation.Run(ctx, simulation.Config{
		Mode: c.Mode, Ingress: c.Ingress, Limit: c.Limit, Backpressure: c.Backpressure, Shaper: c.Shaper, Consumer: c.Consumer,
	}, sc)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Peak: got.Depth.Peak, Mean: got.Depth.Mean, Refused: map[string]uint64{}, Delivered: got.Delivered, DeadLetters: got.DeadLettered, Drain: math.Inf(1)}
	if got.Drain != nil {
		o.Drain = *got.Drain + (length - time.Duration(s.For)).Seconds()
	}
	for _, sample := range got.Samples {
		o.Depths = append(o.Depths, Depth{sample.Depth, sample.Depth})
	}
	if seconds := int(time.Duration(s.For) / time.Second); length > time.Duration(s.For) && seconds > 0 && len(o.Depths) >= seconds {
		o.Mean = 0 // not over all that length
		for _, d := range o.Depths[:seconds] {
			o.Mean += float64(d.Low) / float64(seconds)
		}
	}
	for _, t := range got.Tenants {
		if silent(t.Tenant) {
			continue
		}
		for reason, n := range t.Refused {
			o.Refused[reason] += n
		}
	}
	return o, nil
}

// behaviour is what a scenario's producers do, and who of them are told nothing.
func behaviour(s *scenario.Scenario) (p simulation.Producers, silent func(tenant string) bool) {
	p.Default = simulation.ObeyEach
	for _, one := range s.Producers {
		b := simulation.ObeyEach
		switch {
		case one.Refused.Forget || one.Via == scenario.NoReply:
			b = simulation.Forget
		case one.Refused.After > 0:
			b = simulation.Behaviour(one.Refused.After.String())
		}
		p.Tenants = append(p.Tenants, simulation.TenantBehaviour{Glob: one.Tenant, Behaviour: b})
	}
	return p, func(tenant string) bool {
		one, i := s.Producer(tenant)
		return i >= 0 && one.Via == scenario.NoReply
	}
}
