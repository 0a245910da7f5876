package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// right is something that the gateway's user must be allowed to do, and a message
// that shows whether it is and does nothing.
type right struct {
	subject string
	// allow is what an operator writes into the permissions; empty: subject.
	allow  string
	body   string
	header nats.Header
	// making: it makes or changes a stream, which is not needed where one is as it
	// must be.
	making bool
}

// named is how an error names the right.
func (r right) named() string {
	if r.allow != "" {
		return r.allow
	}
	return r.subject
}

// malformed is a body that each JetStream call refuses before it does anything.
const malformed = "{"

// rights tests what the gateway's user may publish and subscribe to, and reports
// whether it may ask JetStream all that it has to.
func (c *check) rights(ctx context.Context, b *Broker) bool {
	publishes, subscriptions := c.t.publishes(), c.t.subscriptions(b.inbox)
	denied, err := b.denied(ctx, publishes, subscriptions)
	for _, kind := range []struct {
		verb     string
		subjects []string
		of       int
	}{{"publish", denied.publish, len(publishes)}, {"subscribe to", denied.subscribe, len(subscriptions)}} {
		f := Finding{Name: "rights to " + kind.verb, Detail: fmt.Sprintf("all %d subjects that are needed", kind.of), Err: err}
		if len(kind.subjects) > 0 {
			f.Err = fmt.Errorf("flowgate's user may not %s %s", kind.verb, strings.Join(kind.subjects, ", "))
			f.Fix = "allow these subjects in the user's permissions"
		}
		c.add(f)
	}
	return err == nil && !slices.ContainsFunc(slices.Concat(denied.publish, denied.subscribe), func(subject string) bool {
		return strings.HasPrefix(subject, "$JS.API.") || strings.HasPrefix(subject, c.t.space()+".inbox.")
	})
}

// Rights returns a DeniedError if the gateway's user lacks a right that t needs at
// once or later: the server answers nothing to what is not allowed, and a gateway would
// wait in vain, or stand there and serve nobody. What makes and changes streams is
// left out; see Permitted.
func (b *Broker) Rights(ctx context.Context, t Topology) error {
	if b.password != "" {
		return nil // its user may do everything
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	making := func(r right) bool { return r.making }
	denied, err := b.denied(ctx, slices.DeleteFunc(t.publishes(), making), t.subscriptions(b.inbox))
	if err != nil {
		return fmt.Errorf("test the rights of flowgate's user: %w", err)
	}
	if len(denied.publish)+len(denied.subscribe) > 0 {
		return &DeniedError{denied.publish, denied.subscribe}
	}
	return nil
}

// lacking are the rights that are missing, by their names.
type lacking struct{ publish, subscribe []string }

// denied tries all of the rights at once over a connection of its own. The server
// checks a right before it looks at the message, and sends its refusals before its
// answer to the next flush; the connection tells all of them before it tells that it
// is closed.
func (b *Broker) denied(ctx context.Context, publishes, subscriptions []right) (lacking, error) {
	var mu sync.Mutex
	var refusals []string
	closed := make(chan struct{})
	nc, err := b.Connect("rights",
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				mu.Lock()
				defer mu.Unlock()
				refusals = append(refusals, err.Error())
			}
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			b.forget(nc)
			close(closed)
		}))
	if err != nil {
		return lacking{}, err
	}
	err = tryAll(ctx, nc, publishes, subscriptions)
	nc.Close()
	<-closed
	if err != nil {
		return lacking{}, err
	}
	missing := func(verb string, rights []right) (names []string) {
		for _, r := range rights {
			if slices.ContainsFunc(refusals, func(text string) bool {
				return strings.Contains(text, "Violation for "+verb+` to "`+r.subject+`"`)
			}) {
				names = append(names, r.named())
			}
		}
		return names
	}
	return lacking{missing("Publish", publishes), missing("Subscription", subscriptions)}, nil
}

