package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"
)

// peer brings messages from producers to the database, at a rate.
type peer interface {
	// Start serves until Close. What an earlier process with the same directory or broker
	// left is delivered too.
	Start(ctx context.Context, s setup) error
	// Publish hands over one message and returns when it is answered: nil is a promise, an
	// error is what the producer is told. It may be called from many goroutines.
	Publish(ctx context.Context, tenant string, payload []byte) error
	Close() error
}

// setup is what a peer is configured for, in its own terms.
type setup struct {
	// Dir is the peer's own directory, Broker the URL of the broker it needs, if any.
	Dir, Broker string
	// Rate is calls of the database a second; 0: as fast as it goes.
	Rate int
	// Backlog is how many messages may wait.
	Backlog int
	// Workers is how many calls of the database may be open at once.
	Workers int
	// Ahead is how many messages may be with the peer and not answered for: more than can
	// be open, so that no worker waits for the broker.
	Ahead int
	// Write calls the database. An error asks for another attempt later.
	Write func(ctx context.Context, payload []byte) error
}

func (s setup) interval() time.Duration { return time.Second / time.Duration(s.Rate) }

const (
	// retryAfter is when a failed message is tried again, by every peer that can be told.
	retryAfter = time.Second
	// syncEvery is how often a broker's files are synced, where it does not do so for every
	// message: flowgate's default, which is 1,200 times as often as a NATS server's.
	syncEvery = 100 * time.Millisecond
	// ackWait is when a broker gives a message that nobody answered for to another.
	ackWait = 5 * time.Second
)

// contestant is a peer and how it is set up.
type contestant struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Setting string `json:"setting"` // and why its users would choose it
	Version func() string
	// only are its phases; nil: all.
	only []string
	// bare has no rate: it shows what the database does then.
	bare     bool
	rabbitMQ bool // needs the broker
	make     func() peer
}

func (c contestant) phases() []string {
	if c.only != nil {
		return c.only
	}
	return []string{steady, overload, noise, ceiling, crash}
}

var contestants = []contestant{
	{
		Name: "flowgate", Title: "flowgate", make: func() peer { return &flowgatePeer{} },
		Version: func() string { return "this tree, " + natsVersion() },
		Setting: "The gateway in the process of the run with its embedded broker, producers over TCP with the plain JetStream client. `FLOWGATE_SHAPER_RATE`, `FLOWGATE_BACKPRESSURE_HIGH` (MAX is twice that, as by default, and tenants with little waiting may use it), `FLOWGATE_CONSUMER_CONCURRENCY` and `FLOWGATE_CONSUMER_BACKOFF` are set, all else is the default, so its files are synced every 100 ms; `FLOWGATE_LIMIT_TENANT` is lifted for the ceiling.",
	},
	{
		Name: "jetstream", Title: "JetStream, sleeping client", make: func() peer { return &jetStreamPeer{} },
		Version: natsVersion,
		Setting: "A work queue on file with `discard: new` and `max_msgs`, synced every 100 ms as flowgate's (the server's default is two minutes), `MaxAckPending` eight for each call that may be open, a consumer that hands each message to a worker and then sleeps one interval: sleeping after the call instead would add the call's time to each interval. Failures are given back with `NakWithDelay`.",
	},
	{
		Name: "jetstream-subjects", Title: "JetStream, limit per subject", make: func() peer { return &jetStreamPeer{workQueue: workQueue{perSubject: true}} },
		Version: natsVersion, only: []string{noise},
		Setting: "The row above with JetStream's own means against a noisy neighbour, `max_msgs_per_subject` with `discard_new_per_subject`: a fifth of the messages for each of the five tenants. That needs their number beforehand; beside the noisy neighbour only, since nothing else changes.",
	},
	{
		Name: "watermill", Title: "Watermill Throttle", make: func() peer { return &watermillPeer{} },
		Version: func() string {
			return versionOf("github.com/ThreeDotsLabs/watermill") + ", watermill-nats " + versionOf("github.com/ThreeDotsLabs/watermill-nats/v2") + ", " + natsVersion()
		},
		Setting: "A router with the `Throttle` middleware on watermill-nats v2 `pkg/nats` with JetStream (the one its authors recommend for production; its Go channel pub/sub would lose everything with the process), so the broker is that of the row above. As many subscribers in a queue group as calls may be open, `NakDelay` set, since without it a failed message comes back at once.",
	},
	{
		Name: "benthos", Title: "Benthos rate_limit", make: func() peer { return &benthosPeer{} },
		Version: benthosVersion,
		Setting: "Benthos without Redpanda Connect has no NATS components, so a JetStream input and the database as an output are the smallest plugins of its public API. `rate_limit` of the kind `local` with `count: 1` and the interval of one message, which is its most even setting: `count` of a second's messages with `interval: 1s`, as in its documentation, lets them all go at the second's beginning, which the next row does. One pipeline thread, the output's `max_in_flight` as many as calls may be open.",
	},
	{
		Name: "benthos-second", Title: "Benthos, by the second", make: func() peer { return &benthosPeer{bySecond: true} },
		Version: benthosVersion, only: []string{overload},
		Setting: "The row above with `count` of a second's messages and `interval: 1s`, as in its documentation; in the overload only.",
	},
	{
		Name: "rabbitmq", Title: "RabbitMQ, sleeping client", make: func() peer { return &rabbitMQPeer{} }, rabbitMQ: true,
		Version: func() string { return "" }, // the broker says it
		Setting: "Debian's server, which is older than RabbitMQ's own releases, with its defaults for everything that costs speed, a durable quorum queue with `x-max-length` and `x-overflow: reject-publish`, persistent messages, publisher confirms on one channel, each of which it syncs before it confirms, prefetch eight for each call that may be open, a consumer that hands each message to a worker and then sleeps one interval. A failed message is written again by its worker after a second, since a quorum queue gives a rejected one back at once.",
	},
	{
		Name: "pool", Title: "x/time/rate and a pool", make: func() peer { return &poolPeer{} },
		Version: func() string { return versionOf("golang.org/x/time") },
		Setting: "A channel of that many messages in the producers' own process, as many workers as calls may be open, each of which waits for `rate.NewLimiter(rate, 1)`; a full channel is an error of one's own. Producers call a function: no network, no disk.",
	},
	{
		Name: "bare", Title: "JetStream, no rate", make: func() peer { return &jetStreamPeer{} }, bare: true, only: []string{overload},
		Version: natsVersion,
		Setting: "The second row without the sleep and with 64 workers, the pool of connections of an ordinary service: what happens to the database without any of this.",
	},
}

// bareWorkers is how many calls a service makes at once that has no rate.
const bareWorkers = 64

// payload names the message in its first bytes, so that it survives every peer.
func payload(tenant string, id, size int) []byte {
	p := fmt.Appendf(make([]byte, 0, size), "%s %d ", tenant, id)
	for len(p) < size {
		p = append(p, '.')
	}
	return p
}

// named reads what payload wrote.
func named(p []byte) (tenant string, id int, err error) {
	t, rest, _ := bytes.Cut(p, []byte{' '})
	n, _, _ := bytes.Cut(rest, []byte{' '})
	id, err = strconv.Atoi(string(n))
	if err != nil {
		return "", 0, fmt.Errorf("a delivery of none of our messages: %.40q", p)
	}
	return string(t), id, nil
}
