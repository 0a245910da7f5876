//go:build !noredis

package consumers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/flowgate/flowgate/internal/consumers/brokertest"
)

// redisClient connects until the test's end.
func redisClient(t *testing.T, b *brokertest.Broker, db int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), Password: brokertest.Password, DB: db})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stream reads a stream as Watermill's subscriber would.
func stream(t *testing.T, c *redis.Client, key string) []*message.Message {
	t.Helper()
	entries, err := c.XRange(t.Context(), key, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var ms []*message.Message
	for _, e := range entries {
		m, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.Values)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	return ms
}

func uuids(ms []*message.Message) string {
	var all []string
	for _, m := range ms {
		all = append(all, m.UUID)
	}
	return strings.Join(all, " ")
}

func TestRedis(t *testing.T) {
	leavesNothing(t)
	server := brokertest.Redis(t)
	t.Run("stream", func(t *testing.T) {
		b := openBroker(t, server.URL()+"/3", func(c *Config) { c.Batch = 10 })
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		batch := of("acme", "acme", "acme")
		batch[0].Headers = map[string][]string{"Content-Type": {"text/plain"}}
		batch[0].Payload = []byte("\x00\xff")
		wantKinds(t, b.Deliver(t.Context(), batch), Done, Done, Done)
		ms := stream(t, redisClient(t, server, 3), "flowgate")
		if got := uuids(ms); got != "acme/1 acme/2 acme/3" {
			t.Fatalf("the stream has %s", got)
		}
		want := message.Metadata{
			"Content-Type": "text/plain", "Flowgate-Id": "acme/1", "Flowgate-Tenant": "acme", "Flowgate-Topic": "orders.new",
			"Flowgate-Seq": "1", "Flowgate-Attempt": "1", "Flowgate-Admitted-At": "2026-11-12T13:14:15.161718Z",
		}
		if diff := cmp.Diff(want, ms[0].Metadata); diff != "" || string(ms[0].Payload) != "\x00\xff" {
			t.Errorf("payload %q, headers (-want +got):\n%s", ms[0].Payload, diff)
		}
	})
	t.Run("verdicts", func(t *testing.T) {
		c := redisClient(t, server, 0)
		for _, key := range []string{"taken", "of.acme"} {
			if err := c.Set(t.Context(), key, "a string", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		b := openBroker(t, server.URL()+"/0?stream=taken", nil)
		deliver(t, b, aDelivery(1), Overload)
		wantError(t, b.Ping(t.Context()), "taken is a string")
		b = openBroker(t, server.URL()+"/0?stream=of.{tenant}", nil)
		wantKinds(t, b.Deliver(t.Context(), of("acme", "globex")), Retry, Done)
		reserved := aDelivery(2)
		reserved.Headers = map[string][]string{redisstream.UUIDHeaderKey: {"mine"}}
		wantError(t, deliver(t, b, reserved, Reject), "Watermill's own")
		// Out of memory is the server's, and passes.
		if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		globex := of("globex")[0]
		wantError(t, deliver(t, b, globex, Overload), "OOM")
		if err := c.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
			t.Fatal(err)
		}
		deliver(t, b, globex, Done)
	})
	t.Run("sign in", func(t *testing.T) {
		b := openBroker(t, "redis://:wr0ng@"+server.Addr(), nil)
		if err := deliver(t, b, aDelivery(1), Overload); strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the error shows the password: %v", err)
		}
		deliver(t, openBroker(t, "redis://"+server.Addr(), nil), aDelivery(1), Overload)
		deliver(t, openBroker(t, server.URL()+"/999", nil), aDelivery(1), Overload)
		authority, config := certificates(t)
		secure := "rediss://:" + brokertest.Password + "@" + tlsBefore(t, server.Addr(), config) + "/0"
		deliver(t, openBroker(t, secure+"?ca="+authority, nil), aDelivery(1), Done)
		deliver(t, openBroker(t, secure, nil), aDelivery(2), Overload)
	})
	t.Run("outage", func(t *testing.T) {
		b := openBroker(t, server.URL()+"/0?stream=outage", func(c *Config) { c.Timeout = 5 * time.Second })
		deliver(t, b, aDelivery(1), Done)
		server.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		wantKinds(t, b.Deliver(ctx, of("a", "b", "a")), Overload, Overload, Overload)
		cancel()
		server.Thaw()
		soon(t, "a message is delivered", func() bool { return b.Deliver(t.Context(), deliveries(1))[0] == nil })
		server.Kill()
		deliver(t, b, aDelivery(2), Overload)
		wantError(t, b.Ping(t.Context()), "redis")
		server.Start()
		deliver(t, b, aDelivery(3), Done)
		found := uuids(stream(t, redisClient(t, server, 0), "outage"))
		for _, id := range []string{"acme/1", "acme/3"} {
			if !strings.Contains(found, id) {
				t.Errorf("%s is not among %s", id, found)
			}
		}
	})
}
