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
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
)

const scopesHelp = `
Scopes: gateway, service, tenant, user, ip, api_key. The key * is the rule for everyone in the scope who has
none of his own; names stand before globs like 'free-*'. An API key stands as the fingerprint that
"flowgate limits fingerprint" makes of it.
`

const dashHelp = `
What begins with a dash and is no option comes after --: flowgate limits delete user -- -bob
`

const addrHelp = `  --addr=<address>  the gateway's admin address, host:port or a URL; FLOWGATE_ADMIN_LISTEN otherwise

Its token, if it has one, comes from FLOWGATE_ADMIN_TOKEN or FLOWGATE_ADMIN_TOKEN_FILE.
`

func limitsCommands() []command {
	return []command{
		{
			name: "limits list", args: "[options]", run: cli.limitsList,
			meaning: "show the limits in force, those of the environment and those set since",
			more: `  --json            as JSON, which "flowgate limits apply" reads
  --scope=<scope>   of this scope only; applied, such a list deletes the limits of the others
` + addrHelp,
		},
		{
			name: "limits set", args: "<scope> [<key>] <limit> [options]", run: cli.limitsSet,
			meaning: "set a limit; it holds when the command returns, and over restarts",
			more: `  flowgate limits set tenant acme token-bucket:50/s,burst=100 --reason='ticket 4711'
  flowgate limits set gateway token-bucket:5000/s

  --reason=<text>   why, for those who read the list later
  --author=<name>   who; $USER otherwise
` + addrHelp + scopesHelp + dashHelp,
		},
		{
			name: "limits delete", args: "<scope> [<key>] [options]", run: cli.limitsDelete,
			meaning: "delete a limit that was set; the environment's holds again",
			more:    addrHelp + scopesHelp + dashHelp,
		},
		{
			name: "limits apply", args: "-f <file> [options]", run: cli.limitsApply,
			meaning: "make the limits that were set exactly those of a file, - for standard input; all or none",
			more: `The file is what "flowgate limits list --json" prints, of which the environment's limits are passed over, or an array:
  [{"scope":"tenant","key":"acme","limit":"token-bucket:50/s","reason":"ticket 4711"}]

  --author=<name>   who, for entries that do not say; $USER otherwise
` + addrHelp + scopesHelp,
		},
		{
			name: "limits fingerprint", run: cli.limitsFingerprint,
			meaning: "read an API key from standard input and print what stands for it in limits",
		},
	}
}

// parseAll reads flags before, between and after the other words, and returns
// those. After -- nothing is a flag.
func parseAll(f *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			if len(words) > 0 && strings.HasPrefix(err.Error(), "flag provided but not defined") { // it may be a key
				err = fmt.Errorf("%w; what is no option comes after --", err)
			}
			return nil, usageError{err}
		}
		rest := f.Args()
		if len(rest) == 0 {
			return words, nil
		}
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(words, rest...), nil
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

// place reads the scope and key of a command; the gateway has no key.
func place(words []string) (limits.Scope, string, error) {
	if len(words) == 0 {
		return "", "", usageError{errors.New("the scope is missing")}
	}
	scope, key := limits.Scope(words[0]), limits.AnyKey
	switch {
	case !slices.Contains(limits.Scopes(), scope):
		return "", "", usageError{fmt.Errorf("there is no scope %q; it is gateway, service, tenant, user, ip or api_key", words[0])}
	case len(words) == 2:
		key = words[1]
	case len(words) > 2:
		return "", "", usageError{fmt.Errorf("%q is not understood after the key", words[2])}
	case scope != limits.Gateway:
		return "", "", usageError{fmt.Errorf("the key is missing; '*' is the rule for every %s", scope)}
	}
	return scope, key, nil
}

// author is who runs the command.
func (c cli) author() string {
	for _, line := range c.environ {
		if name, value, _ := strings.Cut(line, "="); name == "USER" && value != "" {
			return value
		}
	}
	return "cli"
}

// limitPath is where a limit is at the admin address. A dot would be taken for
// part of the path.
func limitPath(scope limits.Scope, key string) string {
	return "/api/v1/limits/" + string(scope) + "/" + strings.ReplaceAll(url.PathEscape(key), ".", "%2E")
}

