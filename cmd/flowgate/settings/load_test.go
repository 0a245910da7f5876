package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/units"
)

func TestLoadReadsEachKindOfValue(t *testing.T) {
	c, err := Load([]string{
		"PATH=/bin", "HOME=/", "flowgate_name=other", // not ours
		"FLOWGATE_NAME=orders", "FLOWGATE_SHAPER_RATE=0.5/s", "FLOWGATE_SHAPER_TOLERANCE=1ms", "FLOWGATE_BACKPRESSURE_HIGH=500",
		"FLOWGATE_BACKPRESSURE_LOW=100", "FLOWGATE_BACKPRESSURE_MAX_BYTES=10MB", "FLOWGATE_INGRESS_TENANTS=acme, free-* ,", "FLOWGATE_NATS_SYNC_INTERVAL=always",
		"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_CONSUMER_URL=postgres://u:p=w@db/x?sslmode=disable", "FLOWGATE_DLQ_MAX_AGE=720h",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "orders" || c.Shaper.Rate != (algorithms.Rate{N: 1, Per: 2 * time.Second}) || c.Shaper.Tolerance != time.Millisecond ||
		c.Backpressure.High != 500 || c.Backpressure.Low != units.Absolute(100) || c.Backpressure.MaxBytes != 10_000_000 ||
		!slices.Equal(c.Ingress.Tenants, []string{"acme", "free-*"}) || !c.NATS.SyncInterval.Always || c.Limit.Tenant != nil ||
		c.Admin.Listen != Off || c.Consumer.URL != "postgres://u:p=w@db/x?sslmode=disable" || c.DLQ.MaxAge != 720*time.Hour {
		t.Errorf("%+v", c)
	}
}

// wrong are lines that Load must refuse, with what its error must say.
var wrong = []struct{ line, says string }{
	{"FLOWGATE_NAME=Flowgate", "[a-z][a-z0-9-]{0,31}"}, {"FLOWGATE_NAME=a.b", "[a-z][a-z0-9-]{0,31}"},
	{"FLOWGATE_NAME=ingress", "FLOWGATE_INGRESS_PREFIX"},
	{"FLOWGATE_LOG_LEVEL=loud", "debug, info, warn, error"}, {"FLOWGATE_LOG_FORMAT=xml", "auto, text, json"},
	{"FLOWGATE_SHUTDOWN_DELAY=5", "a number with a unit"}, {"FLOWGATE_SHUTDOWN_DELAY=-1s", "a number with a unit"}, {"FLOWGATE_SHUTDOWN_DELAY=11m", "10m"},
	{"FLOWGATE_SHUTDOWN_TIMEOUT=0", "above 0"}, {"FLOWGATE_SHUTDOWN_TIMEOUT= 10s ", "a number with a unit"},
	{"FLOWGATE_NATS_LISTEN=4222", "host:port"}, {"FLOWGATE_NATS_LISTEN=localhost:nats", "host:port"}, {"FLOWGATE_NATS_LISTEN=h:65536", "host:port"},
	{"FLOWGATE_NATS_SYNC_INTERVAL=100", "or always"}, {"FLOWGATE_NATS_SYNC_INTERVAL=0s", "at least 1ms"},
	{"FLOWGATE_NATS_REPLICAS=2", "1, 3 or 5"}, {"FLOWGATE_NATS_REPLICAS=3", "FLOWGATE_NATS_URL"}, {"FLOWGATE_NATS_REPLICAS=one", "whole number"},
	{"FLOWGATE_NATS_TOKEN=t0k3n", "no use"}, {"FLOWGATE_NATS_CREDS=/x", "no use"},
	{"FLOWGATE_INGRESS_PREFIX=a..b", "tokens"}, {"FLOWGATE_INGRESS_PREFIX=flowgate.in", "overlaps"}, {"FLOWGATE_INGRESS_PREFIX=a.>", "tokens"},
	{"FLOWGATE_INGRESS_MAX_PAYLOAD=1000000", "with a unit"}, {"FLOWGATE_INGRESS_MAX_PAYLOAD=64MiB", "32MiB"}, {"FLOWGATE_INGRESS_MAX_PAYLOAD=1.5MiB", "whole number"},
	{"FLOWGATE_INGRESS_DEDUP_WINDOW=120", "a number with a unit"}, {"FLOWGATE_INGRESS_DEDUP_WINDOW=25h", "24h"}, {"FLOWGATE_INGRESS_HOLD=3s", "2s"}, {"FLOWGATE_INGRESS_TENANTS=[a", "glob"},
	{"FLOWGATE_LIMIT_TENANT=1000/s", "<algorithm>:<n>/<period>"}, {"FLOWGATE_LIMIT_TENANT=token-bucket:1/s,burst=0", "token-bucket:0/s"},
	{"FLOWGATE_BACKPRESSURE_HIGH=0", "1 to"}, {"FLOWGATE_BACKPRESSURE_HIGH=1e3", "whole number"}, {"FLOWGATE_BACKPRESSURE_HIGH=1_000", "whole number"},
	{"FLOWGATE_BACKPRESSURE_HIGH=+5", "whole number"}, {"FLOWGATE_BACKPRESSURE_HIGH=0x10", "whole number"}, {"FLOWGATE_BACKPRESSURE_HIGH=-1", "whole number"},
	{"FLOWGATE_BACKPRESSURE_HIGH=80%", "whole number"}, {"FLOWGATE_BACKPRESSURE_HIGH=9223372036854775808", "whole number"}, {"FLOWGATE_BACKPRESSURE_HIGH=6O", "whole number"},
	{"FLOWGATE_BACKPRESSURE_LOW=10000", "below FLOWGATE_BACKPRESSURE_HIGH=10000"}, {"FLOWGATE_BACKPRESSURE_LOW=100%", "below FLOWGATE_BACKPRESSURE_HIGH"},
	{"FLOWGATE_BACKPRESSURE_LOW=0.8", "a percentage like 80%"}, {"FLOWGATE_BACKPRESSURE_MAX=99%", "at least FLOWGATE_BACKPRESSURE_HIGH"},
	{"FLOWGATE_BACKPRESSURE_MAX_BYTES=1073741824", "with a unit"}, {"FLOWGATE_BACKPRESSURE_MAX_BYTES=1KiB", "1MiB"},
	{"FLOWGATE_BACKPRESSURE_HIGH_AGE=90", "off"}, {"FLOWGATE_BACKPRESSURE_HIGH_AGE=1ms", "1s to"}, {"FLOWGATE_BACKPRESSURE_HIGH_OUTAGE=0s", "off"}, {"FLOWGATE_BACKPRESSURE_HIGH_OUTAGE=2000h", "1s to"},
	{"FLOWGATE_BACKPRESSURE_FAIR=yes", "on"}, {"FLOWGATE_BACKPRESSURE_TENANT_MAX=0", "at least 1"}, {"FLOWGATE_BACKPRESSURE_TENANT_MAX=half", "off"},
	{"FLOWGATE_SHAPER_RATE=fast", "a rate like 200/s, 12/m, 0.5/s"}, {"FLOWGATE_SHAPER_RATE=200", "a rate like"}, {"FLOWGATE_SHAPER_RATE=0/s", "above 0"},
	{"FLOWGATE_SHAPER_RATE=NaN/s", "a rate like"}, {"FLOWGATE_SHAPER_RATE=1e400/s", "a rate like"}, {"FLOWGATE_SHAPER_RATE=-1/s", "a rate like"},
	{"FLOWGATE_SHAPER_TOLERANCE=2s", "0s to 1s"}, {"FLOWGATE_SHAPER_MEMORY=64", "with a unit"}, {"FLOWGATE_SHAPER_MEMORY=64M", "with a unit"},
	{"FLOWGATE_CONSUMER_URL=gopher://h", "sqlite:"}, {"FLOWGATE_CONSUMER_URL=http://", "HTTP URL"}, {"FLOWGATE_CONSUMER_URL=stdout:x", "takes nothing"}, {"FLOWGATE_CONSUMER_URL=nats:a.*", "subject prefix"},
	{"FLOWGATE_CONSUMER_URL=nats:flowgate", "overlap the gateway's own, flowgate.>"}, {"FLOWGATE_CONSUMER_URL=nats:flowgate.backlog?ack=reply", "overlap the gateway's own"},
	{"FLOWGATE_CONSUMER_URL=nats:ingress", "FLOWGATE_INGRESS_PREFIX"}, {"FLOWGATE_CONSUMER_URL=nats:ingress.acme", "overlap those of the ingress, ingress.>"},
	{"FLOWGATE_CONSUMER_HTTP_SECRET=whsec_hunter2", "FLOWGATE_CONSUMER_HTTP_SECRET"}, {"FLOWGATE_CONSUMER_CONCURRENCY=0", "1 to 1024"}, {"FLOWGATE_CONSUMER_TIMEOUT=10", "a number with a unit"},
	{"FLOWGATE_CONSUMER_MAX_ATTEMPTS=0", "1 to"}, {"FLOWGATE_CONSUMER_BACKOFF=1m", "FLOWGATE_CONSUMER_BACKOFF_MAX"}, {"FLOWGATE_CONSUMER_BACKOFF_MAX=25h", "24h"},
	{"FLOWGATE_CONSUMER_RETENTION=1m", "under FLOWGATE_INGRESS_DEDUP_WINDOW=2m0s"}, {"FLOWGATE_CONSUMER_RETENTION=1", "off"}, {"FLOWGATE_CONSUMER_SQL=INSERT INTO t VALUES (:no)", "there are :id"},
	{"FLOWGATE_CONSUMER_URL=http://h:65536/", "1 to 65535"}, {"FLOWGATE_CONSUMER_BATCH_WAIT=1s", "FLOWGATE_CONSUMER_BATCH=1"},
	{"FLOWGATE_NATS_URL=nats://h:4222,nats://u:hunter2@h:65536", "1 to 65535"}, {"FLOWGATE_NATS_URL=h:0", "1 to 65535"},
	{"FLOWGATE_ADMIN_LISTEN=127.0.0.1:8080", "taken by FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:8080"}, {"FLOWGATE_ADMIN_LISTEN=:8080", "taken by FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:8080"},
	{"FLOWGATE_NATS_LISTEN=localhost:8081", "taken by FLOWGATE_ADMIN_LISTEN=127.0.0.1:8081"}, {"FLOWGATE_NATS_LISTEN=0.0.0.0:8080", "taken by FLOWGATE_INGRESS_HTTP_LISTEN"},
	{"FLOWGATE_DLQ_MAX_BYTES=1B", "1MiB"}, {"FLOWGATE_DLQ_MAX_BYTES=1MiB", "set at least 1088KiB"}, {"FLOWGATE_DLQ_MAX_AGE=1ms", "1s"}, {"FLOWGATE_DLQ_MAX_AGE=3600", "a number with a unit"},
	{"FLOWGATE_ADMIN_LISTEN=on", "host:port"}, {"FLOWGATE_INGRESS_HTTP_LISTEN=8080", "host:port"},
	{"FLOWGATE_MODE=maybe", "enforce, shadow, off"}, {"FLOWGATE_INGRESS_TRUSTED_PROXIES=10.0.0.0/8,lb", "10.0.0.0/8"}, {"FLOWGATE_INGRESS_HTTP_TLS_KEY=k", "go together"}, {"FLOWGATE_METRICS_TENANTS_MAX=10001", "0 to 10000"}, {"FLOWGATE_METRICS_TENANTS_MAX=many", "whole number"},
}

// faults are the lines of Load's error after its heading.
func faults(t *testing.T, environ ...string) []string {
	t.Helper()
	_, err := Load(environ)
	if err == nil {
		t.Fatalf("%q was accepted", environ)
	}
	lines := strings.Split(err.Error(), "\n")
	return lines[1:]
}

func TestLoadRefusesAWrongValue(t *testing.T) {
	for _, c := range wrong {
		t.Run(c.line, func(t *testing.T) {
			lines := faults(t, c.line)
			name, _, _ := strings.Cut(c.line, "=")
			if len(lines) != 1 || !strings.Contains(lines[0], name) || !strings.Contains(lines[0], c.says) {
				t.Errorf("want one line that names %s and says %q:\n%s", name, c.says, strings.Join(lines, "\n"))
			}
		})
	}
}

// One error names them all: what does not parse, what is out of bounds, what does
// not fit together, what nobody knows.
func TestLoadNamesEveryFaultAtOnce(t *testing.T) {
	lines := faults(t,
		"FLOWGATE_SHAPER_RATE=fast", "FLOWGATE_SHUTDOWN_TIMEOUT=20", "FLOWGATE_SHAPER_MEMORY=64", // do not parse
		"FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_LOW=100", "FLOWGATE_BACKPRESSURE_MAX=99", // do not fit together
		"FLOWGATE_LOG_LEVEL=loud", "FLOWGATE_NATS_REPLICAS=2", "FLOWGATE_CONSUMER_CONCURRENCY=0", "FLOWGATE_DLQ_MAX_BYTES=1B", // out of bounds
		"FLOWGATE_CONSUMER_PASSWORD_FILE=x", "FLOWGATE_SHAPER_RATES=1/s", "FLOWGATE_NATS_TOKEN_FILE=/no/such/file",
	)
	want := []string{
		"FLOWGATE_SHAPER_RATE:", "FLOWGATE_SHUTDOWN_TIMEOUT:", "FLOWGATE_SHAPER_MEMORY:", "FLOWGATE_BACKPRESSURE_LOW:", "FLOWGATE_BACKPRESSURE_MAX:",
		"FLOWGATE_LOG_LEVEL:", "FLOWGATE_NATS_REPLICAS:", "FLOWGATE_CONSUMER_CONCURRENCY:", "FLOWGATE_DLQ_MAX_BYTES:",
		"FLOWGATE_CONSUMER_PASSWORD_FILE:", "FLOWGATE_SHAPER_RATES:", "FLOWGATE_NATS_TOKEN_FILE:",
	}
	for _, name := range want {
		if n := len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, name) })); n != 1 {
			t.Errorf("%d lines on %s", n, name)
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d lines for %d faults:\n%s", len(lines), len(want), strings.Join(lines, "\n"))
	}
}

