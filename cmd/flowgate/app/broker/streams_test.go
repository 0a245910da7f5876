package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"
)

const subject = "flowgate.backlog.acme.orders"

// limitsToo is the topology with live limits.
func limitsToo() Topology {
	top := testTopology()
	top.LimitsBucket = "FLOWGATE_LIMITS"
	return top
}

// configs are the settings of all streams and consumers of the account.
func configs(t *testing.T, js jetstream.JetStream) map[string]any {
	t.Helper()
	all := map[string]any{}
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		name := info.Config.Name
		all[name] = info.Config
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		consumers := s.ListConsumers(t.Context())
		for info := range consumers.Info() {
			all[name+" > "+info.Name] = info.Config
		}
		if err := consumers.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEnsureMakesEverything(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := limitsToo()
	top.DLQMaxAge = time.Minute
	a := ensured(t, js, top)
	if a.Messages != 0 || a.LastSeq != 0 || a.Created.IsZero() || a.Backlog == nil || a.DLQ == nil || a.StateStream == nil || a.State.Bucket() != "FLOWGATE_STATE" || a.Limits.Bucket() != "FLOWGATE_LIMITS" {
		t.Errorf("assets: %+v", a)
	}
	all := configs(t, js)
	if len(all) != 5 {
		t.Errorf("there are %d streams and consumers: %v", len(all), all)
	}
	common := jetstream.StreamConfig{
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: 1, AllowDirect: true,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, Duplicates: 2 * time.Minute,
	}
	backlog, dead, bucket := common, common, common
	backlog.Subjects, backlog.Retention = []string{"flowgate.backlog.>"}, jetstream.WorkQueuePolicy
	backlog.MaxMsgs, backlog.MaxBytes = 20_000, 1<<30
	dead.Subjects, dead.MaxBytes, dead.MaxAge = []string{"flowgate.dlq.>"}, 256<<20, time.Minute
	dead.Duplicates = time.Minute // the server takes no window above the age
	bucket.MaxMsgsPerSubject, bucket.AllowRollup, bucket.DenyDelete = 1, true, true
	state, limits := bucket, bucket
	state.Subjects, limits.Subjects = []string{"$KV.FLOWGATE_STATE.>"}, []string{"$KV.FLOWGATE_LIMITS.>"}
	for name, want := range map[string]any{
		"FLOWGATE": backlog, "FLOWGATE_DLQ": dead, "KV_FLOWGATE_STATE": state, "KV_FLOWGATE_LIMITS": limits,
		"FLOWGATE > shaper": jetstream.ConsumerConfig{
			Name: "shaper", Durable: "shaper", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 24 * time.Hour,
			MaxAckPending: -1, MaxDeliver: -1, MaxWaiting: 512, MemoryStorage: true,
		},
	} {
		if diff := cmp.Diff(want, all[name],
			cmpopts.IgnoreFields(jetstream.StreamConfig{}, "Name", "Description", "Metadata"),
			cmpopts.IgnoreFields(jetstream.ConsumerConfig{}, "Description", "Metadata")); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}

	// Without live limits there is no bucket for them.
	top = testTopology()
	top.Stream, top.DLQStream, top.StateBucket, top.Backlog, top.DLQ = "SECOND", "SECOND_DLQ", "SECOND_STATE", "second.backlog", "second.dlq"
	if a := ensured(t, js, top); a.Limits != nil {
		t.Errorf("limits bucket %s", a.Limits.Bucket())
	}
	if n := len(configs(t, js)); n != 9 {
		t.Errorf("two gateways with names of their own have %d streams and consumers", n)
	}
}

func TestEnsureAgainChangesNothing(t *testing.T) {
	nc, js := gateway(t, start(t, testConfig(t.TempDir())))
	first := ensured(t, js, limitsToo())
	publish(t, js, 3)
	advisories, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.>")
	if err != nil {
		t.Fatal(err)
	}
	// What the server still has to tell of the making comes before this.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FIRST"}); err != nil {
		t.Fatal(err)
	}
	for told := ""; told != "$JS.EVENT.ADVISORY.STREAM.CREATED.FIRST"; {
		m, err := advisories.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		told = m.Subject
	}
	before := configs(t, js)
	for range 3 {
		a := ensured(t, js, limitsToo())
		if a.Incarnation != first.Incarnation || a.Messages != 3 || a.LastSeq != 3 {
			t.Errorf("the backlog is now %+v; it was %+v", a, first)
		}
	}
	if diff := cmp.Diff(before, configs(t, js)); diff != "" {
		t.Errorf("settings changed:\n%s", diff)
	}
	// The server tells of each change in the order of the changes: this one is last.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LAST"}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := advisories.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == "$JS.EVENT.ADVISORY.STREAM.CREATED.LAST" {
			return
		}
		if !strings.HasPrefix(m.Subject, "$JS.EVENT.ADVISORY.API") {
			t.Errorf("the server did %s", m.Subject)
		}
	}
}

