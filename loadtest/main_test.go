package main

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
)

// A ratio under its floor fails a short run too, any other figure a whole one alone.
func TestWhatFailsARun(t *testing.T) {
	for _, c := range []struct {
		name  string
		short bool
		fails bool
	}{{floors, true, true}, {floors, false, true}, {"rate", true, false}, {"rate", false, true}} {
		if holds(c.name, c.short) != c.fails {
			t.Errorf("%s, short %v: want %v", c.name, c.short, c.fails)
		}
	}
	for _, c := range []struct {
		figure
		missed bool
	}{
		{figure{"ratio", 0.39, "", 0.4, 0}, true}, {figure{"ratio", 0.4, "", 0.4, 0}, false},
		{figure{"wait", 2.1, "ms", 0, 2}, true}, {figure{"wait", 2, "ms", 0, 2}, false}, {figure{"rate", 1e9, "msg/s", 0, 0}, false},
	} {
		if c.figure.missed() != c.missed {
			t.Errorf("%+v: want %v", c.figure, c.missed)
		}
	}
}

func TestFloorsAreMeasured(t *testing.T) {
	if !slices.ContainsFunc(measurements(), func(m measurement) bool { return m.name == floors }) {
		t.Error("the floors are not among the measurements")
	}
	if err := run(t.Context(), []string{"nothing"}, nil); err == nil || errors.Is(err, errMissed) {
		t.Errorf("an unknown measurement: %v", err)
	}
}

// Help lists every measurement.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"predict", "-h"}} {
		if err := run(t.Context(), args, nil); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, m := range measurements() {
		if !strings.Contains(usage, "go run ./loadtest "+m.name+" ") {
			t.Errorf("usage lacks %s", m.name)
		}
	}
}
