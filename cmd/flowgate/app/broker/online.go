package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Finding is the result of one check against a running NATS.
type Finding struct {
	Name string
	// Err is what is wrong; nil if nothing is.
	Err error
	// Detail says what was found, or why it was not looked at.
	Detail string
	// Fix says what to do; empty if nothing is wrong or Err says it.
	Fix string
	// Skipped: it could not be tested, and Detail says why. Not a failure.
	Skipped bool
}

// OK reports whether nothing is wrong.
func (f Finding) OK() bool { return f.Err == nil }

// probeTime bounds each step of CheckOnline.
const probeTime = 5 * time.Second

// CheckOnline tests what the gateway needs of the NATS in use: version, limits, each
// right, what its streams are like, and whether one captures the ingress. It leaves
// nothing behind and changes nothing: rights on the gateway's own names are tried with
// messages that the server must refuse as malformed, the rest with a stream and a
// bucket of random names that are removed again. A gateway may run meanwhile.
func (b *Broker) CheckOnline(ctx context.Context, t Topology) []Finding {
	if b.logs != nil {
		b.logs.checking.Store(true)
		defer b.logs.checking.Store(false)
	}
	nc, err := b.Connect("check")
	if err != nil {
		return []Finding{{Name: "connect", Err: err}}
	}
	defer nc.Close()
	c := &check{nc: nc, t: t}
	c.add(Finding{Name: "connect", Detail: redact(nc.ConnectedUrl())})
	// Connect refuses an older one.
	c.add(Finding{Name: "server version", Detail: nc.ConnectedServerVersion()})
	c.add(b.payloadFinding(nc))
	if b.server != nil {
		c.add(Finding{Name: "disk", Detail: fmt.Sprintf("up to %d bytes of streams", t.Bytes()), Err: b.Disk(t)})
	}
	if !c.rights(ctx, b) {
		// The server does not answer what is not allowed: each request would take its
		// time and tell no more.
		c.add(Finding{Name: "JetStream", Skipped: true, Detail: "not looked at before the missing rights are there"})
		return c.list
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return append(c.list, Finding{Name: "JetStream", Err: err})
	}
	c.js = js
	if !c.account(ctx) {
		return c.list
	}
	c.streams(ctx)
	c.trial(ctx)
	return c.list
}

// check is one run of CheckOnline.
type check struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	t    Topology
	list []Finding
	// exists: the backlog stream is there.
	exists bool
}

func (c *check) add(f Finding) { c.list = append(c.list, f) }

// payloadFinding: the server's limit counts headers, and the gateway adds some.
func (b *Broker) payloadFinding(nc *nats.Conn) Finding {
	f := Finding{Name: "payload limit"}
	limit, has := b.cfg.MaxPayload, int(nc.MaxPayload())
	switch most := b.Payload(nc); {
	case most < 1:
		f.Err = fmt.Errorf("the server takes %d bytes a message, headers included, and flowgate's own headers need up to %d", has, ownHeaders)
		f.Fix = fmt.Sprintf("raise the server's max_payload to %d", limit+headroom)
	case most < limit:
		f.Detail = fmt.Sprintf("producers may send %d bytes, not FLOWGATE_INGRESS_MAX_PAYLOAD's %d: the server takes %d and flowgate's own headers need up to %d", most, limit, has, ownHeaders)
		f.Fix = fmt.Sprintf("raise the server's max_payload to %d, or lower FLOWGATE_INGRESS_MAX_PAYLOAD", limit+headroom)
	default:
		f.Detail = fmt.Sprintf("producers may send %d bytes; the server takes %d", most, has)
	}
	return f
}