// Whatever is set otherwise and may be changed is changed, and nothing stored is
// lost.
func TestSafeDifferencesAreApplied(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := limitsToo()
	first := ensured(t, js, top)
	want := configs(t, js)
	stream := func(name string, change func(*jetstream.StreamConfig)) func() error {
		return func() error {
			c := want[name].(jetstream.StreamConfig)
			change(&c)
			_, err := js.UpdateStream(t.Context(), c)
			return err
		}
	}
	backlog := func(change func(*jetstream.StreamConfig)) func() error { return stream("FLOWGATE", change) }
	dead := func(change func(*jetstream.StreamConfig)) func() error { return stream("FLOWGATE_DLQ", change) }
	consumer := func(change func(*jetstream.ConsumerConfig)) func() error {
		return func() error {
			c := want["FLOWGATE > shaper"].(jetstream.ConsumerConfig)
			change(&c)
			_, err := js.UpdateConsumer(t.Context(), "FLOWGATE", c)
			return err
		}
	}
	for i, change := range []func() error{
		backlog(func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 }),
		backlog(func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 }),
		backlog(func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }),
		backlog(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }),
		backlog(func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Hour, time.Second }),
		backlog(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 }),
		backlog(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }),
		backlog(func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 50, true }),
		backlog(func(c *jetstream.StreamConfig) { c.NoAck = true }), // each producer would wait for nothing
		backlog(func(c *jetstream.StreamConfig) { c.AllowDirect = false }),
		backlog(func(c *jetstream.StreamConfig) { c.Description = "mine" }),
		dead(func(c *jetstream.StreamConfig) { c.MaxBytes, c.MaxMsgs, c.MaxMsgsPerSubject = 1000, 10, 5 }),
		dead(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }),
		dead(func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Minute, time.Minute }),
		stream("KV_FLOWGATE_STATE", func(c *jetstream.StreamConfig) { c.MaxAge, c.MaxBytes = time.Hour, 1<<20 }),
		stream("KV_FLOWGATE_LIMITS", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 }),
		consumer(func(c *jetstream.ConsumerConfig) { c.AckWait, c.MaxDeliver, c.MaxAckPending = 30*time.Second, 5, 1000 }),
		consumer(func(c *jetstream.ConsumerConfig) {
			c.MaxDeliver, c.BackOff = 3, []time.Duration{time.Second, time.Minute}
		}),
		consumer(func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }),
		consumer(func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour }),
		consumer(func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch, c.MaxRequestExpires = 1, time.Second }),
		consumer(func(c *jetstream.ConsumerConfig) { c.Description = "mine" }),
	} {
		if err := change(); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if cmp.Equal(want, configs(t, js)) {
			t.Fatalf("change %d is none", i)
		}
		if err := Check(t.Context(), js, top); err != nil {
			t.Errorf("change %d: Check: %v", i, err)
		}
		a := ensured(t, js, top)
		if diff := cmp.Diff(want, configs(t, js)); diff != "" {
			t.Errorf("change %d is not undone (-want +have):\n%s", i, diff)
		}
		if a.Incarnation != first.Incarnation {
			t.Errorf("change %d made another incarnation", i)
		}
	}
}

