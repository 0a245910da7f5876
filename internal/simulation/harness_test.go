package simulation

import (
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/flowgate/flowgate/cmd/flowgate/settings"
	"github.com/flowgate/flowgate/internal/arrivals"
)

// config is that of an environment.
func config(t testing.TB, environ ...string) Config {
	t.Helper()
	c, err := settings.Load(environ)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Mode: c.Mode, Ingress: c.Ingress, Limit: c.Limit, Backpressure: c.Backpressure, Shaper: c.Shaper, Consumer: c.Consumer}
}

// scenario is that of a pattern, with a steady consumer and producers who obey.
func scenario(t testing.TB, pattern string, length time.Duration) Scenario {
	t.Helper()
	var p arrivals.Pattern
	if err := yaml.Unmarshal([]byte(pattern), &p); err != nil {
		t.Fatal(err)
	}
	c, err := ParseConsumer("2ms", 1)
	if err != nil {
		t.Fatal(err)
	}
	return Scenario{Arrivals: p.Schedule(length), Length: length, Consumer: c, Seed: 1, After: time.Hour}
}
