package consumers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/units"
)

func TestConfigValidate(t *testing.T) {
	if err := testConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		says   string // empty: it is right
	}{
		"one at a time":        {func(c *Config) { c.Concurrency = 1 }, ""},
		"most at a time":       {func(c *Config) { c.Concurrency = 1024 }, ""},
		"none at a time":       {func(c *Config) { c.Concurrency = 0 }, "FLOWGATE_CONSUMER_CONCURRENCY: 0 must be 1 to 1024"},
		"too many at a time":   {func(c *Config) { c.Concurrency = 1025 }, "FLOWGATE_CONSUMER_CONCURRENCY: 1025"},
		"no time":              {func(c *Config) { c.Timeout = 0 }, "FLOWGATE_CONSUMER_TIMEOUT: 0s"},
		"negative time":        {func(c *Config) { c.Timeout = -1 }, "FLOWGATE_CONSUMER_TIMEOUT: -1ns"},
		"an hour":              {func(c *Config) { c.Timeout = time.Hour }, ""},
		"over an hour":         {func(c *Config) { c.Timeout = time.Hour + 1 }, "FLOWGATE_CONSUMER_TIMEOUT: 1h0m0.000000001s"},
		"one attempt":          {func(c *Config) { c.MaxAttempts = 1 }, ""},
		"no attempt":           {func(c *Config) { c.MaxAttempts = 0 }, "FLOWGATE_CONSUMER_MAX_ATTEMPTS: 0"},
		"attempts for ever":    {func(c *Config) { c.MaxAttempts = 1_000_001 }, "FLOWGATE_CONSUMER_MAX_ATTEMPTS: 1000001"},
		"no backoff":           {func(c *Config) { c.Backoff = 0 }, "FLOWGATE_CONSUMER_BACKOFF: 0s"},
		"backoff at its most":  {func(c *Config) { c.Backoff = c.BackoffMax }, ""},
		"backoff over most":    {func(c *Config) { c.Backoff = c.BackoffMax + 1 }, "FLOWGATE_CONSUMER_BACKOFF_MAX=30s"},
		"a day":                {func(c *Config) { c.BackoffMax = 24 * time.Hour }, ""},
		"over a day":           {func(c *Config) { c.BackoffMax = 24*time.Hour + 1 }, "FLOWGATE_CONSUMER_BACKOFF_MAX: 24h0m0.000000001s is over 24h"},
		"most in a batch":      {func(c *Config) { c.Batch, c.BatchWait = 1000, time.Minute }, ""},
		"no batch":             {func(c *Config) { c.Batch = 0 }, "FLOWGATE_CONSUMER_BATCH: 0 must be 1 to 1000"},
		"too large a batch":    {func(c *Config) { c.Batch = 1001 }, "FLOWGATE_CONSUMER_BATCH: 1001"},
		"a wait for one alone": {func(c *Config) { c.Batch, c.BatchWait = 1, time.Second }, "FLOWGATE_CONSUMER_BATCH_WAIT: 1s is without effect, since FLOWGATE_CONSUMER_BATCH=1"},
		"too long a wait":      {func(c *Config) { c.BatchWait = time.Minute + 1 }, "FLOWGATE_CONSUMER_BATCH_WAIT: 1m0.000000001s"},
		"own statement":        {func(c *Config) { c.SQL = "INSERT INTO t VALUES (:id)" }, ""},
		"own on postgres":      {func(c *Config) { c.URL, c.SQL = "postgres://u@h/d", "INSERT INTO t VALUES (E'\\'', :id)" }, ""},
		"unknown parameter":    {func(c *Config) { c.SQL = "INSERT INTO t VALUES (:key)" }, "FLOWGATE_CONSUMER_SQL: holds the parameter :key; there are :id, :tenant"},
		"two statements":       {func(c *Config) { c.SQL = "DELETE FROM a; DELETE FROM b" }, "FLOWGATE_CONSUMER_SQL: holds more than one statement"},
		"own elsewhere":        {func(c *Config) { c.URL, c.SQL = "http://h", "INSERT INTO t VALUES (:id)" }, "FLOWGATE_CONSUMER_SQL: is for the destinations sqlite and postgres"},
		"retention":            {func(c *Config) { c.Retention = units.Span(time.Hour) }, ""},
		"retention elsewhere":  {func(c *Config) { c.URL, c.Retention = "http://h", units.Span(time.Hour) }, "FLOWGATE_CONSUMER_RETENTION: is for the table of the destinations sqlite and postgres"},
		"retention of theirs":  {func(c *Config) { c.SQL, c.Retention = "INSERT INTO t VALUES (:id)", units.Span(time.Hour) }, "FLOWGATE_CONSUMER_RETENTION: deletes from our table, and FLOWGATE_CONSUMER_SQL"},
		"url":                  {func(c *Config) { c.URL = "mysql:x" }, `FLOWGATE_CONSUMER_URL: has the scheme "mysql"`},
	} {
		c := testConfig()
		test.change(&c)
		err := c.Validate()
		if test.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v; want an error that says %q", name, err, test.says)
		}
	}
	// All of them at once, each on a line that names its variable.
	wrong := Config{URL: "nothing", Concurrency: -1, Timeout: -1, MaxAttempts: -1, Backoff: -1, BackoffMax: 48 * time.Hour, Batch: -1, BatchWait: -1}
	text := wrong.Validate().Error()
	for _, name := range []string{"URL", "CONCURRENCY", "TIMEOUT", "MAX_ATTEMPTS", "BACKOFF", "BACKOFF_MAX", "BATCH", "BATCH_WAIT"} {
		if !strings.Contains("\n"+text, "\nFLOWGATE_CONSUMER_"+name+": ") {
			t.Errorf("no line for %s in\n%s", name, text)
		}
	}
}

