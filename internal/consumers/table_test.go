package consumers

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestHeadersJSON(t *testing.T) {
	for name, test := range map[string]struct {
		headers map[string][]string
		want    string
	}{
		"none":      {nil, `{}`},
		"empty":     {map[string][]string{}, `{}`},
		"one":       {map[string][]string{"K": {"v"}}, `{"K":["v"]}`},
		"many":      {map[string][]string{"B": {"1", "2"}, "A": {}}, `{"A":[],"B":["1","2"]}`},
		"case":      {map[string][]string{"k": {"1"}, "K": {"2"}}, `{"K":["2"],"k":["1"]}`},
		"quotes":    {map[string][]string{`"k\`: {`"v\`}}, `{"\"k\\":["\"v\\"]}`},
		"bad bytes": {map[string][]string{"K\xff": {"a\x00b\xc3"}}, "{\"K\uFFFD\":[\"a\uFFFDb\uFFFD\"]}"},
	} {
		if got := headersJSON(test.headers); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestHeadersJSONAny: whatever the headers, it is JSON that both databases take,
// and what is text comes back.
func TestHeadersJSONAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.Rune()), rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }))
		headers := rapid.MapOf(text, rapid.SliceOf(text)).Draw(t, "headers")
		got := headersJSON(headers)
		if !utf8.ValidString(got) || strings.Contains(got, "\x00") || strings.Contains(got, `\u0000`) {
			t.Fatalf("no database takes %q", got)
		}
		var back map[string][]string
		if err := json.Unmarshal([]byte(got), &back); err != nil {
			t.Fatal(err)
		}
		for k, vs := range headers {
			if storable(k) != k {
				continue
			}
			for i, v := range vs {
				if storable(v) == v && back[k][i] != v {
					t.Fatalf("%q became %q", v, back[k][i])
				}
			}
			if len(vs) != len(back[k]) {
				t.Fatal(cmp.Diff(vs, back[k]))
			}
		}
	})
}
