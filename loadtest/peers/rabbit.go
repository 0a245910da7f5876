package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/flowgate/flowgate/internal/consumers/brokertest"
)

// host stands in for a test: the broker ends with it.
type host struct {
	testing.TB
	ends []func()
}

// absence is why there is no broker, where it need not be there.
type absence string

func (a absence) Error() string { return string(a) }

// failure is why one that must be there, or is, does not serve.
type failure string

func (f failure) Error() string { return string(f) }

func (*host) Helper()            {}
func (h *host) Cleanup(f func()) { h.ends = append(h.ends, f) }
func (*host) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "peers: "+format+"\n", args...)
}
func (*host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (*host) Skipf(format string, args ...any)  { panic(absence(fmt.Sprintf(format, args...))) }

// withBroker starts a broker and runs it while do does its work. It is an absence if it
// need not be there and is not; any other trouble is an error.
func withBroker(start func(testing.TB) *brokertest.Broker, do func(b *brokertest.Broker) error) (err error) {
	h := &host{}
	defer func() {
		for _, end := range slices.Backward(h.ends) {
			end()
		}
	}()
	defer func() {
		switch why := recover().(type) {
		case nil:
		case absence:
			err = why
		case failure:
			err = why
		default:
			panic(why)
		}
	}()
	return do(start(h))
}

// rabbitMQ starts one on all processors.
func rabbitMQ(t testing.TB) *brokertest.Broker {
	n := runtime.GOMAXPROCS(0)
	return brokertest.RabbitMQ(t, "+S", fmt.Sprintf("%d:%d", n, n))
}
