package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowgate/flowgate/loadtest/scenarios"
)

// Every command that the documents name for a figure is there: a measurement, a scenario, a
// test or benchmark of the package.
func TestDocumentsNameCommands(t *testing.T) {
	subcommands := []string{"run", "predict"}
	for _, m := range measurements() {
		subcommands = append(subcommands, m.name)
	}
	loadtests := regexp.MustCompile("go run \\./loadtest ([^`\n#]+)")
	gotests := regexp.MustCompile("go test ([^`\n]*)`")
	functions := map[string][]string{}
	for _, name := range []string{"README.md", "docs/measurements.md", "docs/loadtest.md", "docs/simulate.md"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range loadtests.FindAllStringSubmatch(string(text), -1) {
			found++
			words := slices.DeleteFunc(strings.Fields(m[1]), func(w string) bool { return strings.HasPrefix(w, "-") })
			if len(words) > 0 && !slices.Contains(subcommands, words[0]) {
				t.Errorf("%s: loadtest has no %q: %s", name, words[0], m[0])
			}
			if len(words) < 2 || words[0] != "run" {
				continue
			}
			for _, w := range words[1:] {
				if _, err := scenarios.Load(w); err != nil && regexp.MustCompile(`^[a-z-]+$`).MatchString(w) && w != "out" {
					t.Errorf("%s: %s: %v", name, m[0], err)
				}
			}
		}
		for _, m := range gotests.FindAllStringSubmatch(string(text), -1) {
			pattern, pkg := selected(m[1])
			if pattern == "" || !strings.HasPrefix(pkg, "./") {
				continue
			}
			found++
			if functions[pkg] == nil {
				functions[pkg] = testsOf(t, pkg)
			}
			if re := regexp.MustCompile(pattern); !slices.ContainsFunc(functions[pkg], re.MatchString) {
				t.Errorf("%s: no test of %s matches %q", name, pkg, pattern)
			}
		}
		if found == 0 {
			t.Errorf("%s names no command", name)
		}
	}
}

// selected is what a command line of go test runs, of which package.
func selected(line string) (pattern, pkg string) {
	words := strings.Fields(line)
	for i, w := range words {
		switch {
		case (w == "-run" || w == "-bench") && i+1 < len(words) && words[i+1] != "xxx":
			pattern = strings.Trim(words[i+1], "'")
		case strings.HasPrefix(w, "./"):
			pkg = w
		}
	}
	return pattern, pkg
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)

func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
