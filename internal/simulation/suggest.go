package simulation

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Suggestion is what Suggest found.
type Suggestion struct {
	// Reached: Values reach the goals. Else they come nearest of all that were tried.
	Reached bool `json:"reached"`
	// Values differ from those that there are; none: these are the best.
	Values   []Value   `json:"values"`
	Findings []Finding `json:"findings"`
	// Why says what stands in the way, or what the values rest on.
	Why []string `json:"why"`
	// Simulations is how many it took.
	Simulations int     `json:"simulations"`
	Result      *Result `json:"result"`

	config Config
	miss   float64
}

// Config is the one with the values.
func (s *Suggestion) Config() Config { return s.config }

// Value is a variable's.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Was   string `json:"was"`
}

// headroom is the part of the consumer's capacity that RATE may take.
const headroom = 0.9

// search is one for values.
type search struct {
	ctx      context.Context
	cfg      Config
	sc       Scenario
	goals    Goals
	tried    func(n int)
	capacity float64 // messages a second; +Inf: any number
	ceiling  float64 // of RATE
	n        int
}

// Suggest looks for values of HIGH, RATE and the tenants' limit that reach the goals, with the
// smallest RATE, by simulating. tried hears how many simulations there were so far; it may
// be nil.
func Suggest(ctx context.Context, cfg Config, sc Scenario, goals Goals, tried func(n int)) (*Suggestion, error) {
	s := &search{ctx: ctx, cfg: cfg, sc: sc, goals: goals, tried: tried}
	now, err := s.try([]Config{cfg})
	if err != nil {
		return nil, err
	}
	best := now[0]
	if best.miss == 0 {
		best.Why = []string{"the values there are reach it"}
		return s.finish(best), nil
	}
	first := best.Result
	s.capacity = sc.Consumer().Capacity(cfg.Consumer.Concurrency) * float64(cfg.Consumer.Batch)
	s.ceiling = headroom * s.capacity
	mean, busiest := float64(first.Offered)/first.Length, busiestSample(first)
	if math.IsInf(s.ceiling, 1) || s.ceiling > 4*busiest {
		s.ceiling = max(4*busiest, 1)
	}
	rates := niceRates(min(mean, s.ceiling)/2, s.ceiling)
	// What a rate reaches a larger one reaches too, so that halving finds the smallest.
	reached := -1
	for low, high := 0, len(rates)-1; low <= high; {
		middle := (low + high) / 2
		if reached < 0 {
			middle = high // is there any?
		}
		found, err := s.atRate(rates[middle], first)
		if err != nil {
			return nil, err
		}
		if found.miss == 0 || found.miss < best.miss && best.miss > 0 {
			best = found
		}
		switch {
		case found.miss == 0:
			reached, high = middle, middle-1
		case reached < 0:
			low = high + 1
		default:
			low = middle + 1
		}
	}
	s.explain(best, mean)
	return s.finish(best), nil
}

// atRate finds values with a RATE: of those that reach the goals, the first in an order that
// begins with the largest HIGH and the loosest limit.
func (s *search) atRate(rate float64, first *Result) (*Suggestion, error) {
	text := fmt.Sprintf("%g/s", rate)
	r, err := algorithms.ParseRate(text)
	if err != nil {
		return nil, fmt.Errorf("simulation: rate %s: %w", text, err)
	}
	var configs []Config
	for _, rules := range s.tenantLimits(first) {
		for _, high := range s.highs(rate) {
			c := s.cfg
			c.Shaper.Rate, c.Backpressure.High, c.Limit.Tenant = r, high, rules
			if c.Backpressure.Validate() == nil && c.Shaper.Validate() == nil && c.Limit.Validate() == nil {
				configs = append(configs, c)
			}
		}
	}
	if len(configs) == 0 {
		return nil, fmt.Errorf("simulation: with RATE %s no values are valid beside the others", text)
	}
	// A few at a time, those first that refuse least: the first that reaches the goals is it.
	var best *Suggestion
	for few := range slices.Chunk(configs, runtime.GOMAXPROCS(0)) {
		found, err := s.try(few)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if best == nil || f.miss < best.miss {
				best = f
			}
		}
		if best.miss == 0 {
			break
		}
	}
	return best, nil
}

