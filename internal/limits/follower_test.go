package limits

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// broker is a server that can be stopped and started again on its store.
type broker struct {
	t   *testing.T
	dir string
	mu  sync.Mutex
	s   *server.Server // nil: it is away
}

// InProcessConn lets a connection come back to the server of the moment.
func (b *broker) InProcessConn() (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s == nil {
		return nil, errors.New("the broker is away")
	}
	return b.s.InProcessConn()
}

func (b *broker) start() *server.Server {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true})
	if err != nil {
		b.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("the server is not ready")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s = s
	return s
}

func (b *broker) stop() {
	b.mu.Lock()
	s := b.s
	b.s = nil
	b.mu.Unlock()
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// While the broker is away what is in force stays; what others changed meanwhile
// holds soon after it is back, and changes go on.
func TestTheBrokerComesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := &broker{t: t, dir: t.TempDir()}
		t.Cleanup(b.stop)
		b.start()
		nc, err := nats.Connect("", nats.InProcessServer(b), nats.MaxReconnects(-1), nats.ReconnectWait(2*time.Second),
			nats.ReconnectBufSize(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		f := followOver(t, nc, js, nil)
		f.set(Tenant, "acme", "token-bucket:1/s")
		f.set(Tenant, "goes", "token-bucket:1/s")
		for range 3 {
			b.stop()
			time.Sleep(time.Minute)
			f.holds("tenant/acme=token-bucket:1/s tenant/goes=token-bucket:1/s")
			for name, err := range map[string]error{
				"set":    func() error { _, err := f.Set(t.Context(), entry(t, Tenant, "acme", "token-bucket:9/s")); return err }(),
				"delete": f.Delete(t.Context(), Tenant, "acme"),
			} {
				if err == nil || !strings.Contains(err.Error(), "NATS cannot be reached") {
					t.Errorf("%s without a broker: %v", name, err)
				}
			}

			_, other := connect(t, b.start())
			bucket, err := other.KeyValue(t.Context(), "LIMITS")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bucket.PutString(t.Context(), bucketKey(Tenant, "acme"), `{"scope":"tenant","key":"acme","limit":"token-bucket:2/s"}`); err != nil {
				t.Fatal(err)
			}
			if err := bucket.Delete(t.Context(), bucketKey(Tenant, "goes")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			f.holds("tenant/acme=token-bucket:2/s")
			f.set(Tenant, "acme", "token-bucket:1/s")
			f.set(Tenant, "goes", "token-bucket:1/s")
		}
	})
}

// A watcher that falls silent without a word is found out.
func TestALostWatcher(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.set(Tenant, "acme", "token-bucket:1/s")
		stream, err := f.js.Stream(t.Context(), "KV_LIMITS")
		if err != nil {
			t.Fatal(err)
		}
		names := stream.ConsumerNames(t.Context())
		for name := range names.Name() {
			if err := stream.DeleteConsumer(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		f.foreign(bucketKey(Tenant, "acme"), `{"scope":"tenant","key":"acme","limit":"token-bucket:2/s"}`)
		time.Sleep(time.Minute)
		f.holds("tenant/acme=token-bucket:2/s")
		f.set(Tenant, "acme", "token-bucket:3/s")
		f.holds("tenant/acme=token-bucket:3/s")
	})
}

// A bucket that is deleted leaves the limits in force; one that is made anew
// replaces them, whatever its revisions are.
func TestTheBucketIsMadeAnew(t *testing.T) {
	for name, writes := range map[string]int{"with fewer revisions": 1, "with as many": 3, "with more": 9} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := follow(t, bubble.Server(t))
				f.set(Tenant, "acme", "token-bucket:1/s")
				f.set(Tenant, "goes", "token-bucket:1/s")
				f.set(Tenant, "acme", "token-bucket:2/s")
				if err := f.js.DeleteKeyValue(t.Context(), "LIMITS"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				f.holds("tenant/acme=token-bucket:2/s tenant/goes=token-bucket:1/s")
				if err := f.Stale(); err == nil || !strings.Contains(err.Error(), "is gone") {
					t.Errorf("stale: %v", err)
				}
				if n := strings.Count(f.log.String(), "cannot be followed"); n != 1 {
					t.Errorf("said %d times:\n%s", n, f.log)
				}
				if _, err := f.Set(t.Context(), entry(t, Tenant, "acme", "token-bucket:1/s")); err == nil || !strings.Contains(err.Error(), "is gone: LIMITS; start the gateway again") {
					t.Errorf("a limit was set without a bucket: %v", err)
				}
				if err := f.Delete(t.Context(), Tenant, "acme"); err == nil || !strings.Contains(err.Error(), "is gone: LIMITS; start the gateway again") {
					t.Errorf("without a bucket: %v", err)
				}
				if _, err := f.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LIMITS"}); err != nil {
					t.Fatal(err)
				}
				for range writes {
					f.foreign(bucketKey(Tenant, "acme"), `{"scope":"tenant","key":"acme","limit":"token-bucket:3/s"}`)
				}
				time.Sleep(time.Minute)
				f.holds("tenant/acme=token-bucket:3/s")
				if err := f.Stale(); err != nil {
					t.Errorf("stale: %v", err)
				}
				f.set(Tenant, "globex", "token-bucket:4/s")
				f.holds("tenant/acme=token-bucket:3/s tenant/globex=token-bucket:4/s")
			})
		})
	}
}

