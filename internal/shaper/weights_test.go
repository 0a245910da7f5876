package shaper

import (
	"maps"
	"testing"
)

func TestWeights(t *testing.T) {
	for text, want := range map[string]Weights{
		"": nil, "acme=5": {"acme": 5}, "acme=5, globex=2": {"acme": 5, "globex": 2}, "a-b_C9=1000": {"a-b_C9": 1000},
	} {
		var w Weights
		if err := w.UnmarshalText([]byte(text)); err != nil || !maps.Equal(w, want) {
			t.Errorf("%s: %v, %v", text, w, err)
		}
		var again Weights
		if err := again.UnmarshalText([]byte(w.String())); err != nil || !maps.Equal(again, want) {
			t.Errorf("%s is shown as %s: %v", text, w, err)
		}
	}
	for _, text := range []string{"acme", "acme=", "acme=0", "acme=1001", "acme=-1", "acme=1.5", "=3", "a.b=3", "a=1,a=2", "a=1,", "*=2", "a=99999999999999999999"} {
		var w Weights
		if err := w.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted as %v", text, w)
		}
	}
}
