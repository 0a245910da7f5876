package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/demo"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/tracing"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent is how much garbage there may be beside a backlog in memory: with the
// runtime's 100, 100,000 waiting messages took 181 MiB, with this 160. GOGC wins.
const gcPercent = 50

// cli is the command line without the process.
type cli struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// command is what comes after "flowgate", a word or two.
type command struct {
	name, args, meaning string
	run                 func(c cli, ctx context.Context, f *flag.FlagSet, args []string) error
	// more is what its own help says beyond the meaning.
	more string
}

// line is the command as it is typed.
func (c command) line() string { return strings.TrimSpace(c.name + " " + c.args) }

func commands() []command {
	list := []command{
		{name: "serve", meaning: "run the gateway; what flowgate does without a command", run: cli.serve},
		{name: "demo", meaning: "show the whole thing for about 20 seconds, and check it", run: cli.demo},
		{name: "check", args: "[--online]", meaning: "read the configuration and say what is wrong; --online tests the broker and the consumer too", run: cli.check},
		{name: "env", args: "[--format=table|md|dotenv|json]", meaning: "list every variable: default, current value, meaning", run: cli.env},
	}
	list = append(list, watchCommands()...)
	list = append(list, limitsCommands()...)
	list = append(list, weightsCommands()...)
	list = append(list, pauseCommands()...)
	list = append(list, dlqCommands()...)
	list = append(list, simulateCommand(), recordCommand())
	return append(list,
		command{name: "version", args: "[--json]", meaning: "print the version", run: cli.version},
		command{name: "help", args: "[command]", meaning: "print this, or how to use a command", run: cli.help},
	)
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// errTold is a mistake on the command line of which all was said.
var errTold = errors.New("wrong usage")

// run does what args say and returns the exit code.
func (c cli) run(ctx context.Context, args []string) int {
	words := []string{"serve"}
	if len(args) > 0 {
		words = slices.Clone(args)
	}
	if isHelp(words[0]) {
		words[0] = "help"
	}
	if words[0] == "--version" || words[0] == "-version" {
		words[0] = "version"
	}
	cmd, rest, group, ok := find(words)
	switch {
	case ok:
		err := c.invoke(ctx, cmd, rest)
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return c.code(cmd, err)
	case len(group) > 0 && len(words) == 2 && isHelp(words[1]):
		c.list(c.stdout, group)
		return exitOK
	}
	c.unknown(words, group)
	return exitUsage
}

// unknown says of words that are no command which there are; group are those that begin
// with the first word.
func (c cli) unknown(words []string, group []command) {
	if len(group) == 0 {
		fmt.Fprintf(c.stderr, "flowgate: unknown command %q; `flowgate help` lists the commands\n", words[0])
		return
	}
	fmt.Fprintf(c.stderr, "flowgate: %s is followed by one of these:\n", words[0])
	c.list(c.stderr, group)
}

func (c cli) invoke(ctx context.Context, cmd command, args []string) error {
	f := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	err := cmd.run(c, ctx, f, args)
	if errors.Is(err, flag.ErrHelp) {
		return c.usage(cmd)
	}
	return err
}

func (c cli) usage(cmd command) error {
	more := cmd.more
	if more != "" {
		more = "\n" + more
	}
	_, err := fmt.Fprintf(c.stdout, "usage: flowgate %s\n\n%s\n%s", cmd.line(), cmd.meaning, more)
	return err
}

func (c cli) code(cmd command, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errTold) {
		return exitUsage
	}
	fmt.Fprintf(c.stderr, "flowgate: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(c.stderr, "usage: flowgate %s\n", cmd.line())
		return exitUsage
	}
	return exitFailed
}

// parse reads flags; nothing may follow them.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if f.NArg() > 0 {
		return usageError{fmt.Errorf("%q is not understood after %s", f.Arg(0), f.Name())}
	}
	return nil
}

func (c cli) serve(ctx context.Context, f *flag.FlagSet, args []string) error {
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := settings.Load(c.environ)
	if err != nil {
		return err
	}
	if cfg.Consumer.URL == "stdout:" {
		// A reader that goes away is the consumer's outage. Go would end the process.
		signal.Ignore(syscall.SIGPIPE)
	}
	log := c.logger(cfg)
	a, err := app.New(app.Options{Config: cfg, Logger: log, Stdout: c.stdout, Tracer: c.tracer(cfg, log), Version: version()})
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return a.Run(ctx)
}

func (c cli) demo(ctx context.Context, f *flag.FlagSet, args []string) error {
	if err := parse(f, args); err != nil {
		return err
	}
	return demo.Run(ctx, demo.Options{Out: c.stdout, Terminal: isTerminal(c.stdout), Width: width(c.stdout), Version: version()})
}