// Likewise if it happens at once, while the watcher believes that it still hears.
func TestTheBucketIsReplacedUnderTheWatcher(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.set(Tenant, "acme", "token-bucket:1/s")
		if err := f.js.DeleteKeyValue(t.Context(), "LIMITS"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // no two buckets are made at the same instant
		if _, err := f.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LIMITS"}); err != nil {
			t.Fatal(err)
		}
		f.foreign(bucketKey(Tenant, "acme"), `{"scope":"tenant","key":"acme","limit":"token-bucket:3/s"}`)
		time.Sleep(time.Minute)
		f.holds("tenant/acme=token-bucket:3/s")
	})
}

// A change right after that is in force all the same when it returns, whatever the
// revisions of the bucket before were.
func TestAChangeInABucketMadeAnew(t *testing.T) {
	change := func(f *followed) error {
		_, err := f.Set(f.t.Context(), entry(f.t, Tenant, "acme", "token-bucket:7/s"))
		return err
	}
	for name, c := range map[string]struct {
		change func(*followed) error
		want   string
	}{
		"set":              {change, "tenant/acme=token-bucket:7/s tenant/stays=token-bucket:3/s"},
		"delete":           {func(f *followed) error { return f.Delete(f.t.Context(), Tenant, "stays") }, ""},
		"replace":          {func(f *followed) error { _, err := f.Replace(f.t.Context(), nil); return err }, ""},
		"set, then delete": {func(f *followed) error { return errors.Join(change(f), f.Delete(f.t.Context(), Tenant, "acme")) }, "tenant/stays=token-bucket:3/s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := follow(t, bubble.Server(t))
				for range 5 {
					f.set(Tenant, "acme", "token-bucket:1/s")
				}
				if err := f.js.DeleteKeyValue(t.Context(), "LIMITS"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond) // no two buckets are made at the same instant
				if _, err := f.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LIMITS"}); err != nil {
					t.Fatal(err)
				}
				f.foreign(bucketKey(Tenant, "stays"), `{"scope":"tenant","key":"stays","limit":"token-bucket:3/s"}`)
				if err := c.change(f); err != nil {
					t.Error(err)
				}
				f.holds(c.want)
			})
		})
	}
}

// Housekeeping in the bucket is no change, and hides none.
func TestPurgedMarkers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.set(Tenant, "acme", "token-bucket:1/s")
		f.set(Tenant, "goes", "token-bucket:1/s")
		if err := f.Delete(t.Context(), Tenant, "goes"); err != nil {
			t.Fatal(err)
		}
		if err := f.bucket.PurgeDeletes(t.Context(), jetstream.DeleteMarkersOlderThan(-1)); err != nil {
			t.Fatal(err)
		}
		calls := f.table.count()
		time.Sleep(time.Hour)
		f.holds("tenant/acme=token-bucket:1/s")
		if n := f.table.count() - calls; n > 1 {
			t.Errorf("the bucket was read %d times without a change", n)
		}
		f.set(Tenant, "acme", "token-bucket:2/s")
		f.holds("tenant/acme=token-bucket:2/s")
	})
}
