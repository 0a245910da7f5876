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
