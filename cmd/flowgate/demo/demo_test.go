package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// On a terminal the live line stays one line.
func TestDemoOnATerminal(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), Options{Out: &out, Load: 3 * time.Second, Terminal: true, Width: 60}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	drawn := strings.Split(out.String(), "\r\x1b[K")
	if len(drawn) < 3 {
		t.Fatalf("%d live lines", len(drawn)-1)
	}
	for _, line := range drawn[1 : len(drawn)-1] {
		if n := len([]rune(line)); n > 59 || strings.Contains(line, "\n") {
			t.Errorf("%d columns of 60: %q", n, line)
		}
		if !strings.Contains(line, "█") && !strings.Contains(line, "│") {
			t.Errorf("no gauge: %q", line)
		}
	}
}

// A short demo shows all it should, and finds its promises kept.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), Options{Out: &out, Load: 4 * time.Second}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	for _, want := range []string{
		"admitted ", "refused rate_limited", "depth ", "delivered ", "drain ",
		"  ok    every acknowledged message is in the database once, with its own payload: ",
		"  ok    nothing that was refused is in the database: ",
		"  ok    no window of released_at holds more than 200/s allows: ",
		"  ok    the backlog never held more than MAX = 800: ",
		"where to go next:",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\r") {
		t.Error("control characters in piped output")
	}
	for _, tenant := range []string{"steady", "bursty", "greedy"} {
		if strings.Count(text, tenant) < 2 {
			t.Errorf("tenant %s is not in the table:\n%s", tenant, text)
		}
	}
}
