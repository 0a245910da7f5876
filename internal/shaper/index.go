package shaper

import (
	"container/heap"
	"strings"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/consumers"
)

// index holds every message of the backlog that the feed has seen and that is not
// done: by sequence, in a queue a tenant, and by due time if delayed. The caller
// holds the lock.
//
// Taking the next message is O(log tenants with messages), delaying one is
// O(log delayed). Tenants without messages cost nothing once their debt is over.
type index struct {
	// ordered: a tenant's next message is not taken before the one ahead is done.
	ordered bool
	weights Weights

	slab     slab
	seqs     seqTable
	lanes    map[string]*lane
	numbered []*lane // by number
	spare    []uint32
	fair     algorithms.FairQueue
	// out are the lanes with messages whose first is being read: they keep their turn,
	// and hold nobody up.
	out     []*lane
	delays  dueHeap
	tries   map[uint64]tries // of messages that have something behind them, or kept
	writing int              // whose next attempt is being written down
	waiting int
	flying  int
	// budget is how many bytes of bodies are kept; held is how many are, and coming are
	// those that are being read.
	budget, held, coming int64
	unloaded             int // waiting messages whose body is not in memory
	good                 int // how many may still be taken until what comes next is looked at
	// suspects are the first suspectsEach of each tenant up to the sequence suspectsTo:
	// one of them may have ended the process before this one.
	suspectsTo   uint64
	suspectsEach int
	// lowest is at most the lowest sequence there is, see oldest.
	lowest uint64
}

// tries is what a message has behind it.
type tries struct {
	counted int32 // attempts that counted
	kept    bool  // the state bucket has an entry of it
	// yields: deliveries were held back after its last attempt, and another message is
	// to be the next that finds out whether the consumer is back.
	yields   bool
	refusals consumers.Refusals
}

// lane is one tenant's queue, in stream order but for retries.
type lane struct {
	tenant     string
	flow       algorithms.Flow
	head, tail ref
	messages   int // of this tenant in the index, in any state
	away       int // of them in flight or delayed
	out        bool
	turn       bool // it stands in the fair queue
	// cursor is where a look ahead has come to.
	cursor   ref
	suspects int // how many it had
}

func newIndex(budget int64, ordered bool, weights Weights) *index {
	return &index{
		ordered: ordered, weights: weights,
		lanes: map[string]*lane{}, tries: map[uint64]tries{}, budget: budget,
	}
}

// find is the message of a sequence, nil if it is not there.
func (x *index) find(seq uint64) *message {
	if r := x.seqs.find(&x.slab, seq); r != 0 {
		return x.slab.at(r)
	}
	return nil
}

// arrival is a message that comes in.
type arrival struct {
	message
	tenant string
	body   []byte // nil: let go already
	due    int64  // 0: at once
	tries  int32
}

// arrivalShare is the part of the budget that what comes in may fill; the rest is for
// what is read again. Both in quarters.
const arrivalShare = 3

// add takes in a message that is not there yet, delayed if it has a due time. A body
// over the budget is let go; it is read again when its turn comes near.
func (x *index) add(a *arrival) {
	l := x.lane(a.tenant)
	r, m := x.slab.take()
	*m = a.message
	m.lane = l.flow.ID
	if a.body != nil && x.room(len(a.body)) {
		m.setBody(a.body)
		x.held += int64(m.size)
	}
	if m.seq <= x.suspectsTo && l.suspects < x.suspectsEach {
		l.suspects++
		m.set(careful, true)
	}
	if a.tries > 0 {
		x.tries[m.seq] = tries{counted: a.tries, kept: true}
		m.set(careful, true)
	}
	x.seqs.add(&x.slab, r)
	if x.seqs.used == 1 || m.seq < x.lowest {
		x.lowest = m.seq
	}
	l.messages++
	if a.due != 0 {
		l.away++
		m.setState(delayed)
		heap.Push(&x.delays, due{a.due, r})
	} else {
		x.enqueue(l, r, m)
	}
	x.seat(l)
}

