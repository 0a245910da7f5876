package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

func watchCommands() []command {
	return []command{
		{
			name: "status", args: "[options]", run: cli.status,
			meaning: "say how the gateway is: level, depth, rates, who holds it up",
			more: `  --json   as JSON
` + addrHelp + `
It exits with 0 if the gateway answers, whatever it says: a gateway under pressure does its work.
`,
		},
		{
			name: "top", args: "[options]", run: cli.top,
			meaning: "show a gateway at work, each second; q ends it",
			more: `  d, r, a, o, t, w   sort tenants by depth, refused, admitted, oldest, name, weight
  q, ctrl-C          end

Piped, it prints a line a second.

` + addrHelp,
		},
		{
			name: "why", args: "<tenant> [options]", run: cli.why,
			meaning: "say why messages of a tenant were refused last, newest first",
			more: `  flowgate why acme

  --all        of all tenants, in place of one
  --limit=<n>  so many at most, 20 otherwise
  --json       as JSON
` + addrHelp,
		},
	}
}

const statusPath = "/api/v1/status"

// readStatus asks for the status; raw is all that the gateway told.
func readStatus(ctx context.Context, gateway *adminClient) (s app.Status, raw json.RawMessage, err error) {
	if err := gateway.do(ctx, http.MethodGet, statusPath, nil, &raw); err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.Name == "" || s.Level == "" {
		return s, nil, gateway.other(`it tells no "level"`)
	}
	return s, raw, nil
}

func (c cli) status(ctx context.Context, f *flag.FlagSet, args []string) error {
	asJSON := f.Bool("json", false, "as JSON")
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	s, raw, err := readStatus(ctx, gateway)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(c.stdout).Encode(raw)
	}
	return printStatus(c.stdout, s, time.Now())
}

func printStatus(w io.Writer, s app.Status, now time.Time) error {
	said, _ := verdict(s, now)
	if _, err := fmt.Fprintln(w, said); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("gateway", "%s %s, mode %s, replica %s", plain(s.Name), plain(s.Version), plain(s.Mode), plain(s.Replica.ID))
	if !s.Replica.Leader && (!s.Replica.Lost || s.Replica.Active != "") {
		return t.Flush() // it knows nothing else
	}
	line("depth", "%s: %s waiting, %s in flight of %s, %s for a retry", grouped(s.Depth.Total), grouped(s.Depth.Waiting), grouped(s.Depth.InFlight), grouped(s.Cap), grouped(s.Depth.Delayed))
	line("watermarks", "low %s, high %s, max %s", grouped(s.Watermarks.Low), grouped(s.Watermarks.High), grouped(s.Watermarks.Max))
	line("oldest", "%s", rough(asDuration(s.OldestAge)))
	line("outlook", "%s", prospect(s))
	line("a second", "admitted %s, refused %s, delivered %s", perSecond(s.Rate.Admitted), perSecond(s.Rate.Refused), perSecond(s.Rate.Delivered))
	line("rate", "%s of %s (%s)", pace(s.Rate.Effective), pace(s.Rate.Configured), plain(s.Rate.Reason))
	line("places owed", "%d", s.Slots)
	line("breaker", "%s", plain(s.Breaker))
	line("dead letters", "%s", grouped(s.DeadLetters))
	line("counted", "%s ago", rough(now.Sub(s.SampledAt)))
	return t.Flush()
}
