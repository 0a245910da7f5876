package admission

import (
	"github.com/flowgate/flowgate/internal/backpressure"
	"github.com/flowgate/flowgate/internal/ingress"
)

// Backlog gives the front door the backlog.
type Backlog struct{ *backpressure.Backlog }

var _ ingress.Backpressure = Backlog{}

// Look implements ingress.Backpressure.
func (b Backlog) Look(now int64, ask ingress.Ask) ingress.Room {
	a := b.Backlog.Look(now, backpressure.Ask(ask))
	return ingress.Room{OK: a.OK, Wait: a.Wait, Stalled: a.Stalled, Full: a.Full, Own: a.Own}
}

// Enter implements ingress.Backpressure.
func (b Backlog) Enter(now int64, ask ingress.Ask, bytes int) {
	b.Backlog.Enter(now, backpressure.Ask(ask), bytes)
}
