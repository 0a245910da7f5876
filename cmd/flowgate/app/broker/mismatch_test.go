package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

func TestWhatCannotBeChangedStopsTheStart(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := limitsToo()
	create := func(c jetstream.StreamConfig) {
		t.Helper()
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	// stream is one of the gateway's own, made by somebody else, and otherwise.
	stream := func(c jetstream.StreamConfig, change func(*jetstream.StreamConfig)) func() {
		return func() { t.Helper(); change(&c); create(c) }
	}
	// consumer is on a backlog that is as it should be.
	consumer := func(change func(*jetstream.ConsumerConfig)) func() {
		return func() {
			t.Helper()
			create(top.backlog())
			c := top.consumer()
			change(&c)
			if _, err := js.CreateConsumer(t.Context(), "FLOWGATE", c); err != nil {
				t.Fatal(err)
			}
		}
	}
	push := func() {
		t.Helper()
		create(top.backlog())
		if _, err := js.CreatePushConsumer(t.Context(), "FLOWGATE", jetstream.ConsumerConfig{
			Durable: "shaper", DeliverSubject: "there", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 24 * time.Hour, MaxAckPending: -1,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		given func()
		lines []string // one a difference, in any order
	}{
		{"retention", stream(top.backlog(), func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }),
			[]string{"stream FLOWGATE: retention: want WorkQueue, have Limits"}},
		{"storage", stream(top.backlog(), func(c *jetstream.StreamConfig) { c.Storage, c.MaxBytes = jetstream.MemoryStorage, -1 }),
			[]string{"stream FLOWGATE: storage: want File, have Memory"}},
		{"subjects", stream(top.backlog(), func(c *jetstream.StreamConfig) { c.Subjects = []string{"orders.>"} }),
			[]string{"stream FLOWGATE: subjects: want [flowgate.backlog.>], have [orders.>]"}},
		{"one more subject", stream(top.backlog(), func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "orders.>") }),
			[]string{"stream FLOWGATE: subjects: want [flowgate.backlog.>], have [flowgate.backlog.> orders.>]"}},
		{"mirror", func() {
			create(jetstream.StreamConfig{Name: "ORIGIN", Subjects: []string{"orders.>"}})
			create(jetstream.StreamConfig{Name: "FLOWGATE", Mirror: &jetstream.StreamSource{Name: "ORIGIN"}})
		}, []string{"mirror: want none, have ORIGIN", "retention: want WorkQueue, have Limits", "subjects: want [flowgate.backlog.>], have []"}},
		{"sources", func() {
			create(jetstream.StreamConfig{Name: "ORIGIN", Subjects: []string{"orders.>"}})
			c := top.backlog()
			c.Sources = []*jetstream.StreamSource{{Name: "ORIGIN"}}
			create(c)
		}, []string{"sources: want none, have 1"}},
		{"sealed", func() {
			c := top.deadLetters()
			create(c)
			c.Sealed = true
			if _, err := js.UpdateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}, []string{"stream FLOWGATE_DLQ: sealed: want false, have true", "stream FLOWGATE_DLQ: deny_delete", "stream FLOWGATE_DLQ: deny_purge"}},
		{"subject transform", stream(top.backlog(), func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "flowgate.backlog.a.>", Destination: "flowgate.backlog.b.>"}
		}), []string{"subject_transform: want none, have set"}},
		{"republish", stream(top.backlog(), func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "copy.>"}
		}), []string{"republish: want none, have set"}},
		{"written later", stream(top.backlog(), func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }),
			[]string{"persist_mode: want Default, have Async (acknowledged messages could be lost)"}},
		{"counters", stream(top.deadLetters(), func(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld }),
			[]string{"stream FLOWGATE_DLQ: allow_msg_counter: want false, have true"}},
		{"not to be purged", stream(top.backlog(), func(c *jetstream.StreamConfig) { c.DenyPurge = true }),
			[]string{"deny_purge: want false, have true"}},
		{"dead letters not to be deleted", stream(top.deadLetters(), func(c *jetstream.StreamConfig) { c.DenyDelete = true }),
			[]string{"stream FLOWGATE_DLQ: deny_delete: want false, have true"}},
		{"bucket in memory", stream(top.bucket("FLOWGATE_LIMITS"), func(c *jetstream.StreamConfig) { c.Storage, c.MaxBytes = jetstream.MemoryStorage, -1 }),
			[]string{"stream KV_FLOWGATE_LIMITS: storage: want File, have Memory"}},
		{"another consumer", consumer(func(c *jetstream.ConsumerConfig) { c.Durable = "reports" }),
			[]string{"stream FLOWGATE: consumers: want shaper and no other, have reports"}},
		{"push consumer", push, []string{"consumer shaper of stream FLOWGATE: deliver_subject: want none: a pull consumer, have there"}},
		{"filter", consumer(func(c *jetstream.ConsumerConfig) { c.FilterSubject = "flowgate.backlog.acme.>" }),
			[]string{"filter_subjects: want none, have [flowgate.backlog.acme.>]"}},
		{"filters", consumer(func(c *jetstream.ConsumerConfig) {
			c.FilterSubjects = []string{"flowgate.backlog.a.>", "flowgate.backlog.b.>"}
		}),
			[]string{"filter_subjects: want none, have [flowgate.backlog.a.> flowgate.backlog.b.>]"}},
		{"consumer that goes away", consumer(func(c *jetstream.ConsumerConfig) { c.Name, c.Durable = "shaper", "" }),
			[]string{"durable_name: want shaper, have none"}},
		{"original pace", consumer(func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy }),
			[]string{"replay_policy: want instant, have original"}},
		{"priorities", consumer(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPinned, []string{"a"}
		}), []string{"priority_policy: want none, have set"}},
		{"several at once", func() {
			stream(top.backlog(), func(c *jetstream.StreamConfig) { c.Storage, c.MaxBytes = jetstream.MemoryStorage, -1 })()
			stream(top.deadLetters(), func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy })()
			create(jetstream.StreamConfig{Name: "FOREIGN", Subjects: []string{"ingress.acme.>"}})
		}, []string{"stream FLOWGATE: storage", "stream FLOWGATE_DLQ: retention: want Limits, have Interest", "stream FOREIGN: subjects"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.given()
			before := configs(t, js)
			// What could be changed is not, since something cannot.
			other := top
			other.MaxMsgs, other.DedupWindow = 7, time.Second
			_, err := Ensure(t.Context(), js, other)
			e, ok := errors.AsType[*MismatchError](err)
			if !ok {
				t.Fatalf("not a MismatchError: %v", err)
			}
			if len(e.Differences) != len(tc.lines) {
				t.Errorf("%d differences, want %d", len(e.Differences), len(tc.lines))
			}
			wantError(t, err, append(tc.lines, "nothing was changed", "FLOWGATE_NAME")...)
			if got := Check(t.Context(), js, other); got == nil || got.Error() != err.Error() {
				t.Errorf("Check says something else: %v", got)
			}
			if diff := cmp.Diff(before, configs(t, js)); diff != "" {
				t.Errorf("something was changed:\n%s", diff)
			}
			for name := range before {
				if !strings.Contains(name, " > ") {
					if err := js.DeleteStream(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func TestEnsureConsumer(t *testing.T) {
	_, js := gateway(t, start(t, testConfig(t.TempDir())))
	top := testTopology()
	ensured(t, js, top)
	want := configs(t, js)
	publish(t, js, 3)
	for what, change := range map[string]func() error{
		"deleted": func() error { return js.DeleteConsumer(t.Context(), "FLOWGATE", "shaper") },
		"changed": func() error {
			c := top.consumer()
			c.MaxAckPending, c.AckWait = 1, time.Second
			_, err := js.UpdateConsumer(t.Context(), "FLOWGATE", c)
			return err
		},
		"as it was": func() error { return nil },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := EnsureConsumer(t.Context(), js, top); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if diff := cmp.Diff(want, configs(t, js)); diff != "" {
			t.Errorf("%s (-want +have):\n%s", what, diff)
		}
	}
	c, err := js.Consumer(t.Context(), "FLOWGATE", "shaper")
	if err != nil || c.CachedInfo().NumPending != 3 {
		t.Errorf("it has not all messages: %+v, %v", c, err)
	}

	if err := js.DeleteConsumer(t.Context(), "FLOWGATE", "shaper"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreatePushConsumer(t.Context(), "FLOWGATE", jetstream.ConsumerConfig{
		Durable: "shaper", DeliverSubject: "there", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	err = EnsureConsumer(t.Context(), js, top)
	if _, ok := errors.AsType[*MismatchError](err); !ok {
		t.Errorf("a push consumer: %v", err)
	}
	wantError(t, err, "consumer shaper of stream FLOWGATE", "deliver_subject")

	if err := js.DeleteStream(t.Context(), "FLOWGATE"); err != nil {
		t.Fatal(err)
	}
	wantError(t, EnsureConsumer(t.Context(), js, top), "FLOWGATE", "stream not found")
}
