package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowgate/flowgate/internal/simulation"
)

// errNotReached is said by what was printed.
var errNotReached = errors.New("no values reach the goal")

func (c cli) suggest(ctx context.Context, s *simulating) error {
	var tried func(int)
	if isTerminal(c.stderr) && !s.asJSON {
		tried = func(n int) { fmt.Fprintf(c.stderr, "\r%d simulations", n) }
		defer fmt.Fprint(c.stderr, "\r")
	}
	found, err := simulation.Suggest(ctx, simulated(s.config), s.scenario, s.goals, tried)
	if err != nil {
		return err
	}
	if s.asJSON {
		if err := c.printJSON(struct {
			*simulation.Suggestion
			Notes []string `json:"notes"`
		}{found, s.notes}); err != nil {
			return err
		}
	} else if err := c.printSuggestion(s, found); err != nil {
		return err
	}
	if !found.Reached {
		return errNotReached
	}
	return nil
}

func (c cli) printSuggestion(s *simulating, found *simulation.Suggestion) error {
	p := &page{w: c.stdout}
	switch {
	case found.Reached && len(found.Values) == 0:
		p.line("# the values there are reach the goal")
	case found.Reached:
		p.line("# these values reach the goal, with the smallest rate; found in %d simulations", found.Simulations)
	default:
		p.line("# no values reach the goal; of %d simulations this comes nearest", found.Simulations)
	}
	for _, v := range found.Values {
		was := v.Was
		if was == "" {
			was = "unlimited"
		}
		p.line("%s=%s   # was %s", v.Name, v.Value, was)
	}
	p.line("")
	for _, f := range found.Findings {
		mark := "[-]"
		if f.Reached {
			mark = "[+]"
		}
		p.line("%s %s: %s", mark, f.Goal, f.Says)
	}
	for _, why := range found.Why {
		p.line("    %s", why)
	}
	p.line("")
	if p.err != nil {
		return p.err
	}
	shown := *s
	with := found.Config()
	shown.config.Backpressure, shown.config.Shaper, shown.config.Limit = with.Backpressure, with.Shaper, with.Limit
	return printSimulation(c.stdout, &shown, found.Result)
}
