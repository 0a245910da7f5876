package main

import (
	"fmt"
	"html"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What lies between these lines of a document is this program's.
const (
	opens  = "<!-- measured: written by loadtest/peers, not by hand -->"
	closes = "<!-- end of what is measured -->"
)

// document puts tables and charts between the marks of a file, and the charts' files into
// the folder images beside it.
func (o outcome) document(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	whole, err := between(string(text), o.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	images := filepath.Join(filepath.Dir(path), "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	for _, c := range o.charts() {
		if err := os.WriteFile(filepath.Join(images, c.file), []byte(c.svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(whole), 0o644)
}

// between replaces what lies between the marks.
func between(text, what string) (string, error) {
	before, rest, opened := strings.Cut(text, opens)
	_, after, closed := strings.Cut(rest, closes)
	if !opened || !closed {
		return "", fmt.Errorf("it lacks the lines %q and %q", opens, closes)
	}
	return before + opens + "\n\n" + what + "\n" + closes + after, nil
}

// frame says what was done.
func (o outcome) frame() string {
	p := phases(o.Short)[1]
	return fmt.Sprintf("Measured on %s. The database of the model bears %.0f calls a second, %d at a time at %s each; with more open all get slower, and with %d it goes down for %s. "+
		"The rate is %d/s, %d messages may wait (in flowgate's case HIGH), %d calls may be open. Messages of %d bytes arrive for %s in each phase, by a Poisson process of a fixed seed that does not wait for answers; figures are from %s on. Nobody sends anything twice.",
		o.machine(), bears.Capacity(), bears.Knee, bears.Latency, bears.CrashAt, bears.Recovery, perSecond, p.Backlog, workers, messageSize, p.Length, p.Warm)
}

// versions are those of all that ran.
func (o outcome) versions() string {
	var list []string
	for _, c := range contestants {
		if version, ok := o.Versions[c.Name]; ok {
			list = append(list, c.Title+": "+version)
		}
	}
	return "Versions. " + strings.Join(list, "; ") + "."
}

func (o outcome) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", o.frame(), o.versions())
	for _, name := range slices.Sorted(maps.Keys(o.Absent)) {
		fmt.Fprintf(&b, "\nNot measured: %s: %s.\n", name, o.Absent[name])
	}
	fmt.Fprintf(&b, "\n![Calls of the database and what it finished in the overload, a row for each](images/comparison-overload.svg)\n")
	after := map[string]string{
		"Overload: the rate":     "![Time between calls, standard deviation](images/comparison-jitter.svg)",
		"Noisy neighbour":        "![A quiet tenant's wait beside a noisy one](images/comparison-fairness.svg)",
		"Ceiling":                "![Most messages a second](images/comparison-ceiling.svg)",
		"Memory in the overload": "![Most memory in the overload](images/comparison-memory.svg)",
	}
	for _, s := range sheets {
		rows := o.rows(s)
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n|", s.title, s.note)
		for _, c := range s.columns {
			fmt.Fprintf(&b, " | %s", c.head)
		}
		fmt.Fprintf(&b, " |\n|---%s|\n", strings.Repeat("|---", len(s.columns)))
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s", r.Title)
			for i, cell := range r.cells {
				if r.best[i] {
					cell = "**" + cell + "**"
				}
				fmt.Fprintf(&b, " | %s", strings.ReplaceAll(cell, "|", "\\|"))
			}
			fmt.Fprintln(&b, " |")
		}
		if picture := after[s.title]; picture != "" {
			fmt.Fprintf(&b, "\n%s\n", picture)
		}
	}
	fmt.Fprintf(&b, "\n### Where a peer is better\n\n")
	for _, line := range o.better() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	fmt.Fprintf(&b, "\n### How each is set, and why\n\n")
	for _, c := range contestants {
		if _, ok := o.Versions[c.Name]; ok {
			fmt.Fprintf(&b, "- **%s**. %s\n", c.Title, c.Setting)
		}
	}
	return b.String()
}

// page is all of it in one file of HTML.
func (o outcome) page(path string) error {
	var b strings.Builder
	b.WriteString(`<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>flowgate beside its peers</title>
<style>:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{padding:.25rem .6rem;border-bottom:1px solid #8884;text-align:right}td:first-child,th:first-child{text-align:left}.best{font-weight:700}svg{width:100%;height:auto}</style>
<h1>flowgate beside its peers</h1>
`)
	fmt.Fprintf(&b, "<p>%s</p>\n<p>%s</p>\n", html.EscapeString(o.frame()), html.EscapeString(o.versions()))
	for _, name := range slices.Sorted(maps.Keys(o.Absent)) {
		fmt.Fprintf(&b, "<p>Not measured: %s: %s.</p>\n", name, html.EscapeString(o.Absent[name]))
	}
	for _, c := range o.charts() {
		// Titles' ids are those of one file each.
		name := strings.TrimSuffix(c.file, ".svg")
		svg := strings.NewReplacer(`id="title"`, `id="`+name+`-title"`, `id="desc"`, `id="`+name+`-desc"`, `"title desc"`, `"`+name+`-title `+name+`-desc"`).Replace(c.svg)
		fmt.Fprintf(&b, "<figure>%s</figure>\n", svg)
	}
	for _, s := range sheets {
		fmt.Fprintf(&b, "<h2>%s</h2>\n<p>%s</p>\n<table><tr><th></th>", html.EscapeString(s.title), html.EscapeString(s.note))
		for _, c := range s.columns {
			fmt.Fprintf(&b, "<th>%s</th>", html.EscapeString(c.head))
		}
		b.WriteString("</tr>\n")
		for _, r := range o.rows(s) {
			fmt.Fprintf(&b, "<tr><td>%s</td>", html.EscapeString(r.Title))
			for i, cell := range r.cells {
				class := ""
				if r.best[i] {
					class = ` class="best"`
				}
				fmt.Fprintf(&b, "<td%s>%s</td>", class, html.EscapeString(strings.Trim(cell, "`")))
			}
			b.WriteString("</tr>\n")
		}
		b.WriteString("</table>\n")
	}
	b.WriteString("<h2>Where a peer is better</h2>\n<ul>\n")
	for _, line := range o.better() {
		fmt.Fprintf(&b, "<li>%s</li>\n", html.EscapeString(line))
	}
	b.WriteString("</ul>\n<h2>How each is set, and why</h2>\n<ul>\n")
	for _, c := range contestants {
		if _, ok := o.Versions[c.Name]; ok {
			fmt.Fprintf(&b, "<li><b>%s</b>. %s</li>\n", html.EscapeString(c.Title), html.EscapeString(strings.ReplaceAll(c.Setting, "`", "")))
		}
	}
	b.WriteString("</ul></html>\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
