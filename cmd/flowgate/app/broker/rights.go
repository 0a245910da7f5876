package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// right is something that the gateway's user must be allowed to do, and a message
// that shows whether it is and does nothing.
type right struct {
	subject string
	body    string
	header  nats.Header
}

// malformed is a body that each JetStream call refuses before it does anything.
const malformed = "{"

// rights tests what the gateway's user may publish and subscribe to, and reports
// whether it may ask JetStream all that it has to. The server checks a right before
// it looks at the message, and sends its refusal before its answer to the next
// flush; nc keeps it as its last error.
func (c *check) rights(ctx context.Context) bool {
	denied := c.tryAll(ctx, "publish", c.publishes(), c.tryPublish)
	denied = append(denied, c.tryAll(ctx, "subscribe to", c.subscriptions(), c.trySubscribe)...)
	return !slices.ContainsFunc(denied, func(subject string) bool {
		return strings.HasPrefix(subject, "$JS.API.") || strings.HasPrefix(subject, c.t.space()+".inbox.")
	})
}

// tryAll returns the subjects of the rights that are missing.
func (c *check) tryAll(ctx context.Context, verb string, rights []right, try func(context.Context, right) (bool, error)) []string {
	f := Finding{Name: "rights to " + verb, Detail: fmt.Sprintf("all %d subjects that are needed", len(rights))}
	var denied []string
	for _, r := range rights {
		ok, err := try(ctx, r)
		if err != nil {
			f.Err = err
			break
		}
		if !ok {
			denied = append(denied, r.subject)
		}
	}
	if len(denied) > 0 {
		f.Err = errors.Join(fmt.Errorf("flowgate's user may not %s %s", verb, strings.Join(denied, ", ")), f.Err)
		f.Fix = "allow these subjects in the user's permissions"
	}
	c.add(f)
	return denied
}

func (c *check) tryPublish(ctx context.Context, r right) (bool, error) {
	if err := c.nc.PublishMsg(&nats.Msg{Subject: r.subject, Header: r.header, Data: []byte(r.body)}); err != nil {
		return false, fmt.Errorf("publish to %s: %w", r.subject, err)
	}
	return c.allowed(ctx, r.subject)
}

func (c *check) trySubscribe(ctx context.Context, r right) (bool, error) {
	// A queue group of its own: a gateway that runs gets its messages all the same.
	sub, err := c.nc.QueueSubscribe(r.subject, "flowgate-check-"+nuid.Next(), func(*nats.Msg) {})
	if err != nil {
		return false, fmt.Errorf("subscribe to %s: %w", r.subject, err)
	}
	// It goes in the same write: were no gateway there, a producer would otherwise
	// wait for the answer that a subscriber promises.
	if err := sub.Unsubscribe(); err != nil {
		return false, fmt.Errorf("unsubscribe from %s: %w", r.subject, err)
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
func (c *check) publishes() []right {
	t := c.t
	var list []right
	api := func(format string, args ...any) {
		list = append(list, right{subject: fmt.Sprintf("$JS.API."+format, args...), body: malformed})
	}
	// A message that is only traced reaches no listener, and a stream stores nothing
	// that is meant for another.
	inbox := nats.NewInbox()
	nowhere := nats.Header{"Nats-Trace-Only": {"true"}, "Nats-Trace-Dest": {inbox}, "Nats-Expected-Stream": {"none-" + nuid.Next()}}
	send := func(subject string) { list = append(list, right{subject: subject, header: nowhere}) }

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
		send("$JS.FC.KV_" + b + ".check.check")
		api("CONSUMER.DELETE.KV_%s.check", b)
		send("$KV." + b + ".check")
		// Its consumer does not exist: watching makes one of a random name.
		api("CONSUMER.CREATE.KV_%s.check.$KV.%s.>", b, b)
		api("DIRECT.GET.KV_%s.$KV.%s.check", b, b)
	}
	for _, s := range streams {
		api("STREAM.INFO.%s", s)
		api("STREAM.CREATE.%s", s)
		api("STREAM.UPDATE.%s", s)
		api("STREAM.MSG.GET.%s", s)
		api("DIRECT.GET.%s", s)
	}
	api("STREAM.MSG.DELETE.%s", t.DLQStream)
	api("CONSUMER.LIST.%s", t.Stream)
	for _, call := range []string{"INFO", "CREATE", "RESET", "MSG.NEXT"} {
		api("CONSUMER.%s.%s.%s", call, t.Stream, t.Consumer)
	}
	// An acknowledgement has more tokens; nobody listens to this one.
	list = append(list, right{subject: "$JS.ACK." + t.Stream + "." + t.Consumer + ".check"})
	send(t.Backlog + ".check.check")
	send(t.DLQ + ".check.check")
	if t.Deliveries != "" {
		send(t.Deliveries + ".check.check")
	}
	send(t.space() + ".pressure")
	return append(list, right{subject: inbox})
}

// subscriptions are the subjects that the gateway listens to.
func (c *check) subscriptions() []right {
	return []right{
		{subject: c.t.Ingress + ".>"},
		{subject: c.nc.NewInbox() + ".*"},
		{subject: "$SRV.PING"},
		{subject: "$SRV.INFO"},
		{subject: "$SRV.STATS"},
		{subject: c.t.space() + ".admin.status"},
		{subject: c.t.space() + ".admin.pause"},
		{subject: c.t.space() + ".admin.resume"},
	}
}
