package simulation

// kind says what an event is. Of those at one instant the lower comes first.
type kind uint8

const (
	delivered kind = iota // a delivery ends
	held                  // the door looks at what it holds
	stepped               // the outlet may start deliveries
	tried                 // a producer tries again
	arrived               // the schedule's next
	paused                // an operator's pause begins
	ticked                // a second is over
)

// event is one that is planned.
type event struct {
	at    int64
	order uint64 // among those of one instant and kind
	kind  kind
	of    int32
}

func (e event) before(o event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.kind != o.kind {
		return e.kind < o.kind
	}
	return e.order < o.order
}

// agenda is a heap of events, the next one first. It is container/heap without an
// allocation an event.
type agenda struct {
	events []event
	order  uint64
}

func (a *agenda) add(at int64, k kind, of int32) {
	a.order++
	h := append(a.events, event{at, a.order, k, of})
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	a.events = h
}

func (a *agenda) pop() event {
	h := a.events
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	a.events = h
	return first
}
