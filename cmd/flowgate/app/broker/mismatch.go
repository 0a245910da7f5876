package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Difference is one thing in JetStream that flowgate cannot work with and does not
// change.
type Difference struct {
	// Asset is what has it: "stream FLOWGATE", "consumer shaper of stream FLOWGATE".
	Asset string
	// Field is nats-server's name of the setting; Want and Have are its values.
	Field, Want, Have string
	// Why says what it would do; empty where the values tell.
	Why string
}

// String gives all of it on a line.
func (d Difference) String() string {
	s := fmt.Sprintf("%s: %s: want %s, have %s", d.Asset, d.Field, d.Want, d.Have)
	if d.Why != "" {
		s += " (" + d.Why + ")"
	}
	return s
}

// MismatchError lists all that stands in the way. Nothing was changed.
type MismatchError struct{ Differences []Difference }

// Error implements error, a line for each difference.
func (e *MismatchError) Error() string {
	var b strings.Builder
	b.WriteString("JetStream holds what flowgate cannot work with; nothing was changed:")
	for _, d := range e.Differences {
		b.WriteString("\n  " + d.String())
	}
	b.WriteString("\nRename or remove it (a stream's messages go with it), or choose another FLOWGATE_NAME or FLOWGATE_INGRESS_PREFIX")
	return b.String()
}

// rule is a setting that must be as it is: the server does not let it change, a
// change would lose messages, or somebody else relies on it.
type rule struct {
	field      string
	ok         bool
	want, have any
	why        string
}

// compareStream lists what of have cannot be brought to want.
func compareStream(want, have jetstream.StreamConfig) []Difference {
	return broken("stream "+have.Name, []rule{
		{"retention", have.Retention == want.Retention, want.Retention, have.Retention, ""},
		{"storage", have.Storage == want.Storage, want.Storage, have.Storage, ""},
		{"subjects", sameSubjects(have.Subjects, want.Subjects), want.Subjects, have.Subjects, ""},
		{"mirror", have.Mirror == nil, "none", mirrorName(have.Mirror), "its messages are another stream's"},
		{"sources", len(have.Sources) == 0, "none", len(have.Sources), "it takes in messages that were not admitted"},
		{"sealed", !have.Sealed, false, true, "it takes no messages"},
		{"subject_transform", have.SubjectTransform == nil, "none", "set", "subjects tell tenant and topic"},
		{"republish", have.RePublish == nil, "none", "set", "admitted messages would be sent elsewhere too"},
		{"persist_mode", have.PersistMode == want.PersistMode, want.PersistMode, have.PersistMode, "acknowledged messages could be lost"},
		{"allow_msg_counter", !have.AllowMsgCounter, false, true, "it takes counters only"},
		{"deny_purge", !have.DenyPurge, false, true, "it could not be emptied"},
		{"deny_delete", !have.DenyDelete || want.Retention == jetstream.WorkQueuePolicy || isBucket(want), false, true, "dead letters could not be replayed"},
	})
}

// compareConsumer lists what of have cannot be brought to want.
func compareConsumer(stream string, want, have jetstream.ConsumerConfig) []Difference {
	filters := slices.Clone(have.FilterSubjects)
	if have.FilterSubject != "" {
		filters = append(filters, have.FilterSubject)
	}
	return broken(fmt.Sprintf("consumer %s of stream %s", want.Durable, stream), []rule{
		{"durable_name", have.Durable == want.Durable, want.Durable, "none", "it would go away by itself"},
		{"ack_policy", have.AckPolicy == want.AckPolicy, want.AckPolicy, have.AckPolicy, ""},
		{"deliver_policy", have.DeliverPolicy == want.DeliverPolicy, want.DeliverPolicy, have.DeliverPolicy, ""},
		{"replay_policy", have.ReplayPolicy == want.ReplayPolicy, want.ReplayPolicy, have.ReplayPolicy, ""},
		{"deliver_subject", have.DeliverSubject == "", "none: a pull consumer", have.DeliverSubject, ""},
		{"filter_subjects", len(filters) == 0, "none", filters, "messages outside would wait for ever"},
		{"priority_policy", have.PriorityPolicy == want.PriorityPolicy, "none", "set", ""},
	})
}

func broken(asset string, rules []rule) []Difference {
	var list []Difference
	for _, r := range rules {
		if !r.ok {
			list = append(list, Difference{asset, r.field, fmt.Sprint(r.want), fmt.Sprint(r.have), r.why})
		}
	}
	return list
}

// captures is the difference of a stream that stores subjects which are not its.
func captures(h Holder, pattern, why string) Difference {
	return Difference{"stream " + h.Stream, "subjects", "none that overlap " + pattern, fmt.Sprint(h.Subjects), why}
}

func sameSubjects(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func mirrorName(m *jetstream.StreamSource) string {
	if m == nil {
		return "none"
	}
	return m.Name
}

func isBucket(c jetstream.StreamConfig) bool { return strings.HasPrefix(c.Name, "KV_") }
