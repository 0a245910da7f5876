package algorithms

import (
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Without slashes a glob means what it does to path.Match.
func TestGlobsAreThoseOfPathMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`([abé.*?]|\\\\[ab*?]|\[\^?(a|b-é|\\\\\]|[*?])+\]|[\[\]\\\\^-]){0,8}`).Draw(t, "pattern")
		key := rapid.StringMatching(`[abcdé.*?\[\]\\\\^-]{0,8}`).Draw(t, "key")
		want, err := path.Match(pattern, key)
		if _, bad := path.Match(pattern, ""); err != nil || bad != nil {
			matchGlob(pattern, key) // no policy has it
			return
		}
		if got := matchGlob(pattern, key); got != want {
			t.Fatalf("%q matches %q: %t, want %t", pattern, key, got, want)
		}
	})
}

// A name with slashes is no path: wildcards match them as anything else.
func TestGlobsMatchSlashes(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"free*", "free/1", true}, {"free*", "free/a/b", true}, {"*", "a/b", true}, {"*/b", "a/b", true}, {"a?b", "a/b", true},
		{"a[/]b", "a/b", true}, {"a[^x]b", "a/b", true}, {"a[!-/]b", "a/b", true}, {"a[!-/]b", "a-b", true},
		{"a/*", "a/", true}, {"a/*", "ab", false}, {"*/c", "a/b", false}, {"free*", "/free", false},
	} {
		if got := matchGlob(c.pattern, c.key); got != c.want {
			t.Errorf("%q matches %q: %t", c.pattern, c.key, got)
		}
	}
}

// Many stars cost no more than one: a policy comes from whoever may change limits, but
// keys come from anybody.
func TestGlobsAreCheap(t *testing.T) {
	if matchGlob(strings.Repeat("a*", 100)+"b", strings.Repeat("a", 60_000)) {
		t.Error("there is no b")
	}
}
