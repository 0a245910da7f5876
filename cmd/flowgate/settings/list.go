package settings

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"text/tabwriter"
)

// Variable is one line of `flowgate env`.
type Variable struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	// Value is what holds now, masked if it is a secret.
	Value   string `json:"value"`
	Set     bool   `json:"set"`
	Secret  bool   `json:"secret"`
	Meaning string `json:"meaning"`
}

// mask stands for a secret.
const mask = "******"

var secretParameter = regexp.MustCompile(`(?i)pass|pwd|token|secret|key|signature`)

// Variables lists every variable with what environ makes of it, in the order of
// the documentation. Values are shown as they stand, right or wrong.
func Variables(environ []string) []Variable {
	var c Config
	list := fields(&c)
	set, _, _ := gather(environ, list)
	out := make([]Variable, len(list))
	for i, f := range list {
		value, ok := set[f.name]
		if !ok {
			value = f.fallback
		}
		if ok && f.secret {
			value = maskSecret(f.name, value)
		}
		out[i] = Variable{Name: f.name, Default: f.fallback, Value: value, Set: ok, Secret: f.secret, Meaning: f.meaning}
	}
	return out
}

func maskSecret(name, value string) string {
	switch {
	case name == prefix+"NATS_URL":
		// A list. If a part of it is not understood, a comma may have been part of
		// a password.
		parts := strings.Split(value, ",")
		for i := range parts {
			if parts[i] = MaskURL(parts[i]); parts[i] == mask {
				return mask
			}
		}
		return strings.Join(parts, ",")
	case strings.HasSuffix(name, "_URL"):
		return MaskURL(value)
	}
	return mask
}

// MaskURL hides the password or token of a URL, also one among the query's
// parameters; all of the URL if it does not parse, or if an @ stands where it
// makes no user.
func MaskURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil && strings.Contains(s, "@") {
		return mask
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return mask
	}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			u.User = url.UserPassword(u.User.Username(), mask)
		} else if u.Scheme != "postgres" && u.Scheme != "postgresql" {
			u.User = url.User(mask) // a token
		}
	}
	for key := range q {
		if secretParameter.MatchString(key) {
			q.Set(key, mask)
			u.RawQuery = q.Encode()
		}
	}
	return strings.ReplaceAll(u.String(), url.QueryEscape(mask), mask)
}

// WriteTable prints the variables for a terminal.
func WriteTable(w io.Writer, vars []Variable) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "VARIABLE\tDEFAULT\tVALUE\tMEANING")
	for _, v := range vars {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Name, dash(v.Default), dash(v.Value), v.Meaning)
	}
	return t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// WriteMarkdown prints README's table: names, defaults and meanings.
func WriteMarkdown(w io.Writer, vars []Variable) error {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, v := range vars {
		fallback := "empty"
		if v.Default != "" {
			fallback = "`" + v.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, fallback, strings.ReplaceAll(v.Meaning, "|", `\|`))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteDotenv prints a file to edit: what is set stands as a line, the rest as
// comments. Secrets are masked and so commented out too.
func WriteDotenv(w io.Writer, vars []Variable) error {
	var b strings.Builder
	for _, v := range vars {
		comment := "#"
		if v.Set && !v.Secret {
			comment = ""
		}
		fmt.Fprintf(&b, "# %s\n%s%s=%s\n\n", v.Meaning, comment, v.Name, v.Value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON prints the variables as an array of objects.
func WriteJSON(w io.Writer, vars []Variable) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(vars)
}
