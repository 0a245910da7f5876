package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/flowgate/flowgate/"

// imports says which of our packages each may import; ARCHITECTURE.md shows the
// same. What is not listed may not exist: a new package needs a line here.
var imports = map[string][]string{
	"client":                        {}, // the only one that others import
	"internal/algorithms":           {},
	"internal/units":                {},
	"internal/bubble":               {},
	"internal/descriptors":          {},
	"internal/history":              {},
	"internal/arrivals":             {"internal/algorithms", "internal/units"},
	"internal/fragile":              {"internal/units"},
	"internal/tracing":              {},
	"internal/simulation":           {"internal/algorithms", "internal/units", "internal/arrivals", "internal/fragile", "internal/limits", "internal/ingress", "internal/admission", "internal/backpressure", "internal/shaper", "internal/consumers"},
	"internal/admission":            {"internal/algorithms", "internal/limits", "internal/ingress", "internal/backpressure"},
	"internal/limits":               {"internal/algorithms"},
	"internal/ingress":              {"internal/algorithms", "internal/units", "internal/descriptors"},
	"internal/backpressure":         {"internal/algorithms", "internal/units"},
	"internal/consumers":            {"internal/algorithms", "internal/units"},
	"internal/consumers/pgtest":     {},
	"internal/consumers/brokertest": {},
	"internal/shaper":               {"internal/algorithms", "internal/units", "internal/consumers"},

	"cmd/flowgate/settings":             {"internal/algorithms", "internal/units", "internal/ingress", "internal/limits", "internal/backpressure", "internal/shaper", "internal/consumers"},
	"cmd/flowgate/app/broker":           {"internal/descriptors"},
	"cmd/flowgate/app/page":             {},
	"cmd/flowgate/app/page/browsertest": {},
	"cmd/flowgate/app": {"cmd/flowgate/app/broker", "cmd/flowgate/app/page", "cmd/flowgate/settings", "internal/admission", "internal/algorithms", "internal/arrivals", "internal/descriptors", "internal/history", "internal/units", "internal/ingress", "internal/limits",
		"internal/backpressure", "internal/shaper", "internal/consumers", "internal/tracing"},
	"cmd/flowgate/demo": {"cmd/flowgate/app", "cmd/flowgate/settings", "loadtest/invariants", "loadtest/producers"},
	"cmd/flowgate":      {"cmd/flowgate/app", "cmd/flowgate/demo", "cmd/flowgate/settings", "internal/arrivals", "internal/history", "internal/ingress", "internal/limits", "internal/simulation", "internal/tracing", "internal/units"},

	"docs/clients/go": {},

	"deployments": {}, // tests alone

	"loadtest/invariants": {"internal/algorithms"},
	"loadtest/producers":  {"internal/arrivals", "loadtest/invariants"},
	"loadtest/scenarios":  {"loadtest/scenario"},
	"loadtest/scenario":   {"internal/arrivals", "internal/fragile", "internal/units"},
	"loadtest/trial": {"cmd/flowgate/app", "cmd/flowgate/settings", "internal/arrivals", "internal/consumers", "internal/fragile", "loadtest/database", "loadtest/invariants",
		"loadtest/producers", "loadtest/scenario"},
	"loadtest/prediction": {"internal/arrivals", "internal/simulation", "loadtest/invariants", "loadtest/scenario", "loadtest/trial"},
	"loadtest/report":     {"internal/fragile", "loadtest/invariants", "loadtest/trial"},
	"loadtest/database":   {"internal/fragile"},
	"loadtest": {"cmd/flowgate/app", "cmd/flowgate/settings", "internal/algorithms", "internal/consumers", "internal/consumers/pgtest", "loadtest/producers",
		"loadtest/invariants", "loadtest/prediction", "loadtest/report", "loadtest/scenario", "loadtest/scenarios", "loadtest/trial"},
}

func TestImportsGoOneWay(t *testing.T) {
	list := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(out); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, ok := imports[name]
		if !ok {
			t.Errorf("%s is not in the table of packages", name)
		}
		for _, i := range p.Imports {
			below, ours := strings.CutPrefix(i, module)
			if ours && !slices.Contains(allowed, below) {
				t.Errorf("%s imports %s", name, below)
			}
			if name == "internal/algorithms" && strings.Contains(i, ".") {
				t.Errorf("algorithms imports %s; it may import the standard library alone", i)
			}
		}
	}
	if err := list.Wait(); err != nil {
		t.Fatal(err)
	}
}
