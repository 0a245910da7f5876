package settings

import (
	"reflect"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/units"
)

// documented is every variable of the public interface with its default.
var documented = map[string]string{
	"FLOWGATE_NAME": "flowgate", "FLOWGATE_MODE": "enforce", "FLOWGATE_DATA_DIR": "flowgate-data",
	"FLOWGATE_LOG_LEVEL": "info", "FLOWGATE_LOG_FORMAT": "auto",
	"FLOWGATE_SHUTDOWN_DELAY": "0s", "FLOWGATE_SHUTDOWN_TIMEOUT": "20s",

	"FLOWGATE_NATS_URL": "", "FLOWGATE_NATS_LISTEN": "127.0.0.1:4222", "FLOWGATE_NATS_CONFIG": "",
	"FLOWGATE_NATS_CREDS": "", "FLOWGATE_NATS_USER": "", "FLOWGATE_NATS_PASSWORD": "", "FLOWGATE_NATS_TOKEN": "",
	"FLOWGATE_NATS_TLS_CA": "", "FLOWGATE_NATS_TLS_CERT": "", "FLOWGATE_NATS_TLS_KEY": "",
	"FLOWGATE_NATS_SYNC_INTERVAL": "100ms", "FLOWGATE_NATS_REPLICAS": "1",

	"FLOWGATE_INGRESS_PREFIX": "ingress", "FLOWGATE_INGRESS_HTTP_LISTEN": "127.0.0.1:8080", "FLOWGATE_INGRESS_HTTP_TLS_CERT": "", "FLOWGATE_INGRESS_HTTP_TLS_KEY": "", "FLOWGATE_INGRESS_MAX_PAYLOAD": "1MiB",
	"FLOWGATE_INGRESS_DEDUP_WINDOW": "2m", "FLOWGATE_INGRESS_TENANTS": "", "FLOWGATE_INGRESS_API_KEYS_FILE": "", "FLOWGATE_INGRESS_TRUSTED_PROXIES": "", "FLOWGATE_INGRESS_HOLD": "off",

	"FLOWGATE_LIMIT_GATEWAY": "", "FLOWGATE_LIMIT_SERVICE": "", "FLOWGATE_LIMIT_TENANT": "token-bucket:1000/s,burst=2000",
	"FLOWGATE_LIMIT_USER": "", "FLOWGATE_LIMIT_IP": "", "FLOWGATE_LIMIT_API_KEY": "", "FLOWGATE_LIMIT_TENANT_OVERRIDES": "", "FLOWGATE_LIMIT_MAX_KEYS": "1000000",

	"FLOWGATE_BACKPRESSURE_HIGH": "10000", "FLOWGATE_BACKPRESSURE_LOW": "80%", "FLOWGATE_BACKPRESSURE_MAX": "200%", "FLOWGATE_BACKPRESSURE_MAX_BYTES": "1GiB",
	"FLOWGATE_BACKPRESSURE_HIGH_AGE": "off", "FLOWGATE_BACKPRESSURE_HIGH_OUTAGE": "off", "FLOWGATE_BACKPRESSURE_FAIR": "on", "FLOWGATE_BACKPRESSURE_TENANT_MAX": "off",

	"FLOWGATE_SHAPER_RATE": "200/s", "FLOWGATE_SHAPER_TOLERANCE": "5ms", "FLOWGATE_SHAPER_WEIGHTS": "", "FLOWGATE_SHAPER_ADAPTIVE": "off",
	"FLOWGATE_SHAPER_RATE_MIN": "1/s", "FLOWGATE_SHAPER_TARGET_LATENCY": "100ms", "FLOWGATE_SHAPER_MEMORY": "64MiB",

	"FLOWGATE_CONSUMER_URL": "sqlite:", "FLOWGATE_CONSUMER_CONCURRENCY": "4", "FLOWGATE_CONSUMER_BATCH": "1", "FLOWGATE_CONSUMER_BATCH_WAIT": "0s",
	"FLOWGATE_CONSUMER_TIMEOUT": "10s", "FLOWGATE_CONSUMER_MAX_ATTEMPTS": "5", "FLOWGATE_CONSUMER_RETENTION": "off",
	"FLOWGATE_CONSUMER_BACKOFF": "200ms", "FLOWGATE_CONSUMER_BACKOFF_MAX": "30s", "FLOWGATE_CONSUMER_ORDER": "none", "FLOWGATE_CONSUMER_SQL": "", "FLOWGATE_CONSUMER_HTTP_SECRET": "",
	"FLOWGATE_DLQ_MAX_BYTES": "256MiB", "FLOWGATE_DLQ_MAX_AGE": "0",

	"FLOWGATE_ADMIN_LISTEN": "127.0.0.1:8081", "FLOWGATE_ADMIN_TOKEN": "", "FLOWGATE_METRICS_TENANTS_MAX": "50",
}

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range Variables(nil) {
		want, ok := documented[v.Name]
		switch {
		case !ok:
			t.Errorf("%s is not documented", v.Name)
		case v.Default != want:
			t.Errorf("%s defaults to %q, documented is %q", v.Name, v.Default, want)
		case v.Value != want || v.Set:
			t.Errorf("%s is %q, set %v, in an empty environment", v.Name, v.Value, v.Set)
		}
		if seen[v.Name] {
			t.Errorf("%s stands twice", v.Name)
		}
		if seen[v.Name] = true; v.Meaning == "" {
			t.Errorf("%s has no meaning", v.Name)
		}
	}
}