// A value that could not be read is one fault, not also those of whatever stands
// in its place.
func TestLoadReportsNoConsequences(t *testing.T) {
	for name, environ := range map[string][]string{
		"HIGH is unreadable, and LOW over its default":          {"FLOWGATE_BACKPRESSURE_HIGH=lots", "FLOWGATE_BACKPRESSURE_LOW=20000", "FLOWGATE_BACKPRESSURE_MAX=50000"},
		"BACKOFF_MAX is unreadable, and BACKOFF over its own":   {"FLOWGATE_CONSUMER_BACKOFF_MAX=60", "FLOWGATE_CONSUMER_BACKOFF=45s"},
		"the password's file is missing, and USER stands alone": {"FLOWGATE_NATS_URL=nats://h", "FLOWGATE_NATS_USER=u", "FLOWGATE_NATS_PASSWORD_FILE=/no/such/file"},
		"the URL's file is missing, and TOKEN is for it":        {"FLOWGATE_NATS_URL_FILE=/no/such/file", "FLOWGATE_NATS_TOKEN=t", "FLOWGATE_NATS_REPLICAS=3"},
	} {
		if lines := faults(t, environ...); len(lines) != 1 {
			t.Errorf("%s:\n%s", name, strings.Join(lines, "\n"))
		}
	}
	// But a fault of another variable whose name only begins alike is one.
	lines := faults(t, "FLOWGATE_BACKPRESSURE_MAX=lots", "FLOWGATE_BACKPRESSURE_MAX_BYTES=1B")
	if len(lines) != 2 {
		t.Errorf("two faults:\n%s", strings.Join(lines, "\n"))
	}
}

