package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
)

var update = flag.Bool("update", false, "write README's table of variables anew")

// README's table is what `flowgate env --format=md` prints.
func TestReadmeListsTheVariables(t *testing.T) {
	const path, begin, end = "../../README.md", "<!-- flowgate env --format=md -->\n", "<!-- end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("README has no %q … %q", begin, end)
	}
	var want bytes.Buffer
	if err := settings.WriteMarkdown(&want, settings.Variables(nil)); err != nil {
		t.Fatal(err)
	}
	if have == want.String() {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("README's table is not what `flowgate env --format=md` prints; run go test ./cmd/flowgate -run Readme -update\nhave\n%s\nwant\n%s", have, want.String())
}

// README's producers are the programs in docs/clients, or the part of them between the
// lines "readme:" and ":readme".
func TestReadmeShowsTheClients(t *testing.T) {
	const path = "../../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	for _, c := range []struct{ file, language string }{
		{"docs/clients/go/main.go", "go"}, {"docs/clients/python/publish.py", "python"}, {"docs/clients/node/publish.mjs", "js"},
	} {
		program, err := os.ReadFile("../../" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok1 := strings.Cut(string(program), " readme:\n")
		part, _, ok2 := strings.Cut(rest, " :readme\n")
		part = part[:strings.LastIndexByte(part, '\n')+1] // without the beginning of the comment
		begin, end := "<!-- "+c.file+" -->\n", "<!-- end -->"
		before, rest, ok3 := strings.Cut(readme, begin)
		have, after, ok4 := strings.Cut(rest, end)
		if !ok1 || !ok2 || !ok3 || !ok4 {
			t.Fatalf("%s has no part for README, or README no %q … %q", c.file, begin, end)
		}
		want := "```" + c.language + "\n" + strings.TrimRight(part, "\n") + "\n```\n"
		if have != want && !*update {
			t.Errorf("README shows another %s; run go test ./cmd/flowgate -run Readme -update\nhave\n%s\nwant\n%s", c.file, have, want)
		}
		readme = before + begin + want + end + after
	}
	if *update && readme != string(text) {
		if err := os.WriteFile(path, []byte(readme), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
