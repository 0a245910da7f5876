package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/simulation"
	"github.com/flowgate/flowgate/internal/units"
)

const simulateHelp = `The file describes arrivals (YAML, see docs/simulate.md), or is a recording of flowgate record; - is standard input.

  --var NAME=<value>     a variable in place of the environment's, with or without FLOWGATE_; may stand several times
  --for=<duration>       how long arrivals come; the file's own length, or 1h
  --consumer=<model>     5ms; latency=5ms,jitter=20%,fail=1%,down=30s@10m,slow=200ms/2m@20m;
                         latency=20ms,knee=8,thrash=1,crash_at=64,recovery=5s. 2ms otherwise
  --producers=<what>     what producers do with a refusal: obey, obey-each, forget, backoff, insist or a duration, and for some
                         tenants otherwise: obey,noisy=insist,free-*=forget. recorded: every try of a recording as it came, and none else
  --patience=<duration>  how long a producer tries one message; 5m otherwise
  --pause=<spells>       an operator's pauses: 30s@10m,1m@40m
  --no-ids               messages have no ids of their own
  --seed=<n>             of what is drawn; 1 otherwise
  --every=<duration>     how far apart the samples of --json are; 1s to 1h
  --json                 as JSON
  --suggest              propose HIGH, RATE and the tenants' limit for a goal
  --goal=<goals>         'p99 lag under 5s, no refusals for tenants under 50/s'; also: max lag under 1m, p99 latency under 10s,
                         no refusals, refusals under 1%, depth under 5000, drain under 2m
`

func simulateCommand() command {
	return command{
		name: "simulate", args: "[--var NAME=<value>]... [options] <pattern.yaml|recording.csv[.gz]>", run: cli.simulate,
		meaning: "predict depth, refusals, lag and drain time for arrivals, an hour in seconds; --suggest finds values",
		more:    simulateHelp,
	}
}

// variables are those of --var.
type variables []string

func (v *variables) String() string { return strings.Join(*v, " ") }

func (v *variables) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not NAME=<value>", s)
	}
	if !strings.HasPrefix(name, "FLOWGATE_") {
		name = "FLOWGATE_" + name
	}
	*v = append(*v, name+"="+value)
	return nil
}

// over gives the environment with the variables in place of its own.
func (v variables) over(environ []string) []string {
	mine := func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.ContainsFunc(v, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	}
	return append(slices.DeleteFunc(slices.Clone(environ), mine), v...)
}

// simulating is what the words of the command come to.
type simulating struct {
	config   settings.Config
	scenario simulation.Scenario
	goals    simulation.Goals
	suggest  bool
	asJSON   bool
	notes    []string
}

func (c cli) simulate(ctx context.Context, f *flag.FlagSet, args []string) error {
	s, err := c.readSimulation(f, args)
	if err != nil {
		return err
	}
	if s.suggest {
		return c.suggest(ctx, s)
	}
	r, err := simulation.Run(ctx, simulated(s.config), s.scenario)
	if err != nil {
		return err
	}
	if s.asJSON {
		return c.printJSON(struct {
			*simulation.Result
			Notes []string `json:"notes"`
		}{r, s.notes})
	}
	return printSimulation(c.stdout, s, r)
}

// simulated is the part of the configuration that decides.
func simulated(c settings.Config) simulation.Config {
	return simulation.Config{Mode: c.Mode, Ingress: c.Ingress, Limit: c.Limit, Backpressure: c.Backpressure, Shaper: c.Shaper, Consumer: c.Consumer}
}

// recorded has the tries of a recording come as they came.
const recorded = "recorded"

