package trial

import (
	"fmt"
	"math"
	"path"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/scenario"
)

// answerTime is within what the contract promises, 2 s, and what client and machine add.
const answerTime = 2500 * time.Millisecond

// checks looks at the promises of the scenario, and at what it expects.
func (t *trial) checks(cfg settings.Config) (checks []invariants.Check) {
	r := t.record
	for _, p := range scenario.Promises() {
		if !t.s.Checks(p) {
			continue
		}
		switch p {
		case scenario.NothingLost:
			checks = append(checks, r.NothingLost())
		case scenario.Once:
			checks = append(checks, r.Once())
		case scenario.Rate:
			if !cfg.Shaper.Rate.IsUnlimited() {
				checks = append(checks, invariants.Rate(r.Departures(int(cfg.Consumer.Batch)), cfg.Shaper.Rate, cfg.Shaper.Tolerance))
			}
		case scenario.Depth:
			checks = append(checks, r.Deepest(cfg.Backpressure.Max.Of(cfg.Backpressure.High)))
		case scenario.Order:
			checks = append(checks, r.Order(cfg.Consumer.Order == consumers.OrderTenant))
		case scenario.Answered:
			checks = append(checks, r.Answered(answerTime))
		}
	}
	if most := t.s.Expect.Crashes; most < math.MaxInt {
		checks = append(checks, crashes(t.side.Health, most))
	}
	for _, glob := range t.s.Expect.Unrefused {
		checks = append(checks, r.Unrefused(glob, func(tenant string) bool { ok, _ := path.Match(glob, tenant); return ok }))
	}
	if least := t.s.Expect.Fairness; least > 0 {
		checks = append(checks, r.Fair(least, t.began.UnixNano(), t.began.Add(time.Duration(t.s.For)).UnixNano()))
	}
	if t.s.Expect.DeadLetters {
		c := invariants.Check{Promise: "what never succeeds becomes a dead letter", Found: fmt.Sprintf("%d dead letters", len(r.DeadLetters))}
		if len(r.DeadLetters) == 0 {
			c.Broken = append(c.Broken, "there is none")
		}
		checks = append(checks, c)
	}
	if t.s.Leaks {
		checks = append(checks, leaks(t.side.Health))
	}
	return checks
}

// crashes checks how often the database went down by itself.
func crashes(health []Sample, most int) invariants.Check {
	c := invariants.Check{Promise: fmt.Sprintf("the database goes down by itself at most %d times", most)}
	n := 0
	for _, s := range health {
		if now := int(s.Database.Counts.Crashes); now > n {
			n = now
			if n > most {
				c.Broken = append(c.Broken, fmt.Sprintf("crash %d within 100 ms before %s", n, s.At.Round(time.Millisecond)))
			}
		}
	}
	c.Found = fmt.Sprintf("%d crashes", n)
	return c
}
