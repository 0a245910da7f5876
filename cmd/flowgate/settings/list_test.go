package settings

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var listed = []Variable{
	{Name: "FLOWGATE_A", Default: "1", Value: "2", Set: true, Meaning: "a|b, below <max>"},
	{Name: "FLOWGATE_LONGER", Meaning: "no default"},
	{Name: "FLOWGATE_URL", Default: "sqlite:", Value: "x:******", Set: true, Secret: true, Meaning: "secret"},
}

func written(t *testing.T, write func(io.Writer, []Variable) error, vars []Variable) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b, vars); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestListFormats(t *testing.T) {
	for name, c := range map[string]struct {
		write func(io.Writer, []Variable) error
		want  string
	}{
		"table": {WriteTable, `VARIABLE         DEFAULT  VALUE     MEANING
FLOWGATE_A       1        2         a|b, below <max>
FLOWGATE_LONGER  -        -         no default
FLOWGATE_URL     sqlite:  x:******  secret
`},
		"md": {WriteMarkdown, `| variable | default | meaning |
|---|---|---|
| ` + "`FLOWGATE_A` | `1`" + ` | a\|b, below <max> |
| ` + "`FLOWGATE_LONGER`" + ` | empty | no default |
| ` + "`FLOWGATE_URL` | `sqlite:`" + ` | secret |
`},
		"dotenv": {WriteDotenv, `# a|b, below <max>
FLOWGATE_A=2

# no default
#FLOWGATE_LONGER=

# secret
#FLOWGATE_URL=x:******

`},
	} {
		if diff := cmp.Diff(c.want, written(t, c.write, listed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestListAsJSON(t *testing.T) {
	text := written(t, WriteJSON, listed)
	var back []Variable
	if err := json.Unmarshal([]byte(text), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(listed, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	var keys []map[string]any
	if err := json.Unmarshal([]byte(text), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"name", "default", "value", "set", "secret", "meaning"} {
		if _, ok := keys[0][key]; !ok {
			t.Errorf("no %q in %v", key, keys[0])
		}
	}
}

// The dotenv file of an environment sets what that environment sets.
func TestDotenvGivesTheSameConfiguration(t *testing.T) {
	environ := []string{"FLOWGATE_SHAPER_RATE=0.5/s", "FLOWGATE_LIMIT_TENANT=token-bucket:10/s;token-bucket:100/m,burst=20", "FLOWGATE_INGRESS_TENANTS=a,b*"}
	var lines []string
	for line := range strings.Lines(written(t, WriteDotenv, Variables(environ))) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	slices.Sort(environ)
	if diff := cmp.Diff(environ, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A value that Load refuses is shown as it stands: the list is where one looks
// for it.
func TestListShowsWrongValues(t *testing.T) {
	for _, v := range Variables([]string{"FLOWGATE_SHAPER_RATE=fast"}) {
		if v.Name == "FLOWGATE_SHAPER_RATE" && (v.Value != "fast" || !v.Set || v.Default != "200/s") {
			t.Errorf("%+v", v)
		}
	}
}

type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestListReportsAFailedWrite(t *testing.T) {
	for name, write := range map[string]func(io.Writer, []Variable) error{
		"table": WriteTable, "md": WriteMarkdown, "dotenv": WriteDotenv, "json": WriteJSON,
	} {
		if err := write(full{}, listed); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