func (c cli) readSimulation(f *flag.FlagSet, args []string) (s *simulating, err error) {
	s = &simulating{notes: []string{}}
	var vars variables
	f.Var(&vars, "var", "a variable")
	length := f.String("for", "", "how long arrivals come")
	consumer := f.String("consumer", units.FormatDuration(simulation.DefaultLatency), "the consumer's model")
	producers := f.String("producers", string(simulation.Obey), "what producers do with a refusal")
	patience := f.String("patience", units.FormatDuration(simulation.DefaultPatience), "how long they try one message")
	pauses := f.String("pause", "", "an operator's pauses")
	goal := f.String("goal", "", "what is to be reached")
	every := f.String("every", "1s", "how far apart samples are")
	f.BoolVar(&s.scenario.NoIDs, "no-ids", false, "messages have no ids")
	f.Uint64Var(&s.scenario.Seed, "seed", 1, "of what is drawn")
	f.BoolVar(&s.suggest, "suggest", false, "propose values for a goal")
	f.BoolVar(&s.asJSON, "json", false, "as JSON")
	words, err := parseAll(f, args)
	if err != nil {
		return nil, err
	}
	sc := &s.scenario
	var errs []error
	wrong := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", name, err))
		}
	}
	if len(words) != 1 {
		errs = append(errs, errors.New("one file is needed, a pattern or a recording, or - for standard input"))
	}
	if sc.Consumer, err = simulation.ParseConsumer(*consumer, sc.Seed); err != nil {
		wrong("consumer", err)
	}
	asRecorded := *producers == recorded
	if asRecorded {
		*producers = string(simulation.Forget)
	}
	sc.Producers, err = simulation.ParseProducers(*producers)
	wrong("producers", err)
	sc.Producers.Patience, err = units.ParseDuration(*patience)
	wrong("patience", err)
	sc.Pauses, err = simulation.ParsePauses(*pauses)
	wrong("pause", err)
	if sc.Every, err = units.ParseDuration(*every); err == nil && (sc.Every < time.Second || sc.Every > time.Hour || sc.Every%time.Second != 0) {
		err = fmt.Errorf("%s is not whole seconds from 1s to 1h", *every)
	}
	wrong("every", err)
	switch {
	case s.suggest && *goal == "":
		errs = append(errs, errors.New("--suggest needs --goal, like --goal='p99 lag under 5s, no refusals'"))
	case !s.suggest && *goal != "":
		errs = append(errs, errors.New("--goal is for --suggest"))
	case s.suggest:
		s.goals, err = simulation.ParseGoals(*goal)
		wrong("goal", err)
	}
	if *length != "" {
		if sc.Length, err = units.ParseDuration(*length); err == nil && sc.Length == 0 {
			err = errors.New("it must be above 0")
		}
		wrong("for", err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, usageError{err}
	}
	if s.config, err = settings.Load(vars.over(c.environ)); err != nil {
		return nil, err
	}
	if err := s.read(c.stdin, words[0], asRecorded); err != nil {
		return nil, err
	}
	sc.After = max(time.Hour, sc.Length)
	if !s.suggest { // those go side by side
		sc.Progress = progress(c.stderr, time.Now)
	}
	s.note()
	return s, nil
}

// silence is how long a simulation says nothing.
const silence = 5 * time.Second

// progress says how far a simulation is that takes long.
func progress(w io.Writer, now func() time.Time) func(at time.Duration) {
	said := now()
	return func(at time.Duration) {
		if n := now(); n.Sub(said) >= silence {
			said = n
			fmt.Fprintf(w, "simulated %s so far\n", rough(at))
		}
	}
}

// read reads the arrivals.
func (s *simulating) read(stdin io.Reader, name string, asRecorded bool) error {
	var text []byte
	var err error
	if name == "-" {
		name = "standard input"
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return err // it names the file
	}
	if len(text) == 0 {
		return fmt.Errorf("%s is empty", name)
	}
	if arrivals.IsRecording(text[:min(len(text), 4096)]) {
		r, err := arrivals.ReadRecording(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return s.replay(name, r, asRecorded)
	}
	if asRecorded {
		return fmt.Errorf("%s is a pattern; --producers=recorded is for recordings", name)
	}
	p, err := arrivals.ReadPattern(text)
	if err != nil {
		return fmt.Errorf("%s is neither a recording nor a pattern: %w", name, err)
	}
	if s.scenario.Length == 0 {
		var ends bool
		if s.scenario.Length, ends = p.Length(); !ends {
			s.scenario.Length = time.Hour
		}
	}
	s.scenario.Arrivals = p.Schedule(s.scenario.Length)
	return nil
}

// replay has the messages of a recording come.
func (s *simulating) replay(name string, r *arrivals.Recording, asRecorded bool) error {
	if len(r.Tries) == 0 {
		return fmt.Errorf("%s: nothing came while it was recorded", name)
	}
	if s.scenario.Length == 0 {
		s.scenario.Length = r.Until
	}
	if first := r.Tries[0].At; first >= s.scenario.Length {
		return fmt.Errorf("%s: nothing came in its first %s; the first message is at %s", name, s.scenario.Length, first)
	}
	if r.Cut != "" {
		s.notes = append(s.notes, "the recording's end is missing: "+r.Cut)
	}
	if r.Missing > 0 {
		s.notes = append(s.notes, grouped(r.Missing)+" tries are missing in the recording: the gateway could not send them in time")
	}
	if r.NoIDs && !s.scenario.NoIDs {
		s.scenario.NoIDs = true
		s.notes = append(s.notes, "the recorded messages had no ids, so those that are simulated have none")
	}
	s.scenario.Arrivals = iter.Seq[arrivals.Arrival](func(yield func(arrivals.Arrival) bool) {
		for _, t := range r.Tries {
			if (asRecorded || !t.Again) && !yield(t.Arrival) {
				return
			}
		}
	})
	return nil
}

// note says what of the configuration has no effect here.
func (s *simulating) note() {
	l := s.config.Limit
	for name, rules := range map[string]int{"USER": len(l.User), "IP": len(l.IP), "API_KEY": len(l.APIKey)} {
		if rules > 0 {
			s.notes = append(s.notes, "FLOWGATE_LIMIT_"+name+" is left out: arrivals do not tell whose it is")
		}
	}
	slices.Sort(s.notes)
}
