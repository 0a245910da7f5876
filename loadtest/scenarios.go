package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/flowgate/flowgate/loadtest/invariants"
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
	short := f.Bool("short", false, "a few seconds each, to see that it works; what a scenario expects beside the promises is not held against it")
	length := f.Duration("for", 0, "another length; what happens when is moved in proportion")
	drain := f.Duration("drain", 2*time.Minute, "how long the backlog may take at the end")
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
		fmt.Fprint(out, summary(r), invariants.Report(r.Checks))
		for _, c := range r.Checks {
			broken = broken || !c.OK()
		}
	}
	if broken {
		return errBroken
	}
	return nil
}

// summary is what became of the messages, with flowgate and without.
func summary(r *trial.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %d messages in %s, over after %s; %d cores, %s\n", len(r.With.Record.Messages), time.Duration(r.Scenario.For), r.Took.Round(100*time.Millisecond), runtime.NumCPU(), runtime.Version())
	return b.String()
}
