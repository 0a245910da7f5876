//go:build !nokafka

package consumers

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// aKafka starts a broker of the protocol in this process.
func aKafka(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(8, "flowgate")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func kafkaURL(c *kfake.Cluster, path string) string {
	return "kafka://" + strings.Join(c.ListenAddrs(), ",") + "/" + path
}

// stored is a message as Kafka has it.
type stored struct {
	*message.Message
	key       string
	partition int32
}

// consume reads n messages of a topic. Not with the client under test, whose consumers
// leave a goroutine behind.
func consume(t *testing.T, c *kfake.Cluster, topic string, n int) []stored {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []stored
	for len(all) < n {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			t.Fatalf("%d of %d messages: %v", len(all), n, err)
		}
		for _, r := range fetched.Records() {
			k := &sarama.ConsumerMessage{Value: r.Value}
			for _, h := range r.Headers {
				k.Headers = append(k.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
			}
			m, err := kafka.DefaultMarshaler{}.Unmarshal(k)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, stored{m, string(r.Key), r.Partition})
		}
	}
	return all
}

func TestKafka(t *testing.T) {
	leavesNothing(t)
	c := aKafka(t)
	b := openBroker(t, kafkaURL(c, ""), func(c *Config) { c.Batch = 100 })
	if err := b.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	batch := of("acme", "globex", "acme", "initech", "acme", "globex")
	batch[0].Headers = map[string][]string{"Content-Type": {"text/plain"}}
	batch[0].Payload = []byte("\x00\xff")
	batch[2].Payload = nil
	wantKinds(t, b.Deliver(t.Context(), batch), Done, Done, Done, Done, Done, Done)
	order := map[string]string{}
	partition := map[string]int32{}
	for _, m := range consume(t, c, "flowgate", 6) {
		tenant := m.Metadata.Get("Flowgate-Tenant")
		order[tenant] += m.UUID + " "
		if before, ok := partition[tenant]; ok && before != m.partition || m.key != tenant {
			t.Errorf("%s is in partition %d under the key %q; the tenant's others are in %d", m.UUID, m.partition, m.key, before)
		}
		partition[tenant] = m.partition
		if m.UUID == "acme/1" {
			want := message.Metadata{
				"Content-Type": "text/plain", "Flowgate-Id": "acme/1", "Flowgate-Tenant": "acme", "Flowgate-Topic": "orders.new",
				"Flowgate-Seq": "1", "Flowgate-Attempt": "1", "Flowgate-Admitted-At": "2026-11-12T13:14:15.161718Z",
			}
			if diff := cmp.Diff(want, m.Metadata); diff != "" || string(m.Payload) != "\x00\xff" {
				t.Errorf("payload %q, headers (-want +got):\n%s", m.Payload, diff)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"acme": "acme/1 acme/3 acme/5 ", "globex": "globex/2 globex/6 ", "initech": "initech/4 "}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// produceError lets produce requests fail until it is over.
func produceError(c *kfake.Cluster, code int16) (over func()) {
	var off atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if off.Load() {
			c.DropControl()
			return nil, nil, false
		}
		c.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	return func() { off.Store(true) }
}

func TestKafkaVerdicts(t *testing.T) {
	leavesNothing(t)
	c := aKafka(t, kfake.SeedTopics(1, "of.acme", "of.small"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "10000"}))
	b := openBroker(t, kafkaURL(c, "of.{tenant}"), nil)
	deliver(t, b, aDelivery(1), Done)
	for code, want := range map[int16]VerdictKind{
		int16(sarama.ErrNotEnoughReplicas): Overload, int16(sarama.ErrNotLeaderForPartition): Overload, int16(sarama.ErrRequestTimedOut): Overload,
		int16(sarama.ErrKafkaStorageError): Overload, int16(sarama.ErrMessageSizeTooLarge): Reject, int16(sarama.ErrTopicAuthorizationFailed): Retry,
	} {
		over := produceError(c, code)
		deliver(t, b, aDelivery(2), want)
		over()
		deliver(t, b, aDelivery(3), Done) // it was that one
	}
	large := aDelivery(4)
	large.Payload = make([]byte, 20_000)
	wantError(t, deliver(t, b, large, Reject), "kafka")
	reserved := aDelivery(5)
	reserved.Headers = map[string][]string{kafka.UUIDHeaderKey: {"mine"}}
	wantError(t, deliver(t, b, reserved, Reject), "Watermill's own")

	// A topic of the producer's making is no reason to hold up the others.
	stray := aDelivery(6)
	stray.Tenant = "nobody"
	deliver(t, b, stray, Retry)
	byTopic := openBroker(t, kafkaURL(c, "of.{topic}"), nil)
	stray.Topic = "a/b"
	wantError(t, deliver(t, byTopic, stray, Reject), "no Kafka topic")
	// One that nothing goes to is.
	missing := openBroker(t, kafkaURL(c, "missing"), nil)
	deliver(t, missing, aDelivery(7), Overload)
	wantError(t, missing.Ping(t.Context()), "topic missing")
}

// TestKafkaOutage: a Kafka that is down at the start, comes, and goes.
func TestKafkaOutage(t *testing.T) {
	leavesNothing(t)
	port := reserve(t)
	b := openBroker(t, fmt.Sprintf("kafka://127.0.0.1:%d/flowgate", port), func(c *Config) { c.Timeout = 2 * time.Second })
	deliver(t, b, aDelivery(1), Overload)
	if err := b.Ping(t.Context()); err == nil {
		t.Error("nothing is there, and Ping says nothing")
	}
	for range 2 {
		c := aKafka(t, kfake.NumBrokers(1), kfake.Ports(port))
		// The client may hold off for 10 s after failures.
		soon(t, "a message is delivered", func() bool { return b.Deliver(t.Context(), deliveries(1))[0] == nil })
		c.Close()
		deliver(t, b, aDelivery(2), Overload)
	}
}

// TestKafkaHangs: no answer to a produce request.
func TestKafkaHangs(t *testing.T) {
	leavesNothing(t)
	c := aKafka(t)
	b := openBroker(t, kafkaURL(c, "flowgate"), func(c *Config) { c.Timeout = time.Second })
	deliver(t, b, aDelivery(1), Done)
	var hung atomic.Int32
	var over atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if over.Load() {
			return nil, nil, false
		}
		c.KeepControl()
		hung.Add(1)
		return nil, nil, true
	})
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		wantKinds(t, b.Deliver(ctx, of("a", "b", "c", "d", "e")), Overload, Overload, Overload, Overload, Overload)
		cancel()
	}
	if hung.Load() == 0 {
		t.Error("no request hung")
	}
	over.Store(true)
	soon(t, "a message is delivered", func() bool { return b.Deliver(t.Context(), deliveries(1))[0] == nil })
}

func TestKafkaSignIn(t *testing.T) {
	leavesNothing(t)
	authority, server := certificates(t)
	c := aKafka(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "flow", "s3cr3t"), kfake.TLS(server))
	host := strings.Join(c.ListenAddrs(), ",")
	b := openBroker(t, "kafkas://flow:s3cr3t@"+host+"/flowgate?ca="+authority, nil)
	deliver(t, b, aDelivery(1), Done)
	for _, url := range []string{
		"kafkas://flow:wr0ng@" + host + "/flowgate?ca=" + authority,
		"kafkas://" + host + "/flowgate?ca=" + authority,
		"kafkas://flow:s3cr3t@" + host + "/flowgate", // an authority that nobody knows
		"kafka://flow:s3cr3t@" + host + "/flowgate",
	} {
		b := openBroker(t, url, func(c *Config) { c.Timeout = 2 * time.Second })
		err := deliver(t, b, aDelivery(2), Overload)
		if strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error shows the password: %v", err)
		}
		if b.Ping(t.Context()) == nil {
			t.Errorf("%s: Ping says nothing", url)
		}
	}
}
