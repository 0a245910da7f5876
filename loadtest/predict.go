package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/prediction"
	"github.com/flowgate/flowgate/loadtest/scenario"
	"github.com/flowgate/flowgate/loadtest/scenarios"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// errOff means that a prediction was off by too much.
var errOff = errors.New("a prediction was off")

// predictScenarios runs the scenarios that are named, or all in which nothing breaks and the
// rate is given, and holds beside each what is simulated of it.
func predictScenarios(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("loadtest predict", flag.ContinueOnError)
	f.Usage = scenarioUsage(f, "What flowgate simulate says of load tests, beside what they come to: docs/simulate.md.\nWithout a scenario those in which nothing breaks and the rate is given.")
	length := f.Duration("for", 0, "another length; what happens when is moved in proportion")
	drain := f.Duration("drain", 2*time.Minute, "how long the backlog may take at the end")
	within := f.Float64("within", 100*prediction.Within, "by how many percent depth and refusals may be off")
	var names []string
	for len(args) > 0 { // flags before and after names
		if err := f.Parse(args); err != nil {
			return err
		}
		if args = f.Args(); len(args) > 0 {
			names, args = append(names, args[0]), args[1:]
		}
	}
	chosen, err := predictable(names)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	missed := false
	for _, s := range chosen {
		if *length > 0 {
			s = s.Scaled(*length)
		}
		r, err := trial.Run(ctx, s, trial.Options{Program: program, Environ: os.Environ(), Output: os.Stderr, Drain: *drain, Record: true})
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		off, err := comparePrediction(ctx, r, *within/100, out)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		missed = missed || off
	}
	if missed {
		return errOff
	}
	return nil
}

// predictable are the scenarios of those names, or all whose simulation can be held against
// one run.
func predictable(names []string) (chosen []*scenario.Scenario, err error) {
	all := len(names) == 0
	if all {
		if names, err = scenarios.Names(); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		s, err := scenarios.Load(name)
		if err != nil {
			return nil, err
		}
		switch {
		case len(s.Faults) > 0 && !all:
			return nil, fmt.Errorf("%s: its faults are not simulated", name)
		case len(s.Faults) > 0:
		case all && s.Gateway["FLOWGATE_SHAPER_ADAPTIVE"] == "on":
			// Each latency that the database draws moves the rate: two runs differ by more than 5 %.
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

// comparePrediction prints a trial beside its simulations, from the scenario and from the recording,
// and reports whether one of them is off.
func comparePrediction(ctx context.Context, r *trial.Result, within float64, out io.Writer) (missed bool, err error) {
	s := r.Scenario
	high := r.Config.Backpressure.High
	fmt.Fprintf(out, "%s (%s; HIGH %d, RATE %s)\n", s.Name, time.Duration(s.For), high, r.Config.Shaper.Rate)
	for _, c := range r.Checks {
		if !c.OK() {
			fmt.Fprint(out, "  the run itself broke a promise:\n", invariants.Report([]invariants.Check{c}))
		}
	}
	measured := prediction.Measured(r)
	described, err := prediction.Predicted(ctx, r)
	if err != nil {
		return false, err
	}
	recorded, err := prediction.Replayed(ctx, r)
	if err != nil {
		return false, err
	}
	fromScenario, fromRecording := prediction.Compare(described, measured, high, within), prediction.Compare(recorded, measured, high, within)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  \tPREDICTED\tMEASURED\tDIFFERENCE\tFROM THE RECORDING\tDIFFERENCE")
	for i, row := range fromScenario {
		other := fromRecording[i]
		// The worst seconds need not be the same.
		if other.What != row.What {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t\t\n", row.What, amount(row.Predicted, row.Unit), amount(row.Measured, row.Unit), difference(row))
			fmt.Fprintf(t, "  %s\t\t%s\t\t%s\t%s\n", other.What, amount(other.Measured, other.Unit), amount(other.Predicted, other.Unit), difference(other))
			continue
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", row.What, amount(row.Predicted, row.Unit), amount(row.Measured, row.Unit), difference(row), amount(other.Predicted, other.Unit), difference(other))
	}
	return prediction.Missed(fromScenario) || prediction.Missed(fromRecording), t.Flush()
}

func amount(v float64, unit string) string {
	switch {
	case math.IsInf(v, 0):
		return "never"
	case unit != "":
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

func difference(r prediction.Row) string {
	text := fmt.Sprintf("%+.1f %%", 100*r.Off)
	if r.OfWhat == "HIGH" {
		text += " of HIGH"
	}
	if r.Missed {
		text += "  OFF"
	}
	return text
}
