package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/loadtest/scenario"
	"github.com/flowgate/flowgate/loadtest/trial"
)

// shortPrediction has 150 a second come to a gateway that delivers 50: whatever a machine's
// delays are, it is full within a second or two, and refuses two of three from then on.
const shortPrediction = `
shows: Three times as many as leave.
for: 5s
arrivals: {seed: 1, groups: [{tenant: acme, rate: 100/s}, {tenant: globex, rate: 50/s, spacing: even}]}
producers: [{tenant: acme, via: http, refused: forget}, {tenant: globex, via: sync, refused: forget}]
gateway: {FLOWGATE_SHAPER_RATE: 50/s, FLOWGATE_BACKPRESSURE_HIGH: "100", FLOWGATE_LIMIT_TENANT: unlimited}
database: {latency: 20ms, knee: 8}
`

// What is simulated of a scenario is what its run comes to, and with another rate it is not.
func TestPredictScenario(t *testing.T) {
	s, err := scenario.Parse("short", []byte(shortPrediction))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := trial.Run(t.Context(), s, trial.Options{Program: program, Output: t.Output(), Drain: 30 * time.Second, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	const generous = 0.25 // the machine may be busy
	var out bytes.Buffer
	if off, err := comparePrediction(t.Context(), r, generous, &out); err != nil || off {
		t.Fatalf("off: %t, %v\n%s", off, err, out.String())
	}
	t.Log(out.String())
	for _, row := range []string{`depth, largest +1\d\d +1\d\d `, `depth, worst second \(\d+\) .* of HIGH`, `refused +\d{3} +\d{3} `, `delivered +\d{3} +\d{3} `} {
		if !regexp.MustCompile(row).MatchString(out.String()) {
			t.Errorf("no row %s in\n%s", row, out.String())
		}
	}
	if r.Config.Shaper.Rate, err = algorithms.ParseRate("100/s"); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if off, err := comparePrediction(t.Context(), r, generous, &out); err != nil || !off || !strings.Contains(out.String(), "OFF") {
		t.Errorf("of another rate: off: %t, %v\n%s", off, err, out.String())
	}
}

func TestPredictRefusesFaults(t *testing.T) {
	if err := predictScenarios(t.Context(), []string{"gateway-killed"}, nil); err == nil || !strings.Contains(err.Error(), "gateway-killed: its faults are not simulated") {
		t.Errorf("%v", err)
	}
	if all, err := predictable(nil); err != nil || len(all) < 9 {
		t.Errorf("%d scenarios without faults, %v", len(all), err)
	}
}