// highs are those that may do: what is there, and what the rate delivers in the time that
// messages may wait.
func (s *search) highs(rate float64) []uint64 {
	highs := []uint64{s.cfg.Backpressure.High}
	bound := false
	for _, g := range s.goals {
		switch g.what {
		case "lag":
			bound = true
			highs = append(highs, nice(0.9*rate*g.under))
		case "depth":
			bound = true
			highs = append(highs, uint64(max(1, 0.95*g.under)))
		}
	}
	if !bound {
		highs = append(highs, 4*s.cfg.Backpressure.High)
	}
	slices.Sort(highs)
	highs = slices.Compact(highs)
	slices.Reverse(highs)
	return highs
}

// tenantLimits are what is there, and what lets pass those whom nothing should refuse and
// holds others to their rate.
func (s *search) tenantLimits(first *Result) []algorithms.Rules {
	limits := []algorithms.Rules{s.cfg.Limit.Tenant}
	for _, g := range s.goals {
		if g.what != "refusals" {
			continue
		}
		rate := g.tenants
		if rate == 0 {
			for _, t := range first.Tenants {
				rate = max(rate, 1.2*t.Busiest)
			}
		}
		n := nice(rate)
		if rules, err := algorithms.ParseRules(fmt.Sprintf("token-bucket:%d/s,burst=%d", n, 10*n)); err == nil {
			limits = append(limits, rules)
		}
	}
	return limits
}

// try simulates with each configuration.
func (s *search) try(configs []Config) ([]*Suggestion, error) {
	found, errs := make([]*Suggestion, len(configs)), make([]error, len(configs))
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, cfg := range configs {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			r, err := Run(s.ctx, cfg, s.sc)
			if errs[i] = err; err != nil {
				return
			}
			found[i] = &Suggestion{Result: r, config: cfg}
			found[i].Findings, found[i].miss = s.goals.Judge(r)
		})
	}
	all.Wait()
	s.n += len(configs)
	if s.tried != nil {
		s.tried(s.n)
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *search) explain(best *Suggestion, mean float64) {
	if !math.IsInf(s.capacity, 1) {
		best.Why = append(best.Why, fmt.Sprintf("the consumer bears %s, with FLOWGATE_CONSUMER_CONCURRENCY=%d; RATE was tried up to %s", rate(s.capacity), s.cfg.Consumer.Concurrency, rate(s.ceiling)))
	} else {
		best.Why = append(best.Why, fmt.Sprintf("the consumer takes no time; RATE was tried up to %s", rate(s.ceiling)))
	}
	if best.miss > 0 && mean > s.ceiling {
		best.Why = append(best.Why, fmt.Sprintf("%s arrive on average, which is more than it can be given: with any values messages wait ever longer, or are refused", rate(mean)))
	}
}

// finish says which values differ.
func (s *search) finish(best *Suggestion) *Suggestion {
	best.Reached, best.Simulations, best.Values = best.miss == 0, s.n, []Value{}
	for _, v := range []Value{
		{"FLOWGATE_BACKPRESSURE_HIGH", fmt.Sprint(best.config.Backpressure.High), fmt.Sprint(s.cfg.Backpressure.High)},
		{"FLOWGATE_SHAPER_RATE", best.config.Shaper.Rate.String(), s.cfg.Shaper.Rate.String()},
		{"FLOWGATE_LIMIT_TENANT", best.config.Limit.Tenant.String(), s.cfg.Limit.Tenant.String()},
	} {
		if v.Value != v.Was {
			best.Values = append(best.Values, v)
		}
	}
	return best
}

// busiestSample is the most messages a second offered in one.
func busiestSample(r *Result) (most float64) {
	last := 0.0
	for _, s := range r.Samples {
		if s.At > last {
			most = max(most, float64(s.Offered)/(s.At-last))
		}
		last = s.At
	}
	return max(most, float64(r.Offered)/r.Length)
}

var niceSteps = []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8}

// niceRates are round ones between two bounds, and the upper one itself, rounded down.
func niceRates(from, to float64) (rates []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(max(from, 0.01)))); power <= to; power *= 10 {
		for _, step := range niceSteps {
			if r := round(step*power, 3); r >= from && r < to {
				rates = append(rates, r)
			}
		}
	}
	return append(rates, round(to, 3))
}

// round keeps so many digits, and rounds down.
func round(v float64, digits int) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-float64(digits-1))
	v = math.Floor(v/unit+1e-9) * unit
	return math.Round(v*1e6) / 1e6
}

// nice is a number of two digits, rounded down, 1 at least.
func nice(v float64) uint64 {
	if v < 1 {
		return 1
	}
	return uint64(round(v, 2))
}

func rate(v float64) string { return fmt.Sprintf("%g/s", round(v, 3)) }
