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

// absence is why there is no broker.
type absence string

func (a absence) Error() string { return string(a) }

func (*host) Helper()            {}
func (h *host) Cleanup(f func()) { h.ends = append(h.ends, f) }
func (*host) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "peers: "+format+"\n", args...)
}
func (*host) Fatalf(format string, args ...any) { panic(absence(fmt.Sprintf(format, args...))) }
func (*host) Skipf(format string, args ...any)  { panic(absence(fmt.Sprintf(format, args...))) }

// withRabbitMQ runs a broker while do does its work, on all processors.
func withRabbitMQ(do func(b *brokertest.Broker) error) (err error) {
	h := &host{}
	defer func() {
		if gone, ok := recover().(absence); ok {
			err = gone
		}
		for _, end := range slices.Backward(h.ends) {
			end()
		}
	}()
	n := runtime.GOMAXPROCS(0)
	return do(brokertest.RabbitMQ(h, "+S", fmt.Sprintf("%d:%d", n, n)))
}
