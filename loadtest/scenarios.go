package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/flowgate/flowgate/loadtest/invariants"
	"github.com/flowgate/flowgate/loadtest/report"
	"github.com/flowgate/flowgate/loadtest/scenarios"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// errBroken means that a promise was broken; the evidence is printed.
var errBroken = errors.New("a promise was broken")

// shortScenario is how long one lasts that only shows that it works.
const shortScenario = 4 * time.Second

// runScenarios makes the scenarios that are named, or all but the soak.
func runScenarios(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("loadtest run", flag.ContinueOnError)
	f.Usage = scenarioUsage(f, "Load tests with their promises checked, a gateway before a fragile database: docs/loadtest.md.\nWithout a scenario all but the soak.")
	short := f.Bool("short", false, "a few seconds each, to see that it works; what a scenario expects beside the promises is not held against it")
	length := f.Duration("for", 0, "another length; what happens when is moved in proportion")
	drain := f.Duration("drain", 2*time.Minute, "how long the backlog may take at the end")
	dir := f.String("report", "", "a directory for report.html and report.json")
	var names []string
	for len(args) > 0 { // flags before and after names
		if err := f.Parse(args); err != nil {
			return err
		}
		if args = f.Args(); len(args) > 0 {
			names, args = append(names, args[0]), args[1:]
		}
	}
	if len(names) == 0 {
		all, err := scenarios.Names()
		if err != nil {
			return err
		}
		for _, name := range all {
			if name != "soak" {
				names = append(names, name)
			}
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	broken := false
	var figures []*report.Figures
	for _, name := range names {
		s, err := scenarios.Load(name)
		if err != nil {
			return err
		}
		if *short {
			*length = shortScenario
			s.Expect, s.Leaks = s.Expect.None(), false
		}
		if *length > 0 {
			s = s.Scaled(*length)
		}
		fmt.Fprintf(out, "%s (%s): %s\n", s.Name, time.Duration(s.For), s.Shows)
		r, err := trial.Run(ctx, s, trial.Options{Program: program, Environ: os.Environ(), Output: os.Stderr, Drain: *drain})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		shown := report.Make(r)
		figures = append(figures, shown)
		fmt.Fprint(out, summary(shown), invariants.Report(r.Checks))
		if *dir != "" { // after each, so that one that fails does not cost the others
			if err := report.Write(*dir, figures); err != nil {
				return err
			}
		}
		for _, c := range r.Checks {
			broken = broken || !c.OK()
		}
	}
	if broken {
		return errBroken
	}
	return nil
}

// scenarioUsage is the help of a command for scenarios.
func scenarioUsage(f *flag.FlagSet, meaning string) func() {
	return func() {
		names, err := scenarios.Names()
		if err != nil {
			names = []string{err.Error()}
		}
		fmt.Fprintf(f.Output(), "usage: %s [options] [<scenario>|<file.yaml>]...\n\n%s\n\nscenarios: %s\n\n", f.Name(), meaning, strings.Join(names, ", "))
		f.PrintDefaults()
	}
}

// summary is what became of the messages, with flowgate and without.
func summary(f *report.Figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %d messages, over after %.1f s; %d cores, %s\n  %s\n", f.With.Messages, f.Took, f.Cores, f.Go, f.Headline())
	fmt.Fprintf(&b, "  due to done: p50 %.0f ms, p99 %.0f ms; without flowgate %.0f ms, %.0f ms\n", f.With.Delivery.P50, f.With.Delivery.P99, f.Without.Delivery.P50, f.Without.Delivery.P99)
	return b.String()
}
