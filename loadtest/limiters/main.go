// Command limiters measures flowgate's limiters beside those that Go programs use
// today, all interleaved in one process, and says beside each figure what it should
// be. It exits 1 if one is missed.
//
//	go run . [-short] [-rounds=9] [-only=single|given|keyed|memory|admission] [-json]
//
// It is a module of its own, so that the peers are not flowgate's dependencies.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "limiters:", err)
		os.Exit(1)
	}
}

// measurements are in the order in which they run.
var measurements = []struct {
	name    string
	measure func(pace) (report, error)
}{
	{"single", measureSingle},
	{"given", measureGiven},
	{"keyed", measureKeyed},
	{"memory", measureMemory},
	{"admission", measureAdmission},
}

func run(args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("limiters", flag.ContinueOnError)
	short := f.Bool("short", false, "a short run, to see that it works: its figures mean little and are not held against it")
	rounds := f.Int("rounds", 9, "how often each is measured; the medians count")
	only := f.String("only", "", "single (with given), given, keyed, memory or admission; all without it")
	asJSON := f.Bool("json", false, "print JSON, and the tables on standard error")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is not an option", f.Arg(0))
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds=%d: at least 1", *rounds)
	}
	p := pace{rounds: *rounds, slice: 50 * time.Millisecond, keys: []int{1_000, 100_000, 1_000_000}, requests: 1 << 20}
	if *short {
		p = pace{rounds: 1, slice: 2 * time.Millisecond, keys: []int{1_000, 10_000}, requests: 1 << 14}
	}

	tables := out
	if *asJSON {
		tables = progress
	}
	whole := outcome{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.GOMAXPROCS(0), Rounds: p.rounds, Short: *short}
	for _, m := range measurements {
		if *only != "" && *only != m.name && (*only != "single" || m.name != "given") {
			continue
		}
		r, err := m.measure(p)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if err := r.print(tables); err != nil {
			return err
		}
		whole.Tables = append(whole.Tables, r.Table)
		whole.Floors = append(whole.Floors, r.Floors...)
		runtime.GC()
	}
	if len(whole.Tables) == 0 {
		return fmt.Errorf("no measurement %q; there are single, given, keyed, memory and admission", *only)
	}
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if err := e.Encode(whole); err != nil {
			return err
		}
	}
	if missed := whole.missed(); len(missed) > 0 && !*short {
		return errors.New("missed:\n  " + strings.Join(missed, "\n  "))
	}
	return nil
}

// outcome is a whole run, for machines.
type outcome struct {
	Go         string  `json:"go"`
	System     string  `json:"system"`
	Processors int     `json:"processors"`
	Rounds     int     `json:"rounds"`
	Short      bool    `json:"short"`
	Tables     []table `json:"tables"`
	Floors     []floor `json:"floors"`
}

func (o outcome) missed() (missed []string) {
	for _, f := range o.Floors {
		if !f.Met {
			missed = append(missed, f.String())
		}
	}
	return slices.Clip(missed)
}
