package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/limits"
)

const weightsHelp = `
A tenant with messages waiting gets its weight's part of the delivery rate, and all of it while it is alone.
Weights are 1 to 1000; who has none has 1.
`

func weightsCommands() []command {
	return []command{
		{
			name: "weights list", args: "[options]", run: cli.weightsList,
			meaning: "show the tenants' weights, those of the environment and those set since",
			more: `  --json            as JSON
` + addrHelp + weightsHelp,
		},
		{
			name: "weights set", args: "<tenant> <weight> [options]", run: cli.weightsSet,
			meaning: "set a tenant's weight; it holds when the command returns, and over restarts",
			more: `  flowgate weights set acme 5 --reason='ticket 4711'

  --reason=<text>   why, for those who read the list later
  --author=<name>   who; $USER otherwise
` + addrHelp + weightsHelp,
		},
		{
			name: "weights delete", args: "<tenant> [options]", run: cli.weightsDelete,
			meaning: "delete a weight that was set; the environment's holds again",
			more:    addrHelp + weightsHelp,
		},
	}
}

func weightPath(tenant string) string { return "/api/v1/weights/" + url.PathEscape(tenant) }

// weighing makes the client of a command that changes weights.
func weighing(client func() (*adminClient, error)) (*adminClient, error) {
	gateway, err := client()
	if err == nil {
		gateway.again = "`flowgate weights list` shows it"
	}
	return gateway, err
}

func (c cli) weightsList(ctx context.Context, f *flag.FlagSet, args []string) error {
	asJSON := f.Bool("json", false, "as JSON")
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	var list app.WeightList
	if err := gateway.do(ctx, http.MethodGet, "/api/v1/weights", nil, &list); err != nil {
		return err
	}
	if list.Weights == nil {
		return gateway.other(`it tells no "weights"`)
	}
	if *asJSON {
		return c.printJSON(list)
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tWEIGHT\tSOURCE\tAUTHOR\tREASON\tSINCE")
	for _, w := range list.Weights {
		fmt.Fprintf(t, "%s\t%d\t%s\n", plain(w.Tenant), w.Weight, origin(w.Source, w.InForce, w.Author, w.Reason, w.At))
	}
	c.tellState("weights", list.Stale, list.Broken)
	return t.Flush()
}

func (c cli) weightsSet(ctx context.Context, f *flag.FlagSet, args []string) error {
	reason := f.String("reason", "", "why, for those who read the list later")
	author := f.String("author", c.author(), "who")
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	if len(words) != 2 {
		return usageError{errors.New("a tenant and its weight are needed")}
	}
	n, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return usageError{fmt.Errorf("weight: %q is not a whole number from 1 to 1000", words[1])}
	}
	if err := app.CheckWeight(limits.Weight{Tenant: words[0], Weight: n, Author: *author, Reason: *reason}); err != nil {
		return usageError{err}
	}
	gateway, err := weighing(client)
	if err != nil {
		return err
	}
	var stored limits.Weight
	change := map[string]any{"weight": n, "author": *author, "reason": *reason}
	if err := gateway.do(ctx, http.MethodPut, weightPath(words[0]), change, &stored); err != nil {
		return err
	}
	if stored.Weight != n {
		return gateway.other(`it tells no "weight"`)
	}
	_, err = fmt.Fprintf(c.stdout, "tenant %s has the weight %d\n", plain(stored.Tenant), stored.Weight)
	return err
}

func (c cli) weightsDelete(ctx context.Context, f *flag.FlagSet, args []string) error {
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return usageError{errors.New("one tenant is needed")}
	}
	if err := app.CheckWeight(limits.Weight{Tenant: words[0], Weight: 1}); err != nil {
		return usageError{err}
	}
	gateway, err := weighing(client)
	if err != nil {
		return err
	}
	if err := gateway.do(ctx, http.MethodDelete, weightPath(words[0]), nil, nil); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "the weight of tenant %s is deleted\n", plain(words[0]))
	return err
}
