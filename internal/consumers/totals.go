package consumers

import (
	"sync/atomic"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Totals are what a desk did since its start.
type Totals struct {
	// Done, Retried and DeadLettered are attempts by what became of the message.
	Done, Retried, DeadLettered uint64
	// Latency is how long the destination took, a message each.
	Latency algorithms.SpanCounts
}

// deskTotals are kept beside the metrics: those are by tenant, and to add them up each
// second would cost a look at every series.
type deskTotals struct {
	done, retried, deadLettered atomic.Uint64
	latency                     algorithms.Spans
}

func (t *deskTotals) ended(outcome string) {
	switch outcome {
	case "done":
		t.done.Add(1)
	case "retried":
		t.retried.Add(1)
	case "dead_lettered":
		t.deadLettered.Add(1)
	}
}

// Totals reads them.
func (d *Desk) Totals() Totals {
	t := &d.metrics.totals
	return Totals{
		Done: t.done.Load(), Retried: t.retried.Load(), DeadLettered: t.deadLettered.Load(),
		Latency: t.latency.Read(),
	}
}