// room reports whether a body that comes in may be kept.
func (x *index) room(size int) bool { return x.held+int64(size) <= x.budget/4*arrivalShare }

// lane is a tenant's, made if it is not there.
func (x *index) lane(tenant string) *lane {
	if l := x.lanes[tenant]; l != nil {
		return l
	}
	l := &lane{tenant: strings.Clone(tenant)}
	if n := len(x.spare); n > 0 {
		l.flow.ID, x.spare = x.spare[n-1], x.spare[:n-1]
		x.numbered[l.flow.ID] = l
	} else {
		l.flow.ID = uint32(len(x.numbered))
		x.numbered = append(x.numbered, l)
	}
	l.flow.SetWeight(max(1, x.weights[l.tenant]))
	x.lanes[l.tenant] = l
	return l
}

// enqueue puts m at the end of its lane.
func (x *index) enqueue(l *lane, r ref, m *message) {
	x.queued(m)
	if l.head == 0 {
		l.head = r
	} else {
		x.slab.at(l.tail).next = r
	}
	l.tail = r
}

// stepIn puts m back in front: it is among its tenant's oldest. Of an ordered lane
// nobody has passed it, so its place is by its sequence.
func (x *index) stepIn(l *lane, r ref, m *message) {
	x.queued(m)
	if l.head == 0 || !x.ordered || x.slab.at(l.head).seq > m.seq {
		if m.next = l.head; l.head == 0 {
			l.tail = r
		}
		l.head = r
		return
	}
	before := x.slab.at(l.head)
	at := l.head
	for before.next != 0 && x.slab.at(before.next).seq < m.seq {
		at = before.next
		before = x.slab.at(at)
	}
	m.next, before.next = before.next, r
	if l.tail == at {
		l.tail = r
	}
}

func (x *index) queued(m *message) {
	m.setState(waiting)
	x.waiting++
	if !m.loaded() {
		x.unloaded++
	}
}

// seat gives l its place in the fair queue if it has something to take, and takes it
// away if it has not.
func (x *index) seat(l *lane) {
	wants := l.head != 0 && (!x.ordered || l.away == 0)
	switch {
	case l.out && !wants:
		x.stepBack(l)
	case l.out && x.slab.at(l.head).loaded() && !x.slab.at(l.head).is(loading):
		x.stepBack(l)
		l.turn = true
		x.fair.Rejoin(&l.flow)
	case wants && !l.turn && !l.out:
		l.turn = true
		x.fair.Enter(&l.flow)
	case !wants && l.turn:
		l.turn = false
		x.fair.Leave(&l.flow)
	}
	if l.messages == 0 && !x.fair.Rest(&l.flow) {
		x.close(l)
	}
	for f := x.fair.Rested(); f != nil; f = x.fair.Rested() {
		if l := x.numbered[f.ID]; l.messages == 0 {
			x.close(l)
		}
	}
}

func (x *index) close(l *lane) {
	if x.lanes[l.tenant] != l {
		return
	}
	delete(x.lanes, l.tenant)
	x.numbered[l.flow.ID] = nil
	x.spare = append(x.spare, l.flow.ID)
}

// stepOut takes l, whose first message is not in memory, out of the fair queue.
func (x *index) stepOut(l *lane) {
	l.turn, l.out = false, true
	x.fair.Leave(&l.flow)
	x.out = append(x.out, l)
}

// stepBack undoes stepOut but for the fair queue.
func (x *index) stepBack(l *lane) {
	l.out = false
	for i, o := range x.out {
		if o == l {
			x.out[i] = x.out[len(x.out)-1]
			x.out = x.out[:len(x.out)-1]
			return
		}
	}
}

