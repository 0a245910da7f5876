package consumers

import (
	"testing"
)

// TestAbsent: a program built without a client says so, and how to get it.
func TestAbsent(t *testing.T) {
	for name, s := range map[string]scheme{"kafka": kafkaScheme(), "amqp": amqpScheme(), "redis": redisScheme()} {
		if err := s.check(name + "://u:s3cr3t@host"); err != nil { // built without it
			wantError(t, err, name, "-tags no"+name, "go build ./cmd/flowgate")
		}
	}
	s := absent("nofoo", "foo", "foos")
	wantError(t, s.check("foos://u:s3cr3t@h"), "foo", "-tags nofoo", "go build ./cmd/flowgate")
	if _, err := s.open(t.Context(), Config{}, Deps{}); err == nil {
		t.Error("opened what is not there")
	}
}
