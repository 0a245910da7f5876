package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

// change is what replay and purge have in common.
type change struct {
	author, reason *string
	all, asJSON    *bool
	selected       *selection
	client         func() (*adminClient, error)
}

func (c cli) changeFlags(f *flag.FlagSet) change {
	return change{
		reason: f.String("reason", "", "why, for the log"), author: f.String("author", c.author(), "who"),
		all: f.Bool("all", false, "every one"), asJSON: f.Bool("json", false, "as JSON"),
		selected: selectFlags(f), client: c.addrFlag(f),
	}
}

// read gives the sequences of a change, or what it selects.
func (ch change) read(words []string) (seqs []uint64, body app.DeadLetterChange, err error) {
	if seqs, err = sequences(words); err != nil {
		return nil, body, err
	}
	if body.DeadLetterQuery, err = ch.selected.read(); err != nil {
		return nil, body, err
	}
	body.All, body.Author, body.Reason = *ch.all, *ch.author, *ch.reason
	nothing := body.DeadLetterQuery == app.DeadLetterQuery{}
	switch {
	case len(seqs) > 0 && (!nothing || body.All):
		err = errors.New("either sequences or a selection")
	case len(seqs) == 0 && nothing && !body.All:
		err = errors.New("which? Name sequences, select some, or say --all")
	}
	if err != nil {
		err = usageError{err}
	}
	return seqs, body, err
}

// connect makes the client.
func (ch change) connect() (*adminClient, error) {
	gateway, err := ch.client()
	if err == nil {
		gateway.again = "`flowgate dlq list` shows it"
	}
	return gateway, err
}

// path adds who and why to the path of one dead letter.
func (ch change) path(seq uint64, what string) string {
	return deadLetterPath(seq) + what + "?" + url.Values{"author": {*ch.author}, "reason": {*ch.reason}}.Encode()
}

func (c cli) dlqReplay(ctx context.Context, f *flag.FlagSet, args []string) error {
	ch := c.changeFlags(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	seqs, body, err := ch.read(words)
	if err != nil {
		return err
	}
	gateway, err := ch.connect()
	if err != nil {
		return err
	}
	if len(seqs) == 0 {
		return c.follow(ctx, gateway, "replay", "replayed", body, *ch.asJSON)
	}
	for _, seq := range seqs {
		var raised app.RaisedDeadLetter
		if err := gateway.do(ctx, http.MethodPost, ch.path(seq, "/replay"), nil, &raised); err != nil {
			return err
		}
		if *ch.asJSON {
			err = json.NewEncoder(c.stdout).Encode(raised)
		} else {
			_, err = fmt.Fprintf(c.stdout, "dead letter %d is in the backlog again: %s\n", seq, plain(raised.ID))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c cli) dlqPurge(ctx context.Context, f *flag.FlagSet, args []string) error {
	yes := f.Bool("yes", false, "without asking")
	ch := c.changeFlags(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	seqs, body, err := ch.read(words)
	if err != nil {
		return err
	}
	if !*yes {
		if err := c.confirm("delete these dead letters for good?"); err != nil {
			return err
		}
	}
	gateway, err := ch.connect()
	if err != nil {
		return err
	}
	if len(seqs) == 0 {
		return c.follow(ctx, gateway, "purge", "purged", body, *ch.asJSON)
	}
	for _, seq := range seqs {
		if err := gateway.do(ctx, http.MethodDelete, ch.path(seq, ""), nil, nil); err != nil {
			return err
		}
		if *ch.asJSON {
			err = json.NewEncoder(c.stdout).Encode(map[string]uint64{"seq": seq})
		} else {
			_, err = fmt.Fprintf(c.stdout, "dead letter %d is deleted\n", seq)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm asks whoever sits at the terminal.
func (c cli) confirm(question string) error {
	file, ok := c.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return usageError{errors.New("nobody is there to be asked; say --yes")}
	}
	fmt.Fprintf(c.stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(file).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was deleted")
	}
	return nil
}

// follow makes a change of many, a request after the other: each does a part of it.
func (c cli) follow(ctx context.Context, gateway *adminClient, what, done string, body app.DeadLetterChange, asJSON bool) error {
	var sum app.DeadLetterProgress
	waiting := false
	for more := true; more; {
		var p app.DeadLetterProgress
		err := gateway.do(ctx, http.MethodPost, "/api/v1/dead-letters/"+what, body, &p)
		if err == nil && p.Stopped != "" {
			err = errors.New(p.Stopped)
		}
		sum.Count, sum.Skipped, sum.Why = sum.Count+p.Count, sum.Skipped+p.Skipped, cmp.Or(sum.Why, p.Why)
		if err != nil {
			return fmt.Errorf("%d %s, the rest stays: %w", sum.Count, done, err)
		}
		if p.Waiting && !waiting {
			waiting = true
			fmt.Fprintf(c.stderr, "%d %s; the backlog is not below its low watermark, waiting for it to drain\n", sum.Count, done)
		}
		if more = p.Next != nil; more {
			body.DeadLetterQuery = *p.Next
		}
	}
	var err error
	if asJSON {
		err = json.NewEncoder(c.stdout).Encode(map[string]uint64{done: sum.Count, "skipped": sum.Skipped})
	} else {
		_, err = fmt.Fprintf(c.stdout, "%d %s\n", sum.Count, done)
	}
	if err == nil && sum.Skipped > 0 {
		err = fmt.Errorf("%d cannot be %s and stay; the first: %s", sum.Skipped, done, sum.Why)
	}
	return err
}