func TestValidateURL(t *testing.T) {
	for _, url := range []string{
		"sqlite:", "sqlite:messages.db", "sqlite:/var/lib/flowgate/a b?#%.db",
		"postgres://localhost/db", "postgresql://u:p%40ss@db1:5432,db2:5433/db?sslmode=require&target_session_attrs=read-write", "postgres://u@[::1]/db", "postgres:///db?host=/run/postgresql",
	} {
		if err := ValidateURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, says := range map[string]string{
		"":                               "has no scheme",
		"messages.db":                    "has no scheme",
		"http//h":                        "has no scheme",
		"mysql://u:hunter2@h/db":         `has the scheme "mysql"; it accepts sqlite:<path>, postgres://…`,
		"postgres://u:hunter2@h:port/db": "is not a PostgreSQL URL like",
		"postgres://u:hunter2@h/db?sslmode=maybe": "is not a PostgreSQL URL like",
		"postgres://u:hun%zzter2@h/db":            "is not a PostgreSQL URL like",
		"postgres:host=h password=hunter2":        "is not a PostgreSQL URL like",
		"host=h password=hunter2":                 "has no scheme",
		"password=hunter2 host=[::1]":             "begins with no scheme",
		"u:hunter2@h/db":                          `has the scheme "u"`,
		"//hunter2:p@h":                           "begins with no scheme",
	} {
		err := ValidateURL(url)
		wantError(t, err, says)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	open := func(url string) (Destination, error) {
		cfg := testConfig()
		cfg.URL = url
		return Open(t.Context(), cfg, Deps{DataDir: dir, Logger: quiet()})
	}
	for url, file := range map[string]string{"sqlite:": filepath.Join(dir, "messages.db"), "sqlite:" + filepath.Join(dir, "other.db"): filepath.Join(dir, "other.db")} {
		d, err := open(url)
		if err != nil {
			t.Fatal(err)
		}
		deliver(t, d, aDelivery(1), Done)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	// A database that is down does not keep the gateway from starting.
	l := listen(t)
	_ = l.Close()
	d, err := open("postgres://u:hunter2@" + l.Addr().String() + "/db")
	if err != nil {
		t.Fatal(err)
	}
	answer := deliver(t, d, aDelivery(1), Overload)
	wantError(t, answer, "postgres: connect", "refused")
	if strings.Contains(answer.Error(), "hunter2") {
		t.Errorf("the verdict shows the password: %v", answer)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"", "oracle://u:hunter2@h", "postgres://u:hunter2@h:port/db"} {
		_, err := open(url)
		wantError(t, err, "FLOWGATE_CONSUMER_URL")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
