// Package bubble lets tests run a whole nats-server, JetStream and all, on the fake
// clock of testing/synctest: hours pass in milliseconds, and a goroutine that
// outlives its test fails it.
package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Test runs f in a synctest bubble that may host a NATS server. nats.go keeps one
// process-wide sync.Pool of timers; two collections empty it so that no timer
// crosses bubbles. Not for t.Parallel.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	flush := func() { runtime.GC(); runtime.GC() }
	flush()
	t.Cleanup(flush)
	synctest.Test(t, f)
}

// Server starts a JetStream server that takes connections from within the process
// only, and stops it with the test.
func Server(t testing.TB) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { Settle(); s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s
}

// Settle waits until all that was asked of the server is done, in a bubble; elsewhere it
// does nothing. At its end the server sleeps with a lock held, and whoever waits for a lock
// keeps the fake clock standing: a consumer that is just being made would wait for ever.
func Settle() {
	defer func() { _ = recover() }() // Wait panics outside of a bubble
	synctest.Wait()
}