func TestLoadSaysTheSameEachTime(t *testing.T) {
	environ := []string{"FLOWGATE_NATS_CREDS=a", "FLOWGATE_NATS_TLS_CA=a", "FLOWGATE_NATS_TOKEN=a", "FLOWGATE_XB=1", "FLOWGATE_XA=1", "FLOWGATE_NAME=X"}
	first := faults(t, environ...)
	for range 20 {
		slices.Reverse(environ) // whose order is chance
		if again := faults(t, environ...); !slices.Equal(again, first) {
			t.Fatalf("first:\n%s\nthen:\n%s", strings.Join(first, "\n"), strings.Join(again, "\n"))
		}
	}
}

func TestLoadAcceptsWhatBelongsTogether(t *testing.T) {
	for name, environ := range map[string][]string{
		"a cluster elsewhere":           {"FLOWGATE_NATS_URL=nats://a,nats://b", "FLOWGATE_NATS_REPLICAS=3", "FLOWGATE_NATS_USER=u", "FLOWGATE_NATS_PASSWORD=p"},
		"a client certificate":          {"FLOWGATE_NATS_URL=tls://a", "FLOWGATE_NATS_TLS_CERT=c", "FLOWGATE_NATS_TLS_KEY=k", "FLOWGATE_NATS_TLS_CA=ca"},
		"a configured own server":       {"FLOWGATE_NATS_CONFIG=n.conf", "FLOWGATE_NATS_TOKEN=t", "FLOWGATE_NATS_REPLICAS=5"},
		"no limits, no admin":           {"FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=unlimited", "FLOWGATE_ADMIN_LISTEN=off", "FLOWGATE_NATS_LISTEN=off"},
		"marks at their bounds":         {"FLOWGATE_BACKPRESSURE_HIGH=1", "FLOWGATE_BACKPRESSURE_LOW=0", "FLOWGATE_BACKPRESSURE_MAX=100%"},
		"deliveries beside the ingress": {"FLOWGATE_INGRESS_PREFIX=corp.in", "FLOWGATE_CONSUMER_URL=nats:corp.inner?ack=reply", "FLOWGATE_NAME=corp-in"},
		"deliveries that are signed":    {"FLOWGATE_CONSUMER_URL=https://u:p@h/x", "FLOWGATE_CONSUMER_HTTP_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		"ports that are free":           {"FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0", "FLOWGATE_NATS_LISTEN=127.0.0.1:0"},
		"a port on several addresses":   {"FLOWGATE_ADMIN_LISTEN=127.0.0.1:80", "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.2:80", "FLOWGATE_NATS_LISTEN=[::1]:80"},
		"a port of one's own NATS":      {"FLOWGATE_NATS_URL=nats://a:65535", "FLOWGATE_ADMIN_LISTEN=127.0.0.1:4222"},
		"a target of no matter":         {"FLOWGATE_SHAPER_TARGET_LATENCY=10s"},
		"few small dead letters":        {"FLOWGATE_DLQ_MAX_BYTES=1MiB", "FLOWGATE_INGRESS_MAX_PAYLOAD=960KiB"},
		"a batch that waits":            {"FLOWGATE_CONSUMER_BATCH=2", "FLOWGATE_CONSUMER_BATCH_WAIT=1s"},
		"a prefix of several tokens":    {"FLOWGATE_INGRESS_PREFIX=corp.flowgate.in", "FLOWGATE_NAME=flow"},
	} {
		if _, err := Load(environ); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, environ := range map[string][]string{
		"a certificate without a key":  {"FLOWGATE_NATS_URL=tls://a", "FLOWGATE_NATS_TLS_CERT=c"},
		"a password without a user":    {"FLOWGATE_NATS_URL=nats://a", "FLOWGATE_NATS_PASSWORD=p"},
		"deliveries above the ingress": {"FLOWGATE_INGRESS_PREFIX=corp.in", "FLOWGATE_CONSUMER_URL=nats:corp"},
		"one address for two":          {"FLOWGATE_NATS_URL=nats://a", "FLOWGATE_ADMIN_LISTEN=[::1]:9000", "FLOWGATE_INGRESS_HTTP_LISTEN=:9000"},
		"one name for two":             {"FLOWGATE_ADMIN_LISTEN=gate:9000", "FLOWGATE_INGRESS_HTTP_LISTEN=gate:9000"},
		"a target never reached":       {"FLOWGATE_SHAPER_ADAPTIVE=on", "FLOWGATE_SHAPER_TARGET_LATENCY=10s"},
		"two brokers":                  {"FLOWGATE_NATS_URL=nats://a", "FLOWGATE_NATS_CONFIG=n.conf"},
	} {
		faults(t, environ...)
		t.Logf("%s is refused", name)
	}
}
