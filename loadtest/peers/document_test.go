package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The document says what was not measured and why, shows no figure in its place, names
// every version, and every chart it shows is beside it.
func TestDocument(t *testing.T) {
	o := outcome{
		Versions: map[string]string{"flowgate": "this tree", "jetstream": "nats-server 9.9"},
		Absent:   map[string]string{"rabbitmq": "needs rabbitmq: not installed"},
		Results: []result{
			{Peer: "flowgate", Phase: overload, Settled: true, Told: []told{{"full | stop", 3}}, Series: series{Each: 0.2, Called: []int{40, 40}, Finished: []int{40, 40}}},
			{Peer: "jetstream", Phase: overload, Accepted: 5, Missing: 5},
		},
	}
	path := filepath.Join(t.TempDir(), "comparison.md")
	if err := os.WriteFile(path, []byte("before\n"+opens+"\nof another run\n"+closes+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second run finds what the first wrote
		if err := o.document(path); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(written)
	for _, want := range []string{
		"before\n" + opens, closes + "\nafter\n", "Not measured: rabbitmq: needs rabbitmq: not installed.", "JetStream, sleeping client: nats-server 9.9",
		`full \| stop`, "5 still waiting", "| flowgate | – |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Contains(text, "| RabbitMQ") || strings.Contains(text, "of another run") || strings.Contains(text, "**–**") {
		t.Errorf("it shows what was not measured:\n%s", text)
	}
	shown := regexp.MustCompile(`\]\((images/[^)]+)\)`).FindAllStringSubmatch(text, -1)
	if len(shown) != len(o.charts()) {
		t.Errorf("%d charts are shown, %d are made", len(shown), len(o.charts()))
	}
	for _, m := range shown {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
			t.Error(err)
		}
	}
}

// Every peer that is better is named, not the best alone; what loses or ties is not.
func TestEveryBetterPeerIsNamed(t *testing.T) {
	o := outcome{Results: []result{
		{Peer: "flowgate", Phase: ceiling, Through: 20_000, MiB: 50},
		{Peer: "jetstream", Phase: ceiling, Through: 40_000, MiB: 50},
		{Peer: "watermill", Phase: ceiling, Through: 10_000, MiB: 60},
		{Peer: "pool", Phase: ceiling, Through: 900_000, MiB: 70},
	}}
	got := o.better()
	want := "Ceiling, messages a second: flowgate 20,000; 900,000 with x/time/rate and a pool; 40,000 with JetStream, sleeping client"
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q alone", got, want)
	}
}
