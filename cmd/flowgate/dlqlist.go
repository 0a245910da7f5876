package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

// deadLettersPath asks for a page.
func deadLettersPath(q app.DeadLetterQuery, oldest bool, n int) string {
	v := url.Values{"limit": {strconv.Itoa(n)}, "order": {"newest"}}
	if oldest {
		v.Set("order", "oldest")
	}
	for name, value := range map[string]string{"tenant": q.Tenant, "class": q.Class, "older_than": q.OlderThan, "newer_than": q.NewerThan} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, value := range map[string]uint64{"from": q.From, "to": q.To} {
		if value != 0 {
			v.Set(name, strconv.FormatUint(value, 10))
		}
	}
	return "/api/v1/dead-letters?" + v.Encode()
}

// pageSize is how many the command asks for at once.
const pageSize = 500

func (c cli) dlqList(ctx context.Context, f *flag.FlagSet, args []string) error {
	selected := selectFlags(f)
	limit := f.Int("limit", 100, "so many at most; 0: all")
	oldest := f.Bool("oldest", false, "the oldest first")
	asJSON := f.Bool("json", false, "a line of JSON each")
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	q, err := selected.read()
	if err != nil {
		return err
	}
	if *limit < 0 {
		return usageError{fmt.Errorf("--limit=%d is below 0", *limit)}
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	lines := json.NewEncoder(c.stdout)
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	shown, next := 0, &q
	for next != nil && (*limit == 0 || shown < *limit) {
		n := pageSize
		if *limit > 0 {
			n = min(n, *limit-shown)
		}
		var list app.DeadLetterList
		if err := gateway.do(ctx, http.MethodGet, deadLettersPath(*next, *oldest, n), nil, &list); err != nil {
			return errors.Join(err, table.Flush())
		}
		if list.DeadLetters == nil {
			return gateway.other(`it tells no "dead_letters"`)
		}
		for _, d := range list.DeadLetters {
			if *asJSON {
				if err := lines.Encode(d); err != nil {
					return err
				}
				continue
			}
			if shown == 0 {
				fmt.Fprintln(table, "SEQ\tDIED\tTENANT\tTOPIC\tCLASS\tATTEMPTS\tBYTES\tID\tERROR")
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", d.Seq, d.DiedAt.UTC().Format(time.RFC3339), plain(d.Tenant), clip(plain(cmp.Or(d.Topic, "-"))),
				d.Class, d.Attempts, d.Bytes, clip(plain(cmp.Or(d.ID, "-"))), clip(plain(cmp.Or(d.Error, "-"))))
			shown++
		}
		if *asJSON {
			shown += len(list.DeadLetters)
		}
		next = list.Next
		if err := table.Flush(); err != nil { // a million are shown as they come
			return err
		}
	}
	if next != nil && *limit > 0 {
		fmt.Fprintf(c.stderr, "there may be more; --limit=0 shows all, and --seq=%s goes on from here\n", rangeOf(*next))
	}
	if shown == 0 && !*asJSON {
		fmt.Fprintln(c.stderr, "no dead letters")
	}
	return nil
}

// rangeOf is what --seq reads.
func rangeOf(q app.DeadLetterQuery) string {
	if q.To == 0 {
		return fmt.Sprintf("%d-", q.From)
	}
	return fmt.Sprintf("%d-%d", max(q.From, 1), q.To)
}

// clip keeps a table's line in bounds.
func clip(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func (c cli) dlqShow(ctx context.Context, f *flag.FlagSet, args []string) error {
	raw := f.Bool("raw", false, "the payload alone, as it is")
	asJSON := f.Bool("json", false, "as JSON")
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	seqs, err := sequences(words)
	if err != nil {
		return err
	}
	if len(seqs) != 1 || *raw && *asJSON {
		return usageError{errors.New("one sequence is needed, and --raw or --json or none")}
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	var d app.DeadLetterContent
	if err := gateway.do(ctx, http.MethodGet, deadLetterPath(seqs[0]), nil, &d); err != nil {
		return err
	}
	if d.Seq != seqs[0] {
		return gateway.other(fmt.Sprintf("it shows %d", d.Seq))
	}
	if *asJSON {
		return json.NewEncoder(c.stdout).Encode(d)
	}
	payload := []byte(d.Payload)
	if d.Base64 {
		if payload, err = base64.StdEncoding.DecodeString(d.Payload); err != nil {
			return gateway.other(err.Error())
		}
	}
	if *raw {
		_, err := c.stdout.Write(payload)
		return err
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, plain(value)) }
	line("sequence", strconv.FormatUint(d.Seq, 10))
	line("id", cmp.Or(d.ID, "-"))
	line("tenant", d.Tenant)
	line("topic", cmp.Or(d.Topic, "-"))
	line("class", d.Class)
	line("error", cmp.Or(d.Error, "-"))
	line("attempts", strconv.Itoa(d.Attempts))
	if !d.AdmittedAt.IsZero() {
		line("admitted", d.AdmittedAt.Format(time.RFC3339Nano))
	}
	line("died", d.DiedAt.Format(time.RFC3339Nano))
	line("backlog sequence", strconv.FormatUint(d.MessageSeq, 10))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		for _, v := range d.Headers[name] {
			line("header "+name, v)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	shown, form := d.Payload, "bytes"
	if !d.Base64 && !printable(shown) {
		shown = base64.StdEncoding.EncodeToString(payload)
	}
	if shown != string(payload) {
		form = "bytes, in base64"
	}
	_, err = fmt.Fprintf(c.stdout, "\n%d %s\n%s\n", len(payload), form, shown)
	return err
}

// printable reports whether a terminal may show s.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' })
}

func deadLetterPath(seq uint64) string {
	return "/api/v1/dead-letters/" + strconv.FormatUint(seq, 10)
}