func TestAnEmptyEnvironmentGivesTheDefaults(t *testing.T) {
	c, err := Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]any{
		"NAME":                  {c.Name, "flowgate"},
		"MODE":                  {c.Mode, ingress.Enforce},
		"DATA_DIR":              {c.DataDir, "flowgate-data"},
		"LOG_LEVEL":             {c.LogLevel, "info"},
		"LOG_FORMAT":            {c.LogFormat, "auto"},
		"SHUTDOWN_DELAY":        {c.ShutdownDelay, time.Duration(0)},
		"SHUTDOWN_TIMEOUT":      {c.ShutdownTimeout, 20 * time.Second},
		"NATS_URL":              {c.NATS.URL, ""},
		"NATS_LISTEN":           {c.NATS.Listen, "127.0.0.1:4222"},
		"NATS_SYNC_INTERVAL":    {c.NATS.SyncInterval, Sync{Every: 100 * time.Millisecond}},
		"NATS_REPLICAS":         {c.NATS.Replicas, 1},
		"INGRESS_PREFIX":        {c.Ingress.Prefix, "ingress"},
		"INGRESS_MAX_PAYLOAD":   {c.Ingress.MaxPayload, units.MiB},
		"INGRESS_HOLD":          {c.Ingress.Hold, units.Span(0)},
		"INGRESS_DEDUP_WINDOW":  {c.Ingress.DedupWindow, 2 * time.Minute},
		"INGRESS_TENANTS":       {c.Ingress.Tenants, []string(nil)},
		"INGRESS_HTTP_LISTEN":   {c.Ingress.HTTPListen, "127.0.0.1:8080"},
		"INGRESS_API_KEYS_FILE": {c.Ingress.APIKeysFile, ""},
		"INGRESS_PROXIES":       {c.Ingress.TrustedProxies, []string(nil)},
		"LIMIT_TENANT":          {c.Limit.Tenant, algorithms.Rules{{Algorithm: "token-bucket", Rate: algorithms.Rate{N: 1000, Per: time.Second}, Burst: 2000}}},
		"BACKPRESSURE_HIGH":     {c.Backpressure.High, uint64(10_000)},
		"BACKPRESSURE_LOW":      {c.Backpressure.Low, units.Percent(80)},
		"BACKPRESSURE_MAX":      {c.Backpressure.Max, units.Percent(200)},
		"BACKPRESSURE_BYTES":    {c.Backpressure.MaxBytes, units.GiB},
		"BACKPRESSURE_AGE":      {c.Backpressure.HighAge, units.Span(0)},
		"BACKPRESSURE_OUTAGE":   {c.Backpressure.HighOutage, units.Span(0)},
		"BACKPRESSURE_FAIR":     {c.Backpressure.Fair, units.Switch(true)},
		"BACKPRESSURE_TENANT":   {c.Backpressure.TenantMax.String(), "off"},
		"SHAPER_RATE":           {c.Shaper.Rate, algorithms.Rate{N: 200, Per: time.Second}},
		"SHAPER_TOLERANCE":      {c.Shaper.Tolerance, 5 * time.Millisecond},
		"SHAPER_MEMORY":         {c.Shaper.Memory, 64 * units.MiB},
		"CONSUMER_URL":          {c.Consumer.URL, "sqlite:"},
		"CONSUMER_CONCURRENCY":  {c.Consumer.Concurrency, 4},
		"CONSUMER_TIMEOUT":      {c.Consumer.Timeout, 10 * time.Second},
		"CONSUMER_MAX_ATTEMPTS": {c.Consumer.MaxAttempts, 5},
		"CONSUMER_BACKOFF":      {c.Consumer.Backoff, 200 * time.Millisecond},
		"CONSUMER_BACKOFF_MAX":  {c.Consumer.BackoffMax, 30 * time.Second},
		"DLQ_MAX_BYTES":         {c.DLQ.MaxBytes, 256 * units.MiB},
		"DLQ_MAX_AGE":           {c.DLQ.MaxAge, time.Duration(0)},
		"ADMIN_LISTEN":          {c.Admin.Listen, "127.0.0.1:8081"},
		"ADMIN_TOKEN":           {c.Admin.Token, ""},
		"METRICS_TENANTS_MAX":   {c.Metrics.TenantsMax, 50},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %#v, want %#v", name, pair[0], pair[1])
		}
	}
}

