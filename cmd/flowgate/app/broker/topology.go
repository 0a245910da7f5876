package broker

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Topology is what a gateway has in JetStream.
type Topology struct {
	// Stream is the backlog's name, DLQStream that of the dead letters, Consumer the
	// durable on the backlog. StateBucket is the gateway's state; LimitsBucket the
	// live limits, empty: none is made.
	Stream, DLQStream, StateBucket, LimitsBucket, Consumer string
	// Backlog, DLQ and Ingress are subject prefixes without a dot at their end.
	Backlog, DLQ, Ingress string
	// Deliveries is the prefix that a consumer over NATS is published to; empty: none.
	Deliveries string

	// MaxMsgs and MaxBytes bound the backlog, in messages and in bytes; 0: unbounded.
	MaxMsgs, MaxBytes int64
	// DedupWindow is how long the backlog remembers message ids.
	DedupWindow time.Duration
	// Replicas is of every stream and bucket; 0 is 1.
	Replicas int
	// DLQMaxBytes and DLQMaxAge bound the dead letters; 0: unbounded.
	DLQMaxBytes int64
	DLQMaxAge   time.Duration
}

// Bytes is what the streams may come to on one server. What the buckets hold is not
// worth counting.
func (t Topology) Bytes() int64 { return max(t.MaxBytes, 0) + max(t.DLQMaxBytes, 0) }

// space is the subject prefix that the gateway's own subjects have in common.
func (t Topology) space() string {
	if i := strings.LastIndexByte(t.Backlog, '.'); i > 0 {
		return t.Backlog[:i]
	}
	return t.Backlog
}

// ackWait is how long the broker waits for an ack before it hands a message out
// again. Recovery is a reset, so it need never happen by itself.
const ackWait = 24 * time.Hour

// deadLetterWindow is how long the dead-letter stream remembers ids: a dead letter
// that is written again after a crash makes no second one.
const deadLetterWindow = 2 * time.Minute

// backlog is the stream of what is admitted and not delivered. It has no message
// size limit: what the server takes from the gateway must also be stored.
func (t Topology) backlog() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        t.Stream,
		Description: "flowgate: admitted messages that are not delivered yet",
		Subjects:    []string{t.Backlog + ".>"},
		Retention:   jetstream.WorkQueuePolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardNew,
		MaxMsgs:     bound(t.MaxMsgs), MaxBytes: bound(t.MaxBytes),
		MaxMsgSize: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1,
		Duplicates:  t.DedupWindow,
		Replicas:    max(t.Replicas, 1),
		AllowDirect: true,
	}
}

func (t Topology) deadLetters() jetstream.StreamConfig {
	window := deadLetterWindow
	if t.DLQMaxAge > 0 { // the server's condition
		window = min(window, t.DLQMaxAge)
	}
	return jetstream.StreamConfig{
		Name:        t.DLQStream,
		Description: "flowgate: dead letters",
		Subjects:    []string{t.DLQ + ".>"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardNew, // full: the message stays in the backlog
		MaxBytes:    bound(t.DLQMaxBytes), MaxAge: t.DLQMaxAge,
		MaxMsgs: -1, MaxMsgSize: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1,
		Duplicates:  window,
		Replicas:    max(t.Replicas, 1),
		AllowDirect: true,
	}
}

// bucket is the stream below a key-value bucket as nats.go makes it.
func (t Topology) bucket(name string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:      "KV_" + name,
		Subjects:  []string{"$KV." + name + ".>"},
		Retention: jetstream.LimitsPolicy,
		Storage:   jetstream.FileStorage,
		Discard:   jetstream.DiscardNew,
		MaxMsgs:   -1, MaxBytes: -1, MaxMsgSize: -1, MaxMsgsPerSubject: 1,
		MaxConsumers: -1,
		Replicas:     max(t.Replicas, 1),
		AllowRollup:  true, AllowDirect: true,
	}
}

func (t Topology) bucketConfig(name string) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket: name, Description: "flowgate", History: 1,
		Storage: jetstream.FileStorage, Replicas: max(t.Replicas, 1),
	}
}

// consumer is the one consumer: the whole backlog is handed out at once and waits
// in the shaper, whose counting of attempts is its own.
func (t Topology) consumer() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       t.Consumer,
		Description:   "flowgate: shaper",
		AckPolicy:     jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait:       ackWait,
		MaxAckPending: -1,
		MaxDeliver:    -1,
		// What was handed out is asked for anew at each start, and a state on the disk is
		// written ten times a second, whole: with 300,000 messages handed out the acks did
		// not keep up with 1,000/s.
		MemoryStorage: true,
	}
}

// bound turns a limit that may be 0 into the server's words.
func bound(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}