func (c cli) check(ctx context.Context, f *flag.FlagSet, args []string) error {
	online := f.Bool("online", false, "test the broker and the consumer too")
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := settings.Load(c.environ)
	if err != nil {
		return err
	}
	if err := cfg.Ingress.CheckFiles(); err != nil {
		return fmt.Errorf("the configuration is wrong:\n%w", err)
	}
	marks := cfg.Backpressure.Marks()
	fmt.Fprintf(c.stdout, "the configuration is right: %s, backlog refused at %d, admitted again at %d, never above %d, delivered at %s to %s\n",
		cfg.Limit, marks.High, marks.Low, marks.Max, cfg.Shaper.Rate, settings.MaskURL(cfg.Consumer.URL))
	if !*online {
		return nil
	}
	findings, err := app.Check(ctx, app.Options{Config: cfg, Logger: c.logger(cfg), Stdout: c.stdout, Version: version()})
	if err != nil {
		return err
	}
	wrong := 0
	for _, found := range findings {
		switch {
		case found.Skipped:
			fmt.Fprintf(c.stdout, "[ ] %s: %s\n", found.Name, found.Detail)
		case found.OK():
			fmt.Fprintf(c.stdout, "[+] %s: %s\n", found.Name, found.Detail)
		default:
			wrong++
			fmt.Fprintf(c.stdout, "[-] %s: %v\n", found.Name, found.Err)
		}
		if found.Fix != "" {
			fmt.Fprintf(c.stdout, "    %s\n", found.Fix)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d checks failed", wrong, len(findings))
	}
	return nil
}

func (c cli) env(_ context.Context, f *flag.FlagSet, args []string) error {
	format := f.String("format", "table", "table, md, dotenv or json")
	if err := parse(f, args); err != nil {
		return err
	}
	write, ok := map[string]func(io.Writer, []settings.Variable) error{
		"table": settings.WriteTable, "md": settings.WriteMarkdown,
		"dotenv": settings.WriteDotenv, "json": settings.WriteJSON,
	}[*format]
	if !ok {
		return usageError{fmt.Errorf("no format %q; there are table, md, dotenv, json", *format)}
	}
	if err := write(c.stdout, settings.Variables(c.environ)); err != nil {
		return err
	}
	_, err := settings.Load(c.environ) // what is wrong is shown as it stands, and said
	return err
}

func (c cli) version(_ context.Context, f *flag.FlagSet, args []string) error {
	asJSON := f.Bool("json", false, "as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(c.stdout).Encode(map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	_, err := fmt.Fprintf(c.stdout, "flowgate %s, %s, %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func (c cli) help(_ context.Context, f *flag.FlagSet, args []string) error {
	if len(args) > 0 {
		cmd, rest, group, ok := find(args)
		if ok && len(rest) == 0 {
			return c.usage(cmd)
		}
		switch {
		case len(group) > 0 && len(args) == 1:
			c.list(c.stdout, group)
			return nil
		case isHelp(args[0]):
		case ok:
			return usageError{fmt.Errorf("%q is not understood after %s", rest[0], cmd.name)}
		default:
			c.unknown(args, group)
			return errTold
		}
	}
	if err := parse(f, args); err != nil {
		return err
	}
	fmt.Fprint(c.stdout, "flowgate stands between producers that publish when they please and a consumer that needs a steady pace.\n\nusage: flowgate [command]\n\n")
	c.list(c.stdout, commands())
	_, err := fmt.Fprint(c.stdout, "\nIt is configured by FLOWGATE_ environment variables alone; `flowgate env` lists them.\nExit codes: 0 done, 1 failed, 2 wrong usage.\n")
	return err
}

// logger writes to stderr, as the configuration says.
func (c cli) logger(cfg settings.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // validated
	opts := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "text" || cfg.LogFormat == "auto" && isTerminal(c.stderr) {
		return slog.New(slog.NewTextHandler(c.stderr, opts))
	}
	return slog.New(slog.NewJSONHandler(c.stderr, opts))
}

// tracer is nil unless the environment names a collector of traces. All else about it the
// OpenTelemetry SDK reads from the process's environment by itself, and here alone: its
// variables are a standard of their own, which a second reader would only get wrong. What
// is wrong with them is said, and is no reason not to start.
func (c cli) tracer(cfg settings.Config, log *slog.Logger) *tracing.Tracer {
	on, err := tracing.Wanted(c.environ)
	var t *tracing.Tracer
	if on {
		consumer, _, _ := strings.Cut(cfg.Consumer.URL, ":")
		t, err = tracing.New(tracing.Config{
			Service: cfg.Name, Version: version(),
			Ingress: cfg.Ingress.Prefix, Backlog: cfg.Names().Backlog, Consumer: consumer,
		}, tracing.Deps{Logger: log})
	}
	if err != nil {
		log.Warn("nothing is traced", "error", err)
		return nil
	}
	return t
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width is the terminal's, in columns; 0 if it does not tell.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			return columns
		}
	}
	return 0
}

// version is what the build knows of itself.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