// What `flowgate env` prints as a default can be set as it stands.
func TestADefaultMeansTheSameWhenSet(t *testing.T) {
	unset, err := Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, v := range Variables(nil) {
		line := v.Name + "=" + v.Default
		set, err := Load([]string{line})
		if err != nil || !reflect.DeepEqual(set, unset) {
			t.Errorf("%s: %v; another configuration than without it", line, err)
		}
		all = append(all, line)
	}
	if set, err := Load(all); err != nil || !reflect.DeepEqual(set, unset) {
		t.Errorf("all defaults set: %v; another configuration than none", err)
	}
}

// An empty value is an unset one, for every variable, also one with our prefix
// that nothing knows.
func TestAnEmptyValueIsUnset(t *testing.T) {
	unset, err := Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"FLOWGATE_NO_SUCH_THING=", "FLOWGATE_NATS_PASSWORD_FILE=", "FLOWGATE_NAME"}
	for name := range documented {
		environ = append(environ, name+"=")
	}
	if c, err := Load(environ); err != nil || !reflect.DeepEqual(c, unset) {
		t.Errorf("every variable empty: %v, %+v", err, c)
	}
	for _, v := range Variables(environ) {
		if v.Set || v.Value != v.Default {
			t.Errorf("%s is shown as %q, set %v", v.Name, v.Value, v.Set)
		}
	}
}

func TestNamesFollowTheGateway(t *testing.T) {
	c, err := Load([]string{"FLOWGATE_NAME=orders-eu"})
	if err != nil {
		t.Fatal(err)
	}
	want := Names{
		Stream: "ORDERS-EU", DLQStream: "ORDERS-EU_DLQ", LimitsBucket: "ORDERS-EU_LIMITS", StateBucket: "ORDERS-EU_STATE",
		Subjects: "orders-eu", Backlog: "orders-eu.backlog", DLQ: "orders-eu.dlq", Pressure: "orders-eu.pressure",
		Queue: "orders-eu", Consumer: "shaper",
	}
	if got := c.Names(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
