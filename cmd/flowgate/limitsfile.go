package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"text/tabwriter"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/limits"
)

func (c cli) limitsApply(ctx context.Context, f *flag.FlagSet, args []string) error {
	file := f.String("f", "", "the file; - is standard input")
	author := f.String("author", c.author(), "who, for entries that do not say")
	client := c.addrFlag(f)
	if words, err := parseAll(f, args); err != nil {
		return err
	} else if len(words) > 0 {
		return usageError{fmt.Errorf("%q is not understood after %s; the file is named with -f", words[0], f.Name())}
	}
	if *file == "" {
		return usageError{errors.New("-f is missing: a file, or - for standard input")}
	}
	set, err := c.readLimits(*file, *author)
	if err != nil {
		return err
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	var changes limits.Changes
	if err := gateway.do(ctx, http.MethodPut, "/api/v1/limits", set, &changes); err != nil {
		return err
	}
	if changes.Added == nil {
		return gateway.other(`it tells no "added"`)
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, group := range []struct {
		word string
		list []limits.Entry
	}{{"added", changes.Added}, {"changed", changes.Changed}, {"removed", changes.Removed}, {"unchanged", changes.Unchanged}} {
		for _, e := range group.list {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", group.word, e.Scope, plain(e.Key), e.Rules)
		}
	}
	for _, name := range changes.Cleared {
		fmt.Fprintf(t, "cleared\t%s\t\tit was no limit\n", plain(name))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%d added, %d changed, %d removed, %d unchanged\n",
		len(changes.Added), len(changes.Changed), len(changes.Removed), len(changes.Unchanged))
	return err
}

// readLimits reads a file of limits and says all that is wrong with it.
func (c cli) readLimits(file, author string) (set app.LimitSet, err error) {
	name, text := file, []byte(nil)
	if file == "-" {
		name = "standard input"
		text, err = io.ReadAll(c.stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return set, fmt.Errorf("read the limits: %w", err)
	}
	type line struct {
		app.LimitBody
		Source  string `json:"source"`
		InForce bool   `json:"in_force"`
	}
	var whole struct {
		Limits *[]line           `json:"limits"`
		Broken []json.RawMessage `json:"broken"`
		Stale  string            `json:"stale"`
		Keys   map[string]int    `json:"keys"`
	}
	var into any = &whole
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		into = &whole.Limits
	}
	if err := app.ReadJSON(text, into); err != nil {
		return set, fmt.Errorf("%s is not what `flowgate limits list --json` prints, or an array of limits: %w", name, err)
	}
	// An empty object must not delete everything.
	if whole.Limits == nil {
		return set, fmt.Errorf("%s holds no \"limits\"; to delete all, let it hold []", name)
	}
	set.Limits = []app.LimitBody{}
	for _, l := range *whole.Limits {
		if l.Source != app.FromEnvironment {
			l.Author = cmp.Or(l.Author, author)
			set.Limits = append(set.Limits, l.LimitBody)
		}
	}
	if _, err := set.Entries(); err != nil {
		return set, fmt.Errorf("%s is wrong, and nothing was changed:\n%w", name, err)
	}
	return set, nil
}
