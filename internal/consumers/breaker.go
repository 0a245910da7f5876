package consumers

import (
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// BreakerState is whether deliveries may start.
type BreakerState uint8

// The breaker's states.
const (
	BreakerClosed BreakerState = iota
	BreakerOpen
	BreakerHalfOpen
)

// String names the state as status and metrics show it.
func (s BreakerState) String() string {
	return [...]string{"closed", "open", "half_open"}[s]
}

// Breaker holds deliveries back while the destination as a whole is down, so that
// an outage costs probes and not an attempt at each message.
//
//	          five failures in a row,
//	          or asked for a pause                wait over, one probe let out
//	closed ──────────────────────────────▶ open ───────────────────────────────▶ half open
//	   ▲                                    ▲                                      │   │
//	   │                                    └── failed: next longer wait ──────────┘   │
//	   └────────────────────────────────────── the destination answered ──────────────┘
//
// A failure is a call of which nothing came but overload; of the probe, its timeout
// too. Fewer in a row are no outage: a destination that takes only half of what it is
// sent still does something in between. The rate's answer to those is to go down; to
// stop and go would be a worse one. It makes no difference whether the connection was
// refused or the answer was 503: a lost connection is common and made anew by the
// next delivery, and five failures cost no message an attempt.
//
// A pause that was asked for is kept, whatever came before, and nothing is added to
// it. The breaker's own wait doubles from one opening to the next, up to 3 s: longer
// would save nothing, and cost as much once the destination is back.
//
// Only the probe can close it: a delivery that began before it opened and ends well
// says nothing of now. Deliveries are told apart by the epoch they began in.
type Breaker struct {
	backoff algorithms.Backoff
	random  func() float64

	mu       sync.Mutex
	state    BreakerState
	inRow    int // failures since the destination last answered
	openings int // since it was last closed
	until    time.Time
	probing  bool
	epoch    uint64
}

const (
	// breakerOpens is how many failures in a row open it.
	breakerOpens = 5
	// breakerMax is the longest it waits unasked.
	breakerMax = 3 * time.Second
)

// NewBreaker makes a closed one. random draws from [0, 1).
func NewBreaker(backoff algorithms.Backoff, random func() float64) *Breaker {
	backoff.Max = min(backoff.Max, breakerMax)
	backoff.Base = min(backoff.Base, backoff.Max)
	return &Breaker{backoff: backoff, random: random}
}

// Allow reports whether a delivery may start at the instant now, and if not, when
// to ask again. Half open, it lets out one, which is of the present epoch: the
// claim is given back by Record or by Release.
func (b *Breaker) Allow(now time.Time) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == BreakerOpen && !now.Before(b.until) {
		b.state = BreakerHalfOpen
	}
	switch {
	case b.state == BreakerClosed:
		return 0, true
	case b.state == BreakerHalfOpen && !b.probing:
		b.probing = true
		return 0, true
	case b.state == BreakerHalfOpen:
		return b.backoff.Base, false // the probe's end is news earlier
	}
	return b.until.Sub(now), false
}

// Epoch marks a delivery that starts now.
func (b *Breaker) Epoch() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.epoch
}

// Release gives back a claim of the given epoch that was not used; an older one
// was no probe's.
func (b *Breaker) Release(epoch uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch == b.epoch {
		b.probing = false
	}
}

// Record takes the end of a delivery that began in the given epoch: whether the
// destination failed as a whole, and the pause it asked for, 0 if none.
func (b *Breaker) Record(now time.Time, epoch uint64, failed bool, asked time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch != b.epoch {
		return
	}
	wait := asked
	if !failed {
		b.state, b.probing, b.inRow, b.openings = BreakerClosed, false, 0, 0
	} else if b.inRow++; b.inRow >= breakerOpens || b.state == BreakerHalfOpen {
		b.openings++
		wait = max(asked, b.backoff.Delay(b.openings, b.random()))
	}
	if wait == 0 {
		return
	}
	b.until = now.Add(wait)
	b.state, b.probing = BreakerOpen, false
	b.epoch++
}

// Down reports whether it opened by failures, and the destination has not answered since.
func (b *Breaker) Down() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.openings > 0
}

// State is the state at the instant of the last event.
func (b *Breaker) State() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