func (c cli) limitsList(ctx context.Context, f *flag.FlagSet, args []string) error {
	asJSON := f.Bool("json", false, "as JSON")
	scope := f.String("scope", "", "of this scope only")
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if *scope != "" && !slices.Contains(limits.Scopes(), limits.Scope(*scope)) {
		return usageError{fmt.Errorf("there is no scope %q; it is gateway, service, tenant, user, ip or api_key", *scope)}
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	var list app.LimitList
	if err := gateway.do(ctx, http.MethodGet, "/api/v1/limits", nil, &list); err != nil {
		return err
	}
	if list.Limits == nil {
		return gateway.other(`it tells no "limits"`)
	}
	list.Limits = slices.DeleteFunc(list.Limits, func(l app.ListedLimit) bool { return *scope != "" && string(l.Scope) != *scope })
	if *asJSON {
		return c.printJSON(list)
	}
	t := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCOPE\tKEY\tLIMIT\tSOURCE\tAUTHOR\tREASON\tSINCE")
	for _, l := range list.Limits {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Scope, plain(l.Key), l.Limit, origin(l.Source, l.InForce, l.Author, l.Reason, l.At))
	}
	c.tellState("limits", list.Stale, list.Broken)
	return t.Flush()
}

func (c cli) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// origin is where an entry of a list comes from, as its last columns.
func origin(source string, inForce bool, author, reason string, at time.Time) string {
	since := "-"
	if !at.IsZero() {
		since = at.UTC().Format(time.RFC3339)
	}
	if !inForce {
		source += ", overridden"
	}
	return strings.Join([]string{source, cmp.Or(plain(author), "-"), cmp.Or(plain(reason), "-"), since}, "\t")
}

// tellState says whether the live ones may not be those of the bucket, and what stands
// there and is not used.
func (c cli) tellState(what, stale string, broken []limits.BrokenEntry) {
	if stale != "" {
		fmt.Fprintf(c.stderr, "the live %s may not be those of the bucket: %s\n", what, stale)
	}
	for _, b := range broken {
		kept := ""
		if b.Kept {
			kept = "; the one before it is still in force"
		}
		fmt.Fprintf(c.stderr, "not used: %s, revision %d in the bucket: %s%s\n", plain(b.Name), b.Revision, strings.ReplaceAll(b.Error, "\n", "; "), kept)
	}
}

// plain is a key as a terminal may show it.
func plain(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.QuoteToASCII(key)
	}
	return key
}

func (c cli) limitsSet(ctx context.Context, f *flag.FlagSet, args []string) error {
	reason := f.String("reason", "", "why, for those who read the list later")
	author := f.String("author", c.author(), "who")
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	if len(words) < 2 {
		return usageError{errors.New("the scope, its key and the limit are needed")}
	}
	last := len(words) - 1
	scope, key, err := place(words[:last])
	if err != nil {
		return err
	}
	body := app.LimitBody{Scope: string(scope), Key: key, Limit: &words[last], Author: *author, Reason: *reason}
	if _, err := body.Entry(); err != nil {
		return usageError{err}
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	var stored limits.Entry
	change := map[string]string{"limit": words[last], "author": *author, "reason": *reason}
	if err := gateway.do(ctx, http.MethodPut, limitPath(scope, key), change, &stored); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s %s is limited to %s\n", stored.Scope, plain(stored.Key), stored.Rules)
	return err
}

func (c cli) limitsDelete(ctx context.Context, f *flag.FlagSet, args []string) error {
	client := c.addrFlag(f)
	words, err := parseAll(f, args)
	if err != nil {
		return err
	}
	scope, key, err := place(words)
	if err != nil {
		return err
	}
	if err := (limits.Entry{Scope: scope, Key: key}).Validate(); err != nil {
		return usageError{err}
	}
	gateway, err := client()
	if err != nil {
		return err
	}
	if err := gateway.do(ctx, http.MethodDelete, limitPath(scope, key), nil, nil); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "the limit of %s %s is deleted\n", scope, plain(key))
	return err
}

func (c cli) limitsFingerprint(_ context.Context, f *flag.FlagSet, args []string) error {
	if err := parse(f, args); err != nil {
		return err
	}
	var text []byte
	var err error
	if file, ok := c.stdin.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fmt.Fprint(c.stderr, "API key: ")
		text, err = term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(c.stderr)
	} else {
		text, err = io.ReadAll(c.stdin)
	}
	if err != nil {
		return fmt.Errorf("read the API key: %w", err)
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return errors.New("standard input must hold one API key, on one line")
	}
	_, err = fmt.Fprintln(c.stdout, ingress.Fingerprint(key))
	return err
}