// account compares the account's limits with what the topology needs beyond what is
// there already.
func (c *check) account(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	info, err := c.js.AccountInfo(ctx)
	if err != nil {
		c.add(Finding{Name: "JetStream", Err: unavailable(err)})
		return false
	}
	c.add(Finding{Name: "JetStream", Detail: "enabled"})
	streams, consumers, bytes := c.missing(ctx)
	tier := tierOf(info, c.t)
	if len(info.Tiers) == 0 {
		bytes *= int64(max(c.t.Replicas, 1)) // one limit for all replicas together
	}
	limits := tier.Limits
	raise := "raise the account's limit"
	smaller := raise + ", or lower FLOWGATE_BACKPRESSURE_MAX_BYTES or FLOWGATE_DLQ_MAX_BYTES"
	c.add(limitFinding("account storage", "bytes to set aside", smaller, limits.MaxStore, int64(tier.ReservedStore), bytes))
	c.add(limitFinding("account streams", "streams, buckets among them", raise, bound(int64(limits.MaxStreams)), int64(tier.Streams), int64(streams)))
	c.add(limitFinding("account consumers", "consumers", raise, bound(int64(limits.MaxConsumers)), int64(tier.Consumers), int64(consumers)))
	c.add(limitFinding("account stream size", "bytes in one stream", smaller, bound(limits.StoreMaxStreamBytes), 0, max(c.t.MaxBytes, c.t.DLQMaxBytes)))
	if limits.MaxBytesRequired && (c.t.MaxBytes <= 0 || c.t.DLQMaxBytes <= 0) {
		c.add(Finding{Name: "account stream bounds", Err: errors.New("the account takes only streams that are bounded in bytes"),
			Fix: "set FLOWGATE_BACKPRESSURE_MAX_BYTES and FLOWGATE_DLQ_MAX_BYTES"})
	}
	return true
}

// limitFinding: need more on top of used must be at most limit; below 0 there is no
// limit.
func limitFinding(name, what, fix string, limit, used, need int64) Finding {
	f := Finding{Name: name}
	switch {
	case limit < 0:
		f.Detail = "unlimited"
	case need > limit-used:
		f.Err = fmt.Errorf("%s: %d more are needed, %d of %d are left", what, need, max(limit-used, 0), limit)
		f.Fix = fix
	default:
		f.Detail = fmt.Sprintf("%s: %d of %d used, %d more needed", what, used, limit, need)
	}
	return f
}

// missing counts what the topology lacks, and the bytes that its streams would set
// aside beyond those that they have.
func (c *check) missing(ctx context.Context) (streams, consumers int, bytes int64) {
	t := c.t
	wants := []jetstream.StreamConfig{t.backlog(), t.deadLetters(), t.bucket(t.StateBucket)}
	if t.LimitsBucket != "" {
		wants = append(wants, t.bucket(t.LimitsBucket))
	}
	for i, want := range wants {
		s, err := c.js.Stream(ctx, want.Name)
		if err != nil {
			streams++
			bytes += max(want.MaxBytes, 1) // the server's count of one without a bound
			continue
		}
		bytes += max(max(want.MaxBytes, 0)-max(s.CachedInfo().Config.MaxBytes, 0), 0)
		if i == 0 {
			c.exists = true
		}
	}
	if _, err := c.js.Consumer(ctx, t.Stream, t.Consumer); err != nil {
		consumers = 1
	}
	return streams, consumers, bytes
}

// streams looks at what is there as Ensure would.
func (c *check) streams(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err := Check(ctx, c.js, c.t)
	mismatch, ok := errors.AsType[*MismatchError](err)
	if !ok && err != nil {
		c.add(Finding{Name: "streams", Err: err})
		return
	}
	var own, ingress []error
	if ok {
		for _, d := range mismatch.Differences {
			if strings.HasSuffix(d.Want, " "+c.t.Ingress+".>") {
				ingress = append(ingress, errors.New(d.String()))
			} else {
				own = append(own, errors.New(d.String()))
			}
		}
	}
	f := Finding{Name: "streams", Detail: "to be made", Err: errors.Join(own...)}
	if c.exists {
		f.Detail = "there, and as they must be or can be changed to"
	}
	if f.Err != nil {
		f.Fix = "rename or remove them (their messages go with them), or set FLOWGATE_NAME"
	}
	c.add(f)
	f = Finding{Name: "ingress subjects", Detail: "no stream captures " + c.t.Ingress + ".>", Err: errors.Join(ingress...)}
	if f.Err != nil {
		f.Fix = "remove the stream or its subject, or set FLOWGATE_INGRESS_PREFIX"
	}
	c.add(f)
}
