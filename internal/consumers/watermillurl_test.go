//go:build !nokafka && !noamqp && !noredis

package consumers

import (
	"strings"
	"testing"
)

// TestBrokerURLs: what a URL means, and that no error shows what may be a password.
func TestBrokerURLs(t *testing.T) {
	for url, says := range map[string]string{
		"kafka://h": "", "kafka://h:9092,i:1,[::1]:2/orders": "", "kafka://u:s3cr3t@h,i/to.{tenant}.{topic}": "", "kafkas://h/x?ca=/some/file": "",
		"kafka:h":                      "followed by //",
		"kafka://":                     "no host",
		"kafka://h,/x":                 "no host",
		"kafka://h:0/x":                "port 0",
		"kafka://h:65536/x":            "port 65536",
		"kafka://h/{user}":             "{user} in its topic; it accepts {tenant} and {topic}",
		"kafka://h/a{b":                "lone brace",
		"kafka://h/a/b":                "no Kafka topic",
		"kafka://h/.":                  "no Kafka topic",
		"kafka://h/x?acks=1":           `unknown parameter "acks"; it takes none`,
		"kafkas://h/x?acks=1":          `unknown parameter "acks"; it accepts ca`,
		"kafka://u:s3cr3t%zz@h/x":      "written as %XX",
		"kafka://u:s3cr3t@h/%zz":       "written as %XX",
		"kafka://u:s3cr3t@h:x/x":       "no host",
		"kafka://u:s3cr3t@h/x?a=%zz":   "written as %XX",
		"kafka://u:99999/s3cr3t@h/x":   "port 99999", // the slash ends the hosts
		"amqp://h":                     "",
		"amqp://u:s3cr3t@h:5672/vhost": "",
		"amqp://h/?queue=to.{tenant}":  "",
		"amqps://h/?exchange=e&key=k":  "",
		"amqp://h/?exchange=e":         "",
		"amqp://h,i/":                  "several hosts",
		"amqp://h/?key=k":              "a key without an exchange",
		"amqp://h/?exchange=e&queue=q": "both a queue and an exchange",
		"amqp://h/?exchange={tenant}":  "{…} in its exchange",
		"amqp://h/?queue=":             "queue empty",
		"amqp://h/?queue=a&queue=b":    "more than once",
		"amqp://h/?vhost=a":            `unknown parameter "vhost"; it accepts queue, exchange, key`,
		"redis://h":                    "", "redis://:s3cr3t@h:6379/3?stream=to.{tenant}": "", "rediss://u:s3cr3t@h/0?ca=x": "",
		"redis://h/x":          "number of a database",
		"redis://h/-1":         "number of a database",
		"redis://h/0?maxlen=1": `unknown parameter "maxlen"; it accepts stream`,
		"redis://h/0?ca=x":     `unknown parameter "ca"`,
		"redis://h,i/0":        "several hosts",
	} {
		err := ValidateURL(url)
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", url, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error that says %q", url, err, says)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}
