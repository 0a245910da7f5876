package report

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

//go:embed report.html.tmpl
var page string

// Write writes report.html and report.json into a directory, which it makes.
func Write(dir string, all []*Figures) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"number": number,
		"ms":     milliseconds,
		"percent": func(part, whole int) string {
			return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
		},
	}).Parse(page)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	var html strings.Builder
	if err := t.Execute(&html, all); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "report.html"), []byte(html.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o600),
	)
}

// milliseconds writes a time with the unit that suits it.
func milliseconds(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.1f s", v/1000)
	case v >= 1000:
		return fmt.Sprintf("%.2f s", v/1000)
	case v >= 10:
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.1f ms", v)
}

// Headline says in a sentence what became of the database.
func (f *Figures) Headline() string {
	return fmt.Sprintf("Without flowgate the database %s. With it, it %s.", fate(f.Without), fate(f.With))
}

func fate(s Side) string {
	share := func(n int) float64 { return 100 * float64(n) / float64(max(1, s.Messages)) }
	got := fmt.Sprintf("took %.1f %% of all messages", share(s.Delivered))
	if s.Refused > 0 {
		got += fmt.Sprintf(", and %.1f %% were refused before they reached it", share(s.Refused))
	}
	switch {
	case s.Crashes == 0 && s.Down == 0:
		return "stayed up and " + got
	case s.Crashes == 0:
		return fmt.Sprintf("was stopped for %.1f s and %s", s.Down, got)
	case s.Crashes == 1:
		return fmt.Sprintf("went down once, was away for %.1f s and %s", s.Down, got)
	}
	return fmt.Sprintf("went down %d times, was away for %.1f s and %s", s.Crashes, s.Down, got)
}

// Kept reports whether all was.
func (f *Figures) Kept() bool {
	for _, c := range f.Checks {
		if len(c.Broken) > 0 {
			return false
		}
	}
	return true
}
