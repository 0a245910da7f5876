package main

import (
	"errors"
	"testing"

	"github.com/flowgate/flowgate/internal/consumers/brokertest"
)

// A broker that is not there is left out; one that is demanded, or does not serve, is a
// failure. What was begun ends either way.
func TestWithoutABroker(t *testing.T) {
	for name, c := range map[string]struct {
		start  func(testing.TB) *brokertest.Broker
		absent bool
	}{
		"not installed": {func(t testing.TB) *brokertest.Broker { t.Skipf("needs %s", "rabbitmq"); return nil }, true},
		"demanded":      {func(t testing.TB) *brokertest.Broker { t.Fatalf("needs %s", "rabbitmq"); return nil }, false},
	} {
		ended := false
		err := withBroker(func(t testing.TB) *brokertest.Broker {
			t.Cleanup(func() { ended = true })
			return c.start(t)
		}, func(*brokertest.Broker) error { return nil })
		if gone := new(absence); err == nil || errors.As(err, gone) != c.absent {
			t.Errorf("%s: %v, %T", name, err, err)
		}
		if !ended {
			t.Errorf("%s: what was begun goes on", name)
		}
	}
	failed := errors.New("of the work")
	if err := withBroker(func(testing.TB) *brokertest.Broker { return nil }, func(*brokertest.Broker) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}
