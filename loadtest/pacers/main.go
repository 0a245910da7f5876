// Command pacers measures how evenly flowgate delivers, beside what Go programs pace
// their calls with today, one after the other in one process with work always waiting:
// go.uber.org/ratelimit, golang.org/x/time/rate, and a JetStream consumer whose client
// sleeps between messages. It exits 1 if a figure is missed.
//
//	go run . [-short] [-rate=1000] [-for=10s]
//
// It is a module of its own, so that the peers are not flowgate's dependencies.
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
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pacers:", err)
		os.Exit(1)
	}
}

// pacer makes calls at a rate: it returns the instants at which they were made, for so
// long, with more work than that waiting.
type pacer struct {
	name string
	pace func(ctx context.Context, perSecond int, length time.Duration) ([]time.Time, error)
}

// errMissed means that a figure was missed; all are printed.
var errMissed = errors.New("a figure was missed")

const (
	mostLate = 2 * time.Millisecond // p99, at 1,000/s
	leastHad = 99.5                 // % of the rate
)

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("pacers", flag.ContinueOnError)
	short := f.Bool("short", false, "a short run, to see that it works: its figures mean little and are not held against it")
	rate := f.Int("rate", 1000, "calls a second")
	length := f.Duration("for", 10*time.Second, "how long each is measured")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *short {
		*length = time.Second
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%d/s for %s\trate held\tlate p50\tlate p99\tlate most\tmost in 10 ms\t\t\n", *rate, *length)
	missed := false
	for _, p := range []pacer{
		{"flowgate", paceFlowgate}, {"uber-go/ratelimit", paceUber}, {"x/time/rate Wait", paceXTime}, {"JetStream, client sleeps", paceSleeper},
	} {
		calls, err := p.pace(ctx, *rate, *length)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		e := evenness(calls, *rate)
		verdict := ""
		if p.name == "flowgate" && (e.held < leastHad || e.p99 > mostLate && *rate >= 1000) {
			verdict, missed = fmt.Sprintf("MISSED: at least %g %%, p99 at most %s", leastHad, mostLate), true
		}
		fmt.Fprintf(t, "%s\t%.2f %%\t%s\t%s\t%s\t%d\t%s\t\n", p.name, e.held, round(e.p50), round(e.p99), round(e.most), e.crowd, verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if missed && !*short {
		return errMissed
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// even is how near calls came to one each interval.
type even struct {
	held           float64 // % of the rate
	p50, p99, most time.Duration
	crowd          int // most calls within 10 ms
}

// evenness takes a call as late by what it came after its predecessor beyond the
// interval.
func evenness(calls []time.Time, perSecond int) even {
	if len(calls) < 3 {
		return even{}
	}
	interval := time.Second / time.Duration(perSecond)
	late := make([]time.Duration, 0, len(calls))
	e := even{held: float64(len(calls)-1) / calls[len(calls)-1].Sub(calls[0]).Seconds() / float64(perSecond) * 100}
	first := 0
	for i := 1; i < len(calls); i++ {
		late = append(late, max(0, calls[i].Sub(calls[i-1])-interval))
		for calls[i].Sub(calls[first]) > 10*time.Millisecond {
			first++
		}
		e.crowd = max(e.crowd, i-first+1)
	}
	slices.Sort(late)
	e.p50, e.p99, e.most = late[len(late)/2], late[len(late)*99/100], late[len(late)-1]
	return e
}