// take takes up to n messages out, next in turn first, among those that are ready, and
// marks them in flight. Of ordered lanes they are one tenant's. What is to be handled
// with care, and would be next, has its attempt written down first: write asks for it,
// and returns false if it can take no more.
func (x *index) take(n int, write func(*message) bool) []*message {
	var batch []*message
	for len(batch) < n {
		f := x.fair.Next()
		if f == nil {
			break
		}
		l := x.numbered[f.ID]
		m := x.slab.at(l.head)
		switch {
		case !m.loaded():
			x.stepOut(l)
			continue
		case m.is(careful):
			// No further ahead than this batch: an attempt that is written down and not
			// made would count if the process ended.
			if !x.writeDown(l, n, write) {
				return batch
			}
			continue
		}
		batch = append(batch, x.depart(l))
		if !x.ordered {
			x.seat(l)
			continue
		}
		for len(batch) < n && l.head != 0 && x.slab.at(l.head).ready() {
			batch = append(batch, x.depart(l))
		}
		x.seat(l)
		break
	}
	return batch
}

// writeDown asks for the attempts at l's next messages to be written down, for so many
// as make a batch of n, and takes l out of the fair queue meanwhile. It returns false if
// enough are being written.
func (x *index) writeDown(l *lane, n int, write func(*message) bool) bool {
	if !x.slab.at(l.head).is(loading) {
		if x.writing >= n {
			return false
		}
		for r := l.head; r != 0 && x.writing < n; r = x.slab.at(r).next {
			m := x.slab.at(r)
			if !m.loaded() || !m.is(careful) || m.is(loading) {
				break
			}
			if !write(m) {
				if r == l.head {
					return false
				}
				break
			}
			m.set(loading, true)
			x.writing++
		}
	}
	x.stepOut(l)
	return true
}

// written says that the attempt at m was written down.
func (x *index) written(m *message) {
	x.unasked(m)
	m.set(careful, false)
	t := x.tries[m.seq]
	t.kept = true
	x.tries[m.seq] = t
	x.seat(x.numbered[m.lane])
}

// depart takes l's first message out and charges for it.
func (x *index) depart(l *lane) *message {
	m := x.slab.at(l.head)
	if l.head, m.next = m.next, 0; l.head == 0 {
		l.tail = 0
	}
	x.waiting--
	x.flying++
	x.good--
	l.away++
	m.setState(inFlight)
	x.fair.Serve(&l.flow, m.cost())
	return m
}

// back undoes take for a message that was not delivered.
func (x *index) back(m *message) {
	x.flying--
	l := x.numbered[m.lane]
	l.away--
	x.stepIn(l, x.seqs.find(&x.slab, m.seq), m)
	x.seat(l)
}

// done forgets m, which is in flight.
func (x *index) done(m *message) {
	x.flying--
	l := x.numbered[m.lane]
	l.away--
	x.forget(m)
	x.seat(l)
}

func (x *index) forget(m *message) {
	r := x.seqs.find(&x.slab, m.seq)
	x.seqs.remove(&x.slab, m.seq)
	delete(x.tries, m.seq)
	if m.loaded() {
		x.held -= int64(m.size)
	}
	x.numbered[m.lane].messages--
	x.slab.give(r)
}

// takeable is how many messages could be taken at most once they are ready, as far as
// it matters for a batch of n.
func (x *index) takeable(n int) int {
	if !x.ordered {
		return x.waiting
	}
	most := 0
	consider := func(l *lane) {
		k := 0
		for r := l.head; r != 0 && k < n; r = x.slab.at(r).next {
			k++
		}
		most = max(most, k)
	}
	if f := x.fair.Next(); f != nil {
		consider(x.numbered[f.ID])
	}
	for _, l := range x.out {
		consider(l)
	}
	return most
}

// setWeights changes the weights for what is taken from now on.
func (x *index) setWeights(w Weights) {
	x.weights = w
	for _, l := range x.lanes {
		l.flow.SetWeight(max(1, w[l.tenant]))
	}
}

func (x *index) len() int { return x.seqs.used }
