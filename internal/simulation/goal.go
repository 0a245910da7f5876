package simulation

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/units"
)

// Goals are what is to be reached, all of it:
//
//	goals  = goal { ( "," | "and" ) goal }
//	goal   = quantile ( "lag" | "latency" ) "under" duration
//	       | "no refusals" [ whose ]
//	       | "refusals under" percentage [ whose ]
//	       | "depth under" number
//	       | "drain under" duration
//	quantile = "p50" | "p95" | "p99" | "max"
//	whose  = "for tenants under" rate
//
// Lag is from admission to the end of the delivery, latency from the first try. Refusals are
// messages refused once at least. A tenant is under a rate if its busiest ten seconds are.
type Goals []Goal

// Goal is one of them.
type Goal struct {
	// Text is the goal as it was written.
	Text string
	// what is measured: lag, latency, refusals, depth or drain; quantile of the first two.
	what, quantile string
	// under is the bound, in seconds, parts or messages; 0 of refusals is none at all.
	under float64
	// tenants counts only those under so many a second; 0: all.
	tenants float64
}

var goalForms = []struct {
	form *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`^(?P<quantile>p50|p95|p99|max) (?P<what>lag|latency) under (?P<duration>\S+)$`), ""},
	{regexp.MustCompile(`^no refusals(?: for tenants under (?P<rate>\S+))?$`), "refusals"},
	{regexp.MustCompile(`^refusals under (?P<part>\S+)(?: for tenants under (?P<rate>\S+))?$`), "refusals"},
	{regexp.MustCompile(`^depth under (?P<number>\S+)$`), "depth"},
	{regexp.MustCompile(`^drain under (?P<duration>\S+)$`), "drain"},
}

var between = regexp.MustCompile(`\s*,\s*|\s+and\s+`)

// ParseGoals reads goals.
func ParseGoals(s string) (Goals, error) {
	var goals Goals
	for _, text := range between.Split(strings.TrimSpace(s), -1) {
		g, err := parseGoal(strings.Join(strings.Fields(text), " "))
		if err != nil {
			return nil, err
		}
		goals = append(goals, g)
	}
	return goals, nil
}

func parseGoal(text string) (Goal, error) {
	for _, f := range goalForms {
		found := f.form.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		g := Goal{Text: text, what: f.what}
		var errs []error
		for i, name := range f.form.SubexpNames() {
			if name == "" || found[i] == "" {
				continue
			}
			if err := g.set(name, found[i]); err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", text, err))
			}
		}
		return g, errors.Join(errs...)
	}
	return Goal{}, fmt.Errorf("%q is no goal; there are: p99 lag under 5s, max latency under 1m, no refusals, no refusals for tenants under 50/s, refusals under 1%%, depth under 5000, drain under 2m", text)
}

func (g *Goal) set(name, value string) error {
	switch name {
	case "quantile":
		g.quantile = value
	case "what":
		g.what = value
	case "duration":
		d, err := units.ParseDuration(value)
		if err == nil && d == 0 {
			err = errors.New("nothing takes no time")
		}
		g.under = d.Seconds()
		return err
	case "rate":
		r, err := algorithms.ParseRate(value)
		if err == nil && (r.IsUnlimited() || r.N == 0) {
			err = fmt.Errorf("%s is no bound", value)
		}
		g.tenants = r.PerSecond()
		return err
	case "part":
		part, err := parsePart(value)
		g.under = part
		return err
	case "number":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a number of messages", value)
		}
		g.under = float64(n)
	}
	return nil
}

// Finding is how a simulation stands to a goal.
type Finding struct {
	Goal    string `json:"goal"`
	Reached bool   `json:"reached"`
	// Found is what was measured: seconds, messages, or of refusals the part.
	Found float64 `json:"found"`
	Says  string  `json:"says"`
	// miss is 0 if it is reached, and grows with what is lacking.
	miss float64
}

// Judge compares a result with the goals.
func (g Goals) Judge(r *Result) (findings []Finding, miss float64) {
	for _, goal := range g {
		f := goal.judge(r)
		findings, miss = append(findings, f), miss+f.miss
	}
	return findings, miss
}

func (g Goal) judge(r *Result) Finding {
	f := Finding{Goal: g.Text}
	switch g.what {
	case "refusals":
		return g.judgeRefusals(r)
	case "depth":
		f.Found = float64(r.Depth.Peak)
		f.Says = fmt.Sprintf("the depth reaches %d", r.Depth.Peak)
	case "drain":
		f.Found = r.Until - r.Length
		if f.Says = "it does not drain in " + seconds(f.Found); r.Drain != nil {
			f.Found = *r.Drain
			f.Says = "it drains in " + seconds(f.Found)
		}
	default:
		s := r.Lag
		if g.what == "latency" {
			s = r.Latency
		}
		f.Found = map[string]float64{"p50": s.P50, "p95": s.P95, "p99": s.P99, "max": s.Max}[g.quantile]
		f.Says = fmt.Sprintf("%s %s is %s", g.quantile, g.what, seconds(f.Found))
		if r.Drain == nil { // what is not delivered has no lag yet
			f.Found = max(f.Found, r.Until-r.Length)
			f.Says = "not all is delivered"
		}
	}
	f.Reached = f.Found < g.under && (g.what == "depth" || r.Drain != nil)
	if !f.Reached {
		f.miss = max(f.Found/g.under-1, 0.01)
	}
	return f
}

func (g Goal) judgeRefusals(r *Result) Finding {
	f := Finding{Goal: g.Text}
	offered, refused, whose, judged := uint64(0), uint64(0), 0, 0
	for _, t := range r.Tenants {
		if g.tenants > 0 && t.Busiest >= g.tenants {
			continue
		}
		judged++
		offered += t.Offered
		if refused += t.RefusedMessages; t.RefusedMessages > 0 {
			whose++
		}
	}
	f.Found = float64(refused) / float64(max(1, offered))
	f.Says = fmt.Sprintf("%d of %d messages are refused, of %d tenants", refused, offered, whose)
	if judged == 0 {
		f.Says = "no tenant is: nothing was held against it"
	}
	f.Reached = refused == 0 || f.Found < g.under
	if !f.Reached {
		f.miss = 0.01 + 10*(f.Found-g.under)
	}
	return f
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < 10*time.Millisecond:
	case d < 10*time.Second:
		d = d.Round(10 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return units.FormatDuration(d)
}