// What others set and the gateway does not care for stays.
func TestOtherSettingsAreLeftAlone(t *testing.T) {
	nc, js := gateway(t, start(t, testConfig(t.TempDir())))
	ensured(t, js, testTopology())
	all := configs(t, js)
	stream := all["FLOWGATE"].(jetstream.StreamConfig)
	stream.Metadata["owner"], stream.Compression = "ops", jetstream.S2Compression
	if _, err := js.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	consumer := all["FLOWGATE > shaper"].(jetstream.ConsumerConfig)
	consumer.Metadata["owner"], consumer.SampleFrequency = "ops", "5%"
	if _, err := js.UpdateConsumer(t.Context(), "FLOWGATE", consumer); err != nil {
		t.Fatal(err)
	}
	pause := fmt.Sprintf(`{"pause_until":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	if _, err := nc.Request("$JS.API.CONSUMER.PAUSE.FLOWGATE.shaper", []byte(pause), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	top := testTopology()
	top.MaxMsgs = 10
	ensured(t, js, top)
	if s := configs(t, js)["FLOWGATE"].(jetstream.StreamConfig); s.MaxMsgs != 10 || s.Metadata["owner"] != "ops" || s.Compression != jetstream.S2Compression {
		t.Errorf("the stream is now %+v", s)
	}
	// The consumer needs a change too, or it would not be written at all.
	consumer = configs(t, js)["FLOWGATE > shaper"].(jetstream.ConsumerConfig)
	consumer.AckWait = time.Minute
	if _, err := js.UpdateConsumer(t.Context(), "FLOWGATE", consumer); err != nil {
		t.Fatal(err)
	}
	ensured(t, js, top)
	c := configs(t, js)["FLOWGATE > shaper"].(jetstream.ConsumerConfig)
	if c.AckWait != 24*time.Hour || c.Metadata["owner"] != "ops" || c.SampleFrequency != "5%" || c.PauseUntil == nil {
		t.Errorf("the consumer is now %+v", c)
	}
}

// A consumer whose state is on the disk, as an older gateway made it, is made anew: no
// message is lost, and what a user added to it stays.
func TestEnsureMovesTheConsumerIntoMemory(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := testTopology()
	ensured(t, js, top)
	if err := js.DeleteConsumer(t.Context(), top.Stream, top.Consumer); err != nil {
		t.Fatal(err)
	}
	old := top.consumer()
	old.MemoryStorage, old.SampleFrequency = false, "50%"
	if _, err := js.CreateConsumer(t.Context(), top.Stream, old); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), top.Backlog+".acme.orders", nil); err != nil {
			t.Fatal(err)
		}
	}
	ensured(t, js, top)
	c, err := js.Consumer(t.Context(), top.Stream, top.Consumer)
	if err != nil {
		t.Fatal(err)
	}
	if info := c.CachedInfo(); !info.Config.MemoryStorage || info.Config.SampleFrequency != "50%" || info.NumPending != 3 {
		t.Errorf("the consumer has %d pending and is %+v", info.NumPending, info.Config)
	}
}

// The state bucket can be made first, and nothing else is then; not where the rest could
// not be made.
func TestEnsureState(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := testTopology()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TAKEN", Subjects: []string{top.Backlog + ".>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureState(t.Context(), js, top); err == nil {
		t.Error("it is made although another stream has the backlog's subjects")
	}
	if err := js.DeleteStream(t.Context(), "TAKEN"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		kv, err := EnsureState(t.Context(), js, top)
		if err != nil || kv.Bucket() != top.StateBucket {
			t.Fatalf("%v, %v", kv, err)
		}
	}
	if all := configs(t, js); len(all) != 1 {
		t.Errorf("beside the bucket there are %v", all)
	}
	ensured(t, js, top)
}
