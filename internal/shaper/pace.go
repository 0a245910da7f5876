package shaper

import (
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/consumers"
)

// pace is the departure clock, with its rate moved by what becomes of the deliveries
// if FLOWGATE_SHAPER_ADAPTIVE is on. The clock is the dispatcher's alone; observe
// may be called from anywhere.
type pace struct {
	*algorithms.DepartureClock
	// now is what others read of the rate.
	now     atomic.Pointer[RateState]
	metrics *rateMetrics
	log     *slog.Logger
	tell    rate.Sometimes

	mu       sync.Mutex
	adaptive *algorithms.AdaptiveRate // nil: the rate stands
	moved    bool                     // the clock has not followed yet
}

// RateState is the shaper's rate at an instant, in deliveries a second; +Inf if it is
// unlimited.
type RateState struct {
	Configured, Effective float64
	// Reason is why the effective rate is what it is.
	Reason algorithms.RateReason
}

func newPace(cfg Config, metrics *rateMetrics, log *slog.Logger) (*pace, error) {
	p := &pace{metrics: metrics, log: log, tell: rate.Sometimes{First: 3, Interval: 10 * time.Second}}
	first := cfg.Rate
	state := RateState{Configured: cfg.Rate.PerSecond(), Effective: cfg.Rate.PerSecond()}
	if cfg.Adaptive {
		adaptive, err := algorithms.NewAdaptiveRate(cfg.RateMin, cfg.Rate, cfg.TargetLatency)
		if err != nil {
			return nil, fmt.Errorf("FLOWGATE_SHAPER_RATE_MIN, FLOWGATE_SHAPER_TARGET_LATENCY: %w", err)
		}
		p.adaptive, first = adaptive, adaptive.Rate()
		state.Effective, state.Reason = first.PerSecond(), adaptive.Reason()
	}
	p.now.Store(&state)
	var err error
	if p.DepartureClock, err = algorithms.NewDepartureClock(first, cfg.Tolerance); err != nil {
		return nil, fmt.Errorf("FLOWGATE_SHAPER_RATE: %w", err)
	}
	return p, nil
}

// Wait is how long it is until a departure conforms to the rate as it is now.
func (p *pace) Wait(now int64) time.Duration {
	if p.adaptive != nil {
		p.follow()
	}
	return p.DepartureClock.Wait(now)
}

// follow gives the clock the present rate.
func (p *pace) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moved {
		return
	}
	p.moved = false
	if err := p.SetRate(p.adaptive.Rate()); err != nil {
		// Both ends were tried when it was made, and all between them conform.
		panic("shaper: " + err.Error())
	}
}

// spare is how much of its lateness is made up by a departure that waited for something
// else than the clock, a free place at the consumer above all, at up to 1,000/s. A database
// that has as many calls open as it may is behind: to be called the sooner the later it is
// keeps it there. (Eight calls at 200/s where the knee is at five: 96 % of the rate with all
// of the 5 ms made up, 98.6 to 99.2 % with this.) At higher rates it is the pauses of the
// scheduler that count: 10,000/s would come to 97 %.
const spare = time.Millisecond

// Depart lets n leave together at the instant now, if that conforms. held says that
// they waited for the rate and for nothing else.
func (p *pace) Depart(now int64, n uint64, held bool) bool {
	if p.adaptive != nil {
		p.mu.Lock()
		lowered := p.adaptive.Depart(now, n, held)
		p.change(lowered)
		p.mu.Unlock()
	}
	if !held && p.now.Load().Effective*spare.Seconds() <= 1 {
		p.Forgo(now - int64(spare))
	}
	return p.DepartureClock.Depart(now, n)
}

// observe takes what became of a delivery that departed at the instant started.
func (p *pace) observe(now, started int64, outcomes []consumers.Outcome) {
	if p.adaptive == nil {
		return
	}
	a := algorithms.Answer{Started: started}
	for _, o := range outcomes {
		a.Took = max(a.Took, int64(o.Took))
		switch {
		case o.Kind == consumers.Hold, o.Kind == consumers.Done && o.Err != nil: // was not tried
		case o.Kind == consumers.Done:
			a.Done++
		case o.Kind == consumers.Overload && o.Counted: // by the message, not by the rate
			a.Failed++
		case o.Kind == consumers.Overload && o.Wait > 0:
			a.Trouble = algorithms.RateRetryAfter
		case o.Kind == consumers.Overload:
			a.Trouble = max(a.Trouble, algorithms.RateOverload)
		case o.TimedOut:
			a.Trouble = max(a.Trouble, algorithms.RateTimeout)
		default:
			a.Failed++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(p.adaptive.Observe(now, a))
}

// change tells others of a rate that may have moved; it requires that mu is held.
func (p *pace) change(lowered bool) {
	was := p.now.Load()
	is := RateState{Configured: was.Configured, Effective: p.adaptive.Rate().PerSecond(), Reason: p.adaptive.Reason()}
	if is == *was {
		return
	}
	p.moved = true
	stored := is // the only thing allocated, and that for a change
	p.now.Store(&stored)
	switch {
	case lowered:
		p.metrics.lowered.WithLabelValues(is.Reason.String()).Inc()
		p.tell.Do(func() {
			p.log.Info("the rate was lowered", "from", perSecond(was.Effective), "to", perSecond(is.Effective), "reason", is.Reason.String())
		})
	case is.Reason != was.Reason && is.Reason == algorithms.RateConfigured:
		p.tell.Do(func() { p.log.Info("the rate is the configured one", "rate", perSecond(is.Effective)) })
	}
}

// perSecond is a rate as logs show it: two decimals are enough.
func perSecond(r float64) float64 { return math.Round(r*100) / 100 }

// Rate is the shaper's rate now.
func (s *Shaper) Rate() RateState { return *s.pace.now.Load() }
