package backpressure

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// The hint's bounds. Below, the answer would come back before the producer has
// had time to wait; above, a producer would sleep through the recovery.
const (
	minHint = 50 * time.Millisecond
	maxHint = 60 * time.Second
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
	// Stalled reports that nothing is being delivered on purpose (the consumer
	// is down), so that no drain can be promised.
	Stalled func() bool
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
	deps  Deps
	marks Marks
	log   *slog.Logger

	mu     sync.Mutex // guards all below
	level  algorithms.Hysteresis
	counts counts

	forwarded, confirmed uint64   // F, M
	lastSeq, seen        uint64   // L, S
	oldLast, oldLeft     uint64   // at the start: the last sequence, and how many of those up to it are not seen
	beside               []uint64 // sequences above L of what was stored beside the door

	// The stream's messages and bytes at the last count, and the bytes that entered
	// since.
	messages, bytes, bytesNow uint64

	admitted, drained *algorithms.Meter
	busySince         int64  // since when there has been work without a pause; 0: idle
	drainedBefore     uint64 // all that was drained until then
	transitions       [2]uint64
	// A narrow band changes its level many times a second.
	raised, lowered rate.Sometimes
}

type counts struct{ waiting, inFlight, delayed uint64 }

// New makes a Backlog for the resolved marks.
func New(marks Marks, deps Deps) *Backlog {
	return &Backlog{
		deps: deps, marks: marks,
		log:      deps.Logger.With("component", "backpressure"),
		level:    algorithms.Hysteresis{High: marks.High, Low: marks.Low},
		admitted: algorithms.NewMeter(meterWindow, 10),
		drained:  algorithms.NewMeter(meterWindow, 10),
		raised:   rate.Sometimes{First: 10, Interval: 5 * time.Second},
		lowered:  rate.Sometimes{First: 10, Interval: 5 * time.Second},
	}
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
// sums are signed.
func (b *Backlog) Enter(now int64, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forwarded++
	b.bytesNow += uint64(bytes) + recordBytes
	b.admitted.Add(now, 1)
	b.update()
}

// Stored takes the stream's own count of messages and bytes.
func (b *Backlog) Stored(messages, bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.bytes, b.bytesNow = messages, bytes, 0
}

// overBytes is how many bytes the stream is over what it may hold, by its last count
// and what entered since; it requires that mu is held.
func (b *Backlog) overBytes() uint64 {
	if b.marks.MaxBytes == 0 {
		return 0
	}
	// An eighth is kept free, for what is under way at a count and for what differs.
	limit := b.marks.MaxBytes - b.marks.MaxBytes/8
	if sum := b.bytes + b.bytesNow; sum > limit {
		return sum - limit
	}
	return 0
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
	}
	b.update()
}

// Seen counts a message that the outlet took in for the first time.
func (b *Backlog) Seen(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq <= b.oldLast && b.oldLeft > 0 {
		b.oldLeft--
	}
	b.seen = max(b.seen, seq)
	b.counts.waiting++
	b.update()
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

// update brings the level up to date; it requires that mu is held.
func (b *Backlog) update() {
	depth := b.depth()
	pressured, changed := b.level.Update(depth)
	if !changed {
		return
	}
	if pressured {
		b.transitions[1]++
		b.raised.Do(func() {
			consequence := "producers are refused"
			if b.deps.Lenient {
				consequence = "producers would be refused if the mode were enforce"
			}
			b.log.Warn("backlog reached its high watermark: "+consequence, "depth", depth, "high", b.marks.High, "low", b.marks.Low, "times", b.transitions[1])
		})
	} else {
		b.transitions[0]++
		b.lowered.Do(func() {
			b.log.Info("backlog is back at its low watermark: producers are admitted", "depth", depth, "high", b.marks.High, "low", b.marks.Low, "times", b.transitions[0])
		})
	}
}

// Look reports whether the backlog takes a message at the instant now, and if
// not, after what time a retry will pass: the time until the depth is back at
// LOW at the measured drain rate, 50 ms to 60 s. full says that the stream itself
// has no room, in messages or bytes: that holds whether or not the watermarks are
// enforced.
func (b *Backlog) Look(now int64) (wait time.Duration, ok, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	depth := b.depth()
	heavy := b.overBytes()
	full = depth >= b.marks.Max || heavy > 0
	if !b.level.Pressured() && !full {
		return 0, true, false
	}
	var over uint64
	if depth > b.marks.Low && (b.level.Pressured() || depth >= b.marks.Max) {
		over = depth - b.marks.Low
	}
	if heavy > 0 && b.messages > 0 {
		// So many messages of the average size have to go.
		over = max(over, heavy/max(1, b.bytes/b.messages)+1)
	}
	return min(max(b.drainTime(now, over), minHint), maxHint), false, full
}

// Stay is how long a message admitted at the instant now will wait for its
// delivery.
func (b *Backlog) Stay(now int64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drainTime(now, b.depth())
}

// drainTime is how long n messages take to be delivered; it requires that mu is
// held.
func (b *Backlog) drainTime(now int64, n uint64) time.Duration {
	if n == 0 {
		return 0
	}
	rate := b.drainRate(now)
	seconds := float64(n) / rate
	if rate <= 0 || seconds > float64(math.MaxInt64/int64(time.Second)) {
		return math.MaxInt64
	}
	return time.Duration(seconds * float64(time.Second))
}

// drainRate is what the outlet delivers a second while it has work. What was
// measured counts once there has been work for a second; before, the pace that
// the outlet aims at. It requires that mu is held.
func (b *Backlog) drainRate(now int64) float64 {
	if b.deps.Stalled() {
		return 0
	}
	aim := b.deps.Rate()
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