func tryAll(ctx context.Context, nc *nats.Conn, publishes, subscriptions []right) error {
	for _, r := range publishes {
		if err := nc.PublishMsg(&nats.Msg{Subject: r.subject, Header: r.header, Data: []byte(r.body)}); err != nil {
			return fmt.Errorf("publish to %s: %w", r.subject, err)
		}
	}
	for _, r := range subscriptions {
		// A queue group of its own: a gateway that runs gets its messages all the same.
		sub, err := nc.QueueSubscribe(r.subject, "flowgate-check-"+nuid.Next(), func(*nats.Msg) {})
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", r.subject, err)
		}
		// It goes in the same write: were no gateway there, a producer would otherwise
		// wait for the answer that a subscriber promises.
		if err := sub.Unsubscribe(); err != nil {
			return fmt.Errorf("unsubscribe from %s: %w", r.subject, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("the server's word on flowgate's rights: %w", err)
	}
	return nil
}

func (c *check) tryPublish(ctx context.Context, r right) (bool, error) {
	if err := c.nc.PublishMsg(&nats.Msg{Subject: r.subject, Header: r.header, Data: []byte(r.body)}); err != nil {
		return false, fmt.Errorf("publish to %s: %w", r.subject, err)
	}
	return c.allowed(ctx, r.subject)
}

// allowed waits for the server's word on what was just sent.
func (c *check) allowed(ctx context.Context, subject string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return false, fmt.Errorf("the server's word on %s: %w", subject, err)
	}
	last := c.nc.LastError()
	return last == nil || !strings.Contains(last.Error(), "Permissions Violation") || !strings.Contains(last.Error(), `"`+subject+`"`), nil
}

// publishes are the subjects that the gateway sends to.
func (t Topology) publishes() []right {
	var list []right
	// A message that is only traced reaches nobody, JetStream's API no more than a
	// listener, and a stream stores nothing that is meant for another.
	inbox := nats.NewInbox()
	nowhere := nats.Header{"Nats-Trace-Only": {"true"}, "Nats-Trace-Dest": {inbox}, "Nats-Expected-Stream": {"none-" + nuid.Next()}}
	add := func(r right) {
		r.header = nowhere
		list = append(list, r)
	}
	api := func(call string) { add(right{subject: "$JS.API." + call, body: malformed}) }
	below := func(prefix, rest string) {
		add(right{subject: prefix + "." + rest, allow: prefix + ".>", body: malformed})
	}

	api("INFO")
	api("STREAM.NAMES")
	api("STREAM.LIST")
	buckets := []string{t.StateBucket}
	if b := t.LimitsBucket; b != "" {
		buckets = append(buckets, b)
	}
	streams := []string{t.Stream, t.DLQStream}
	for _, b := range buckets {
		streams = append(streams, "KV_"+b)
		// It is watched: without an answer to the server's flow control a large bucket is
		// never read to its end, and a watcher that is closed takes its consumer along.
		below("$JS.FC.KV_"+b, "check.check")
		below("$JS.API.CONSUMER.DELETE.KV_"+b, "check")
		below("$KV."+b, "check")
		// Watching makes a consumer of a random name.
		below("$JS.API.CONSUMER.CREATE.KV_"+b, "check.$KV."+b+".>")
		below("$JS.API.DIRECT.GET.KV_"+b, "$KV."+b+".check")
	}
	for _, s := range streams {
		api("STREAM.INFO." + s)
		add(right{subject: "$JS.API.STREAM.CREATE." + s, body: malformed, making: true})
		add(right{subject: "$JS.API.STREAM.UPDATE." + s, body: malformed, making: true})
		api("STREAM.MSG.GET." + s)
		api("DIRECT.GET." + s)
	}
	api("STREAM.MSG.DELETE." + t.DLQStream)
	api("CONSUMER.LIST." + t.Stream)
	for _, call := range []string{"INFO", "CREATE", "RESET", "MSG.NEXT"} {
		api(fmt.Sprintf("CONSUMER.%s.%s.%s", call, t.Stream, t.Consumer))
	}
	below("$JS.ACK."+t.Stream+"."+t.Consumer, "check") // a real one has more tokens
	below(t.Backlog, "check.check")
	below(t.DLQ, "check.check")
	if t.Deliveries != "" {
		below(t.Deliveries, "check.check")
	}
	add(right{subject: t.space() + ".pressure"})
	add(right{subject: "$SRV.INFO"})              // other gateways are asked which subjects they answer
	add(right{subject: inbox, allow: "_INBOX.>"}) // producers are answered
	return list
}

// subscriptions are the subjects that the gateway listens to; inbox begins those of
// its answers.
func (t Topology) subscriptions(inbox string) []right {
	return []right{
		{subject: t.Ingress + ".>"},
		{subject: inbox + ".check.*", allow: t.space() + ".inbox.>"},
		{subject: "$SRV.PING"},
		{subject: "$SRV.INFO"},
		{subject: "$SRV.STATS"},
		{subject: t.space() + ".admin.status"},
		{subject: t.space() + ".admin.pause"},
		{subject: t.space() + ".admin.resume"},
	}
}
