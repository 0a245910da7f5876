package settings

import (
	"strings"
	"testing"
)

func TestAnUnknownNameSuggestsTheNearest(t *testing.T) {
	for name, nearest := range map[string]string{
		"FLOWGATE_SHAPPER_RATE":           "FLOWGATE_SHAPER_RATE",
		"FLOWGATE_SHAPER_RATE_FILE":       "FLOWGATE_SHAPER_RATE", // no secret
		"FLOWGATE_BACKPRESSURE_HIHG":      "FLOWGATE_BACKPRESSURE_HIGH",
		"FLOWGATE_BACKPRESSURE_MAXBYTES":  "FLOWGATE_BACKPRESSURE_MAX_BYTES",
		"FLOWGATE_CONSUMER_URI":           "FLOWGATE_CONSUMER_URL",
		"FLOWGATE_CONSUMER_URI_FILE":      "FLOWGATE_CONSUMER_URL_FILE",
		"FLOWGATE_NATS_PASSWORT_FILE":     "FLOWGATE_NATS_PASSWORD_FILE",
		"FLOWGATE_NATS_PASSWORD_FILE_":    "FLOWGATE_NATS_PASSWORD_FILE",
		"FLOWGATE_LIMIT_TENNANT":          "FLOWGATE_LIMIT_TENANT",
		"FLOWGATE_limit_tenant":           "FLOWGATE_LIMIT_TENANT",
		"FLOWGATE_METRICS_TENANT_MAX":     "FLOWGATE_METRICS_TENANTS_MAX",
		"FLOWGATE_CONSUMER_MAX_ATTEMPTSS": "FLOWGATE_CONSUMER_MAX_ATTEMPTS",
	} {
		lines := faults(t, name+"=s3cr3t")
		if len(lines) != 1 || lines[0] != name+": unknown variable; did you mean "+nearest+"?" {
			t.Errorf("%s: want a hint to %s:\n%s", name, nearest, strings.Join(lines, "\n"))
		}
	}
}

func TestOthersNamesAreIgnored(t *testing.T) {
	if _, err := Load([]string{
		// Kubernetes, for a Service called flowgate with ports 8080 and "metrics".
		"FLOWGATE_SERVICE_HOST=10.0.0.7", "FLOWGATE_SERVICE_PORT=8080", "FLOWGATE_SERVICE_PORT_METRICS=8081",
		"FLOWGATE_PORT=tcp://10.0.0.7:8080", "FLOWGATE_PORT_8080_TCP=tcp://10.0.0.7:8080", "FLOWGATE_PORT_8080_TCP_PROTO=tcp",
		"FLOWGATE_PORT_8080_TCP_PORT=8080", "FLOWGATE_PORT_8080_TCP_ADDR=10.0.0.7",
		"FLOWGATE_TEST_POSTGRES=postgres://x", "FLOWGATE_TEST_=1",
		"FLOWGATE=1", "FLOWGATES_X=1", "MY_FLOWGATE_X=1",
	}); err != nil {
		t.Error(err)
	}
	// Near them, but not theirs.
	for _, name := range []string{"FLOWGATE_SERVICE", "FLOWGATE_SERVICE_HOSTS", "FLOWGATE_SERVICE_PORTS", "FLOWGATE_PORTS", "FLOWGATE_TEST", "FLOWGATE_"} {
		faults(t, name+"=1")
	}
}
