// Command loadtest measures what flowgate claims, on this machine, and says beside
// each figure what it should be. It exits 1 if one is missed. Its commands are in usage.
//
// What survives crashes, restarts and outages is in its tests: go test -v ./loadtest
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"

	"github.com/flowgate/flowgate/loadtest/trial"
)

const usage = `Measures what flowgate claims, on this machine, and says beside each figure what it
should be; exits 1 if one is missed. Without a name all of the first are measured.

go run ./loadtest floors        ratios to raw JetStream in some seconds, held also in a short run
go run ./loadtest forwarding    raw JetStream publish against the same through flowgate
go run ./loadtest http          a bare HTTP handler that publishes against the HTTP ingress
go run ./loadtest rate          the rate promise, at 10, 100, 1,000 and 10,000 a second
go run ./loadtest ceiling       the shaper without a rate against a bare pull consumer
go run ./loadtest fairness      tenants by their weights, and a newcomer beside 1, 100 and 100,000 others
go run ./loadtest memory        a million messages of 1 KiB waiting, and their rate
go run ./loadtest adaptive      the adaptive rate against consumers of known capacity
go run ./loadtest backpressure  producers who obey the hints, beside two that do not read them
go run ./loadtest hog           nine quiet tenants beside one that publishes a hundred times its part
go run ./loadtest refusing      what pressure and refusals cost those who are admitted
go run ./loadtest takeover      from the end of one gateway to the first delivery of the one that stood by
go run ./loadtest idle          memory and processor with nothing to do
go run ./loadtest poison        batches with a bad row each against clean ones, into SQLite and PostgreSQL

go run ./loadtest run [-report dir] [scenario ...]   load tests with their promises checked: see docs/loadtest.md
go run ./loadtest predict [scenario ...]             what flowgate simulate says of them beside what they come to: see docs/simulate.md

Options of a measurement:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == trial.Command {
		if err := trial.Gateway(ctx, os.Environ(), os.Stdin, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "the gateway of the load test:", err)
			os.Exit(1)
		}
		return
	}
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

// measurement is one of those that can be made.
type measurement struct {
	name    string
	measure func(ctx context.Context, short bool) ([]figure, error)
}

// floors is the measurement for machines that are not quiet.
const floors = "floors"

func measurements() []measurement {
	return []measurement{
		{floors, measureFloors},
		{"forwarding", measureForwarding},
		{"http", measureHTTP},
		{"rate", measureRate},
		{"ceiling", measureCeiling},
		{"fairness", measureFairness},
		{"memory", measureMemory},
		{"adaptive", measureAdaptive},
		{"backpressure", measureBackpressure},
		{"hog", measureHog},
		{"refusing", measureRefusing},
		{"poison", measurePoison},
		{"takeover", measureTakeover},
		{"idle", measureIdle},
	}
}

// errMissed means that a figure was missed; all are printed.
var errMissed = errors.New("a figure was missed")

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "run" {
		return runScenarios(ctx, args[1:], out)
	}
	if len(args) > 0 && args[0] == "predict" {
		return predictScenarios(ctx, args[1:], out)
	}
	f := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(f.Output(), usage); f.PrintDefaults() }
	short := f.Bool("short", false, "a short run, to see that it works: its figures mean little, and the floors alone are held against it")
	if err := f.Parse(args); err != nil {
		return err
	}
	names := f.Args()
	if len(names) == 0 {
		for _, m := range measurements() {
			names = append(names, m.name)
		}
	}
	missed := false
	for _, name := range names {
		i := slices.IndexFunc(measurements(), func(m measurement) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("no measurement %q; loadtest -help lists them", name)
		}
		measure := measurements()[i].measure
		figures, err := measure(ctx, *short)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, f := range figures {
			missed = missed || f.missed() && holds(name, *short)
		}
		if err := print(out, name, figures); err != nil {
			return err
		}
	}
	if missed {
		return errMissed
	}
	return nil
}

// holds reports whether a missed figure of a measurement ends the run with an error.
func holds(name string, short bool) bool { return !short || name == floors }

// figure is something measured.
type figure struct {
	what  string
	value float64
	unit  string
	// least and most bound it; 0: it is only reported.
	least, most float64
}

func (f figure) missed() bool {
	return f.least != 0 && f.value < f.least || f.most != 0 && f.value > f.most
}

func print(out io.Writer, name string, figures []figure) error {
	fmt.Fprintln(out, name)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		verdict := ""
		switch {
		case f.least != 0 && f.most != 0:
			verdict = fmt.Sprintf("%g to %g", f.least, f.most)
		case f.least != 0:
			verdict = fmt.Sprintf("at least %g", f.least)
		case f.most != 0:
			verdict = fmt.Sprintf("at most %g", f.most)
		}
		if f.missed() {
			verdict += "  MISSED"
		}
		fmt.Fprintf(t, "  %s\t%.4g %s\t%s\n", f.what, f.value, f.unit, verdict)
	}
	return t.Flush()
}
