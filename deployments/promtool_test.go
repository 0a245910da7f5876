// Package deployments holds what flowgate is run and watched with. Its tests check what
// can be checked without a cluster and without a container engine.
package deployments

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rule is one of Prometheus' rules.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) (list []rule) {
	t.Helper()
	for _, name := range []string{"prometheus/recording.yml", "prometheus/alerts.yml"} {
		var file struct{ Groups []struct{ Rules []rule } }
		if err := yaml.Unmarshal([]byte(read(t, name)), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, g := range file.Groups {
			list = append(list, g.Rules...)
		}
	}
	if len(list) < 20 {
		t.Fatalf("%d rules are read", len(list))
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// program finds one of those of Debian's package prometheus, and ends the test without it.
func program(t *testing.T, name, what string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if slices.Contains(strings.Split(os.Getenv("FLOWGATE_TEST_REQUIRE"), ","), what) {
		t.Fatalf("FLOWGATE_TEST_REQUIRE lists %s: %v", what, err)
	}
	t.Skipf("needs %s: %v", name, err)
	return ""
}

func TestRulesByPromtool(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool", "prometheus")
	for _, args := range [][]string{
		{"check", "rules", "recording.yml", "alerts.yml"},
		{"check", "config", "prometheus.yml"},
		{"test", "rules", "recording_test.yml", "alerts_test.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Every alert says how bad it is, what it is and what to do, and has a section of the
// runbook, as every section has an alert.
func TestEachAlertHasItsRunbook(t *testing.T) {
	const base = "https://github.com/flowgate/flowgate/blob/main/docs/runbook.md#"
	sections := map[string]string{}
	for _, part := range strings.Split(read(t, "../docs/runbook.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts[r.Alert] = true
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: no summary or no description", r.Alert)
		}
		if url := r.Annotations["runbook_url"]; url != base+strings.ToLower(r.Alert) {
			t.Errorf("%s: runbook %q", r.Alert, url)
		}
		for _, want := range []string{"**Who suffers**", "**Look**", "**Do**", "**No fault**"} {
			if !strings.Contains(sections[r.Alert], want) {
				t.Errorf("docs/runbook.md: section %s has no %s", r.Alert, want)
			}
		}
	}
	for title := range sections {
		if !alerts[title] {
			t.Errorf("docs/runbook.md: %s is no alert", title)
		}
	}
}

// Every alert of each severity is expected somewhere in the tests of the rules; where it is
// not, each of them wants that it is silent, for they compare all that fires.
func TestEachAlertIsTested(t *testing.T) {
	text := read(t, "prometheus/alerts_test.yml")
	for _, r := range rules(t) {
		if want := `{alertname="` + r.Alert + `", severity="` + r.Labels["severity"] + `"}`; r.Alert != "" && !strings.Contains(text, want) {
			t.Errorf("no case in which %s %s fires", r.Alert, r.Labels["severity"])
		}
	}
	var file struct {
		Tests []struct {
			Name string
			Expr []struct {
				Expr    string
				Samples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	silent := 0
	for _, test := range file.Tests {
		for _, e := range test.Expr {
			if e.Expr != `sum by (alertname, severity) (ALERTS{alertstate="firing"})` {
				t.Errorf("%s: asks for %s, not for all that fires", test.Name, e.Expr)
			}
			if len(e.Samples) == 0 {
				silent++
			}
		}
	}
	if silent < len(file.Tests)/2 {
		t.Errorf("silent in %d places of %d cases", silent, len(file.Tests))
	}
}

var metricName = regexp.MustCompile(`\bflowgate_[a-z0-9_]+`)

// No rule and no panel names a metric that the gateway does not export; TestMetrics of
// cmd/flowgate/app holds docs/metrics.md.
func TestNoMetricDangles(t *testing.T) {
	documented := map[string]bool{}
	for _, name := range metricName.FindAllString(read(t, "../docs/metrics.md"), -1) {
		documented[name] = true
	}
	check := func(where, expr string) {
		for _, name := range metricName.FindAllString(expr, -1) {
			if !documented[name] && !documented[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: %s is not in docs/metrics.md", where, name)
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Record+r.Alert, r.Expr)
	}
	for _, q := range append(queries(t), scaling(t)) {
		check(q.where, q.expr)
	}
}
