// Command peers sends the same messages through flowgate and through what people use in
// its place, one after the other on one machine, to the same model of a fragile
// database: a stream of JetStream with a limit and a client that sleeps, Watermill's
// Throttle, Benthos' rate_limit, a quorum queue of RabbitMQ, and golang.org/x/time/rate
// before a pool of workers.
//
//	go run . [-short] [-only=name] [-json=file] [-report=file.html] [-write=comparison.md]
//
// Arrivals follow a schedule and do not wait for answers. It is a module of its own, so
// that the peers are not flowgate's dependencies. It judges nobody: it exits 1 only if
// something did not run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == "work" {
		err = work(ctx, os.Args[2:], os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func find(name string) (contestant, error) {
	var names []string
	for _, c := range contestants {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return contestant{}, fmt.Errorf("no peer %q; there are %s", name, strings.Join(names, ", "))
}

// outcome is a whole run.
type outcome struct {
	Go         string            `json:"go"`
	System     string            `json:"system"`
	Processor  string            `json:"processor"`
	Processors int               `json:"processors"`
	Short      bool              `json:"short"`
	Began      time.Time         `json:"began"`
	Took       string            `json:"took"`
	Load       string            `json:"load_before"` // of the machine
	Versions   map[string]string `json:"versions"`
	Absent     map[string]string `json:"absent,omitempty"` // and why
	Results    []result          `json:"results"`
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	short := f.Bool("short", false, "a short run, several side by side, to see that they work: its figures mean nothing")
	only := f.String("only", "", "one of the peers; all without it")
	asJSON := f.String("json", "", "write all figures to this file")
	report := f.String("report", "", "write a page with tables and charts to this file")
	write := f.String("write", "", "put tables and charts between the marks of this Markdown file")
	from := f.String("from", "", "take the figures from a file that -json wrote, and measure nothing")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is not an option", f.Arg(0))
	}
	chosen := contestants
	if *only != "" {
		c, err := find(*only)
		if err != nil {
			return err
		}
		chosen = []contestant{c}
	}
	if *write != "" && *from == "" && (*short || *only != "") {
		return errors.New("-write is for a whole run: not with -short or -only")
	}
	var o outcome
	var err error
	if *from != "" {
		o, err = readOutcome(*from)
	} else {
		o, err = compare(ctx, chosen, *short, progress)
	}
	if err != nil {
		return err
	}
	if err := o.print(out); err != nil {
		return err
	}
	var errs []error
	if *asJSON != "" {
		text, err := json.MarshalIndent(o, "", " ")
		errs = append(errs, err, os.WriteFile(*asJSON, append(text, '\n'), 0o644))
	}
	if *report != "" {
		errs = append(errs, o.page(*report))
	}
	if *write != "" {
		errs = append(errs, o.document(*write))
	}
	if len(o.Absent) > 0 && *only != "" {
		errs = append(errs, errors.New(o.Absent[*only]))
	}
	return errors.Join(errs...)
}

func readOutcome(path string) (o outcome, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(text, &o)
}

// compare runs them all.
func compare(ctx context.Context, chosen []contestant, short bool, progress io.Writer) (outcome, error) {
	o := outcome{
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Processor: processor(), Processors: runtime.NumCPU(), Short: short,
		Began: time.Now().UTC().Truncate(time.Second), Load: load(), Versions: map[string]string{}, Absent: map[string]string{},
	}
	// A short run waits most of the time, so it runs several side by side.
	atOnce := 1
	if short {
		atOnce = 3
	}
	entries := sideBySide(ctx, chosen, atOnce, func(ctx context.Context, c contestant) entry {
		results, version, err := contest(ctx, c, short, progress)
		return entry{results, version, err}
	})
	for i, c := range chosen {
		e := entries[i]
		var gone absence
		switch {
		case errors.As(e.err, &gone):
			o.Absent[c.Name] = gone.Error()
			fmt.Fprintf(progress, "%s: not measured: %v\n", c.Name, gone)
			continue
		case e.err != nil:
			return o, e.err
		}
		o.Versions[c.Name] = e.version
		for _, r := range e.results {
			if atOnce > 1 {
				r.MiB = 0 // of several
			}
			o.Results = append(o.Results, r)
		}
	}
	o.Took = time.Since(o.Began).Round(time.Second).String()
	return o, nil
}

// entry is what came of one contestant.
type entry struct {
	results []result
	version string
	err     error
}

// sideBySide runs them in their order, so many at once. The first that fails ends the
// others.
func sideBySide(ctx context.Context, chosen []contestant, atOnce int, do func(context.Context, contestant) entry) []entry {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	entries := make([]entry, len(chosen))
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					entries[i].err = context.Cause(ctx)
					continue
				}
				e := do(ctx, chosen[i])
				if gone := absence(""); e.err != nil && !errors.As(e.err, &gone) {
					e.err = fmt.Errorf("%s: %w", chosen[i].Name, e.err)
					if cause := context.Cause(ctx); cause != nil {
						e.err = cause // it was ended for that
					}
					stop(e.err)
				}
				entries[i] = e
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	all.Wait()
	return entries
}

// versionOf is that of a module in this program.
func versionOf(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	return "unknown"
}

// processor is its name, where /proc tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// load is the machine's in the last minute, before the run adds its own.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
