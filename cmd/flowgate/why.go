package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/ingress"
)

// advice is what to do about a reason, for who asks why.
var advice = map[ingress.Reason]string{
	ingress.RateLimited:      "a limit is used up: it passes after the hint; `flowgate limits list` shows the limits",
	ingress.TenantBacklogged: "the tenant holds as many messages of the backlog as it may: it passes after the hint",
	ingress.Backlogged:       "the backlog is over its high watermark: it passes after the hint; `flowgate status` shows how full it is",
	ingress.PastDue:          "it would wait past its own Flowgate-Deadline",
	ingress.Draining:         "the gateway was shutting down: it passes at once at another one",
	ingress.Overloaded:       "the gateway or the broker could not keep up: it passes after the hint",
	ingress.Invalid:          "the subject, the tenant's name or a header is wrong: the producer must change it",
	ingress.Forbidden:        "the tenant is not allowed, or the key is not its own",
	ingress.TooLarge:         "the message is over FLOWGATE_INGRESS_MAX_PAYLOAD",
}

func (c cli) why(ctx context.Context, f *flag.FlagSet, args []string) error {
	all := f.Bool("all", false, "of all tenants")
	limit := f.Int("limit", 20, "so many at most")
	asJSON := f.Bool("json", false, "as JSON")
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	if *all && len(words) > 0 || !*all && len(words) != 1 {
		return usageError{errors.New("one tenant is needed, or --all")}
	}
	q := url.Values{}
	if !*all {
		if !ingress.ValidTenant(words[0]) {
			return usageError{fmt.Errorf("%s is no tenant: 1 to 64 of A-Z a-z 0-9 _ -", strconv.QuoteToASCII(words[0]))}
		}
		q.Set("tenant", words[0])
	}
	if *limit < 1 || *limit > 100 {
		return usageError{fmt.Errorf("--limit=%d is not 1 to 100", *limit)}
	}
	q.Set("limit", strconv.Itoa(*limit))
	gateway, err := client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := gateway.do(ctx, http.MethodGet, "/api/v1/refusals?"+q.Encode(), nil, &raw); err != nil {
		return err
	}
	var list app.RefusalList
	if err := json.Unmarshal(raw, &list); err != nil || list.Refusals == nil || list.Tenant != q.Get("tenant") {
		return gateway.other(`it tells no "refusals"`)
	}
	switch {
	case *asJSON:
		return json.NewEncoder(c.stdout).Encode(raw)
	case len(list.Refusals) == 0 && *all:
		_, err = fmt.Fprintln(c.stdout, "nothing was refused since the gateway started")
	case len(list.Refusals) == 0:
		_, err = fmt.Fprintf(c.stdout, "nothing of %s was refused, for as long as the gateway remembers\n", list.Tenant)
	default:
		err = printRefusals(c.stdout, list, *all)
	}
	return err
}

// printRefusals shows a line each, and what their reasons mean.
func printRefusals(w io.Writer, list app.RefusalList, all bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if all {
		fmt.Fprint(t, "TENANT\t")
	}
	fmt.Fprintln(t, "AT\tREASON\tRULE\tDEPTH\tRETRY AFTER\tID\tOVER")
	var reasons []string
	seen := map[string]bool{}
	for _, r := range list.Refusals {
		if all {
			fmt.Fprintf(t, "%s\t", plain(cmp.Or(r.Tenant, "-")))
		}
		reason, rule, hint := plain(r.Reason), cmp.Or(r.Rule, r.Detail, "-"), "-"
		if !seen[r.Reason] {
			seen[r.Reason], reasons = true, append(reasons, r.Reason)
		}
		if !r.Enforced {
			reason += " (shadow)"
		}
		if r.Scope != "" {
			rule = r.Scope + " " + rule
		}
		if r.RetryAfterMS != nil {
			hint = rough(time.Duration(*r.RetryAfterMS) * time.Millisecond)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.At.UTC().Format("2006-01-02T15:04:05.000Z"), reason, clip(plain(rule)), grouped(r.Depth), hint, clip(plain(cmp.Or(r.ID, "-"))), plain(r.Transport))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, reason := range reasons {
		if text := advice[ingress.Reason(reason)]; text != "" {
			if _, err := fmt.Fprintf(w, "%s: %s\n", reason, text); err != nil {
				return err
			}
		}
	}
	return nil
}
