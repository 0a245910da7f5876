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
	Depths []uint64
	Peak   uint64
	Mean   float64
	// Refused counts tries that were told so, by reason.
	Refused map[string]uint64

	Delivered, DeadLetters uint64
	// Drain is the time from the last arrival's end until all was delivered, in seconds; +Inf if
	// it was not.
	Drain float64
}

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
	area, depth, last := 0.0, 0, int64(0)
	pass := func(to int64) {
		if end := min(to, int64(length)); end > last {
			area += float64(depth) * float64(end-last)
		}
		for second := int64(len(o.Depths)+1) * int64(time.Second); second < to; second += int64(time.Second) {
			o.Depths = append(o.Depths, uint64(depth))
		}
		last = max(last, to)
	}
	for _, l := range levels {
		pass(l.At)
		depth = l.Depth
		o.Peak = max(o.Peak, uint64(depth))
	}
	emptied := last
	pass(max(last, int64(length)) + int64(time.Second))
	o.Mean = area / float64(length)
	if depth == 0 && record.Waiting == 0 {
		o.Drain = time.Duration(max(0, emptied-int64(length))).Seconds()
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

// Predicted is what a simulation of a trial comes to, with the arrivals that are given: the
// scenario's own, or what was recorded of it.
func Predicted(ctx context.Context, r *trial.Result, came iter.Seq[arrivals.Arrival]) (Outcome, error) {
	s, c := r.Scenario, r.Config
	length := time.Duration(s.For)
	producers, silent := behaviour(s)
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
		o.Drain = *got.Drain
	}
	for _, sample := range got.Samples {
		o.Depths = append(o.Depths, sample.Depth)
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
