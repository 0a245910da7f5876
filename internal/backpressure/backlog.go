package backpressure

import (
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// meterWindow is how far back rates are measured.
const meterWindow = 5 * time.Second

// Deps are what a Backlog works with.
type Deps struct {
	// Clock reads monotonic nanoseconds.
	Clock func() int64
	// Rate is the pace the outlet aims at, per second; the drain rate before
	// there is a measured one. Infinite if it has none.
	Rate func() float64
	// Stalled reports that nothing is being delivered on purpose (the consumer is
	// down, or an operator paused), and until when; 0: nobody knows.
	Stalled func() (until int64, stalled bool)
	// Lenient: the watermarks are not enforced. Only what is logged differs.
	Lenient bool
	Logger  *slog.Logger
}

// Backlog counts the messages between the front door and the acknowledged
// delivery. Every event updates the level, so a decision never rests on a stale
// reading. Safe for concurrent use; an event costs an uncontended lock.
//
// Messages that were forwarded and that the outlet has not seen are not counted
// one by one: some of them never arrive, duplicates above all. Each confirmation
// of the front door's canary says how many messages went through the stream (M)
// and the stream's last sequence then (L). With F forwarded in all, and S the
// highest sequence the outlet has seen,
//
//	unseen = (F − M) + (L − S)
//
// since new messages arrive without gaps. The error is the duplicates since the
// last confirmation, at most 20 ms of them, and a message that is just being
// forwarded; with stored canaries, also the one that is under way. Before the
// outlet has caught up with what lay in the stream at the start, the stream's count
// takes the place of L − S.
type Backlog struct {
	deps    Deps
	rules   Rules
	log     *slog.Logger
	seed    maphash.Seed
	changed chan struct{}

	mu          sync.Mutex // guards all below
	signals     [signals]signal
	raised      uint8 // a bit a signal
	transitions transitions
	counts      counts
	tenants     tenants
	slots       calendar
	// Of the last Look: the slot it made, and whether it let the message in because its
	// tenant is below its part.
	made       ref
	lineBefore int64 // of the line that it stands in
	fairly     bool
	// saturated: those who were promised a place come first, see Look.
	saturated bool
	all       tenant // the account of all
	steps     uint32 // of the spread

	forwarded, confirmed uint64   // F, M
	lastSeq, seen        uint64   // L, S
	oldLast, oldLeft     uint64   // at the start: the last sequence, and how many of those up to it are not seen
	beside               []uint64 // sequences above L of what was stored beside the door

	// The stream's messages and bytes at the last count, and the bytes that entered
	// since.
	messages, bytes, bytesNow uint64

	// A generation of the tenants' counts is over once the outlet has seen turnSeq, the
	// stream's last sequence when a canary confirmed the first turnAt forwarded; 0: none
	// has yet.
	turnAt, turnSeq uint64

	admitted, drained *algorithms.Meter
	byPart            *algorithms.Meter // admitted in spite of pressure
	busySince         int64             // since when there has been work without a pause; 0: idle
	drainedBefore     uint64            // all that was drained until then
	stalledSince      int64             // since when nothing is delivered; 0: it is
}

type counts struct{ waiting, inFlight, delayed uint64 }

// New makes a Backlog.
func New(rules Rules, deps Deps) *Backlog {
	b := &Backlog{
		deps: deps, rules: rules,
		log:      deps.Logger.With("component", "backpressure"),
		seed:     maphash.MakeSeed(),
		changed:  make(chan struct{}, 1),
		tenants:  newTenants(rules.High, rules.Low),
		admitted: algorithms.NewMeter(meterWindow, 10),
		drained:  algorithms.NewMeter(meterWindow, 10),
		byPart:   algorithms.NewMeter(meterWindow, 10),
		all:      tenant{weight: 1, alone: true},
	}
	b.setSignals(rules)
	b.byPart.Add(deps.Clock(), 0) // its window begins now
	return b
}

// SetWeights makes w the weights of all tenants; who is not named has 1. w must not be
// changed afterwards.
func (b *Backlog) SetWeights(w map[string]uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tenants.reweigh(w)
}

// Start sets what lies in the stream before the first event: its last sequence
// and how many messages it holds.
func (b *Backlog) Start(lastSeq, messages uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastSeq, b.oldLast, b.oldLeft = lastSeq, lastSeq, messages
	b.update()
}

// recordBytes is what the broker adds to a message of so many bytes, about: its subject
// and the record around it.
const recordBytes = 64

// Enter counts a message of so many bytes, headers included, that the front door
// decided on at the instant now and forwarded. The outlet may have seen it already; the
// sums are signed. The slot it had is used up.
func (b *Backlog) Enter(now int64, ask Ask, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forwarded++
	b.bytesNow += uint64(bytes) + recordBytes
	b.admitted.Add(now, 1)
	if b.fairly {
		b.byPart.Add(now, 1)
	}
	if b.slots.live > 0 {
		b.claim(now, ask)
	}
	b.tenants.enter(ask.Tenant)
	b.update()
}

// claim takes the slot of a message that was let in, before the message itself counts: if
// its tenant is back at its part of LOW and nobody of it was promised anything, those who
// come next are let in.
func (b *Backlog) claim(now int64, ask Ask) {
	t := b.tenants.find(ask.Tenant)
	if t == nil {
		return
	}
	a := t
	if !b.rules.Fair {
		a = &b.all
	}
	switch {
	case b.made != 0: // refused, and let in all the same: the mode is not enforce
		a.line = b.lineBefore
		b.slots.remove(b.made)
		b.made = 0
		b.tenants.unslot(t)
	case t.slots > 0:
		r := b.slots.find(b.key(ask), t.id)
		if r != 0 && (ask.ID != "" || b.slots.at(r) <= now+int64(early)) {
			a.line = max(a.line, now)
			b.slots.remove(r)
			b.tenants.unslot(t)
		}
	}
}

// Stored takes the stream's own count of messages and bytes.
func (b *Backlog) Stored(messages, bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.bytes, b.bytesNow = messages, bytes, 0
	b.update()
}

// heavy reports whether the stream has no room in bytes, by its last count and what
// entered since; it requires that mu is held. A sixteenth is kept free, for what is under
// way at a count and for what differs.
func (b *Backlog) heavy() bool {
	return b.rules.MaxBytes > 0 && b.bytes+b.bytesNow > b.rules.MaxBytes-b.rules.MaxBytes/16
}

// Confirmed takes the front door's canary: of all forwarded messages so many
// went through the stream, whose last sequence then was lastSeq.
func (b *Backlog) Confirmed(forwarded, lastSeq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if forwarded >= b.confirmed {
		// L may be ahead of the canary, by what was replayed after it.
		b.confirmed, b.lastSeq = forwarded, max(lastSeq, b.lastSeq)
		b.forgetBeside()
		if b.turnSeq == 0 && forwarded >= b.turnAt {
			b.turnSeq = lastSeq
		}
	}
	b.update()
}

// Seen counts a message of a tenant that the outlet took in for the first time.
func (b *Backlog) Seen(seq uint64, tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq <= b.oldLast && b.oldLeft > 0 {
		b.oldLeft--
	}
	b.seen = max(b.seen, seq)
	b.counts.waiting++
	b.tenants.seen(tenant)
	b.update()
}

// Settled takes a message of a tenant off that the outlet has no more; Outlet tells the
// sums.
func (b *Backlog) Settled(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tenants.settled(tenant)
}

// Skipped notes a sequence the outlet has seen that is no message to deliver.
func (b *Backlog) Skipped(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = max(b.seen, seq)
	b.update()
}

// Outlet sets how many messages the outlet holds, by state, and adds what it
// finished since the last call.
func (b *Backlog) Outlet(waiting, inFlight, delayed, finished uint64) {
	now := b.deps.Clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts = counts{waiting, inFlight, delayed}
	if finished > 0 {
		b.drained.Add(now, finished)
	}
	if total := waiting + inFlight + delayed; total == 0 {
		b.busySince = 0
	} else if b.busySince == 0 {
		b.busySince, b.drainedBefore = now, b.drained.Total()
	}
	b.update()
}

// CaughtUp tells that the outlet has seen all the stream held up to lastSeq:
// what it has not seen of it was deleted under us.
func (b *Backlog) CaughtUp(lastSeq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lastSeq >= b.oldLast {
		b.oldLeft = 0
	}
	b.seen = max(b.seen, lastSeq)
	b.update()
}

// unseen requires that mu is held.
func (b *Backlog) unseen() uint64 {
	n := int64(b.forwarded) - int64(b.confirmed) + int64(len(b.beside))
	if b.seen < b.oldLast {
		return uint64(max(0, n+int64(b.lastSeq-b.oldLast)+int64(b.oldLeft)))
	}
	n += int64(b.lastSeq) - int64(b.seen)
	return uint64(max(0, n))
}

// depth requires that mu is held.
func (b *Backlog) depth() uint64 {
	return b.counts.waiting + b.counts.inFlight + b.counts.delayed + b.unseen()
}

// update brings the signals up to date; it requires that mu is held.
func (b *Backlog) update() {
	unseen := b.unseen()
	switch {
	case unseen == 0:
		b.tenants.none()
	case b.turnSeq != 0 && b.seen >= b.turnSeq:
		b.tenants.turn()
		b.turnAt, b.turnSeq = b.forwarded, 0
	}
	depth := b.counts.waiting + b.counts.inFlight + b.counts.delayed + unseen
	b.read(Depth, depth)
	if b.is(Depth) {
		b.saturated = true
	} else if b.saturated && b.slots.live == 0 && b.idle(depth) {
		b.saturated = false
	}
	if !b.rules.Fair {
		b.tenants.rate(b.whole())
	}
	if b.rules.MaxBytes > 0 {
		b.read(Bytes, b.bytes+b.bytesNow)
	}
}

// drainTime is how long n messages take to be delivered, in nanoseconds, once they are;
// it requires that mu is held.
func (b *Backlog) drainTime(now int64, n uint64) float64 {
	if n == 0 {
		return 0
	}
	return float64(n) / b.drainRate(now) * float64(time.Second)
}

// drainRate is what the outlet delivers a second while it has work and is not stalled.
// What was measured counts once there has been work for a second; before, the pace that
// the outlet aims at. It requires that mu is held.
func (b *Backlog) drainRate(now int64) float64 {
	aim := b.deps.Rate()
	if _, stalled := b.deps.Stalled(); stalled {
		return aim
	}
	busy := time.Duration(now - b.busySince)
	if b.busySince == 0 || busy < time.Second {
		return aim
	}
	// The delivery under way counts: at a slow pace the window may hold no other.
	if busy < meterWindow {
		// The window reaches back into idleness, which says nothing of the rate.
		return min(float64(b.drained.Total()-b.drainedBefore+1)/busy.Seconds(), aim)
	}
	return min(b.drained.PerSecond(now)+1/meterWindow.Seconds(), aim)
}
