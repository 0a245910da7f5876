package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/loadtest/report"
	"github.com/flowgate/flowgate/loadtest/scenario"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// A run keeps its promises and writes its report, which asks nobody for anything.
func TestRunScenario(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := runScenarios(t.Context(), []string{"-report", dir, "-for", "3s", "gateway-killed"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
	if kept := strings.Count(out.String(), "  ok  "); kept != 7 {
		t.Errorf("%d promises kept, want 7", kept)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?i)(src|href)\s*=\s*["'][^#"']|@import|url\(|<script`).FindAll(page, -1); len(found) > 0 {
		t.Errorf("the report refers to something: %q", found)
	}
	for _, want := range []string{"Without flowgate", "With flowgate", "no id twice", `class="gap"`, "capacity", "</html>"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var figures []report.Figures
	if err := json.Unmarshal(text, &figures); err != nil {
		t.Fatal(err)
	}
	f := figures[0]
	if f.With.Messages < 500 || f.With.Delivered != f.With.Messages || f.Without.Messages != f.With.Messages {
		t.Errorf("%d messages, %d delivered with flowgate; %d messages without", f.With.Messages, f.With.Delivered, f.Without.Messages)
	}
	if f.With.Delivery.Count != int64(f.With.Delivered) || f.With.Delivery.P50 <= 0 || len(f.Gaps) != 3 {
		t.Errorf("%+v, gaps %v", f.With.Delivery, f.Gaps)
	}
}

// Batches and messages without ids are seen from outside as well.
func TestRunBatchesWithoutIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "batches.yaml")
	if err := os.WriteFile(path, []byte(`
shows: Messages without ids, ten to a transaction.
for: 2s
arrivals: {seed: 1, groups: [{tenant: acme, phases: [{for: 1s, rate: 50/s}, {for: 1s, rate: 50/s, burst: 100}]}]}
producers: [{tenant: acme, via: http}]
no_ids: true
gateway: {FLOWGATE_CONSUMER_BATCH: "10", FLOWGATE_SHAPER_RATE: 100/s}
database: {latency: 20ms, knee: 8}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runScenarios(t.Context(), []string{path}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	// With batches of ten the fullest window may hold nine more than without.
	if found := regexp.MustCompile(`acknowledged = delivered.*: (\d+) = (\d+) \+ 0 \+ 0\n`).FindStringSubmatch(out.String()); found == nil || found[1] != found[2] || len(found[1]) < 3 {
		t.Error(out.String())
	}
}

// A run that breaks what it promises says so, with the evidence.
func TestRunThatBreaksAPromise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(path, []byte(`
shows: Everybody is promised a place, and there is none.
for: 2s
arrivals: {seed: 1, groups: [{tenant: acme, rate: 100/s}]}
producers: [{tenant: acme, via: http, refused: forget}]
gateway: {FLOWGATE_LIMIT_TENANT: "token-bucket:10/s"}
database: {latency: 20ms, knee: 8}
expect: {unrefused: [acme]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := runScenarios(t.Context(), []string{path}, &out)
	if !errors.Is(err, errBroken) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !regexp.MustCompile(`FAIL  no message of acme is refused: \d+ publishes\n +acme/m\d+, published at [0-9:.]+: rate_limited`).MatchString(out.String()) {
		t.Error(out.String())
	}
	if strings.Count(out.String(), "FAIL") != 1 {
		t.Errorf("other promises were broken too:\n%s", out.String())
	}
}

// A gateway that ends though the scenario does not say so ends the run at once, however its
// producers wait for answers.
func TestRunWhoseGatewayEndsByItself(t *testing.T) {
	for _, via := range []string{"async", "sync", "http"} {
		t.Run(via, func(t *testing.T) {
			t.Parallel()
			real, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(t.TempDir(), "gateway")
			// exec keeps the number of the process.
			script := fmt.Sprintf("#!/bin/sh\n(sleep 3; kill -9 $$) </dev/null >/dev/null 2>&1 &\nexec '%s' \"$@\"\n", real)
			if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Parse("killed", []byte(`
shows: A gateway that somebody kills.
for: 5m
arrivals: {seed: 1, groups: [{tenant: acme, rate: 500/s}]}
producers: [{tenant: acme, via: `+via+`}]
database: {latency: 5ms, knee: 8}
`))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = trial.Run(t.Context(), s, trial.Options{Program: program, Environ: os.Environ(), Output: t.Output(), Drain: time.Minute})
			if err == nil || err.Error() != "the gateway ended by itself: signal: killed" {
				t.Error(err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("said after %s", took)
			}
		})
	}
}
