package broker

import (
	"context"
	"errors"
	"fmt"
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

// rights tests what the gateway's user may publish and subscribe to. The server
// checks a right before it looks at the message, and sends its refusal before its
// answer to the next flush; nc keeps it as its last error.
func (c *check) rights(ctx context.Context) {
	c.tryAll(ctx, "publish", c.publishes(), c.tryPublish)
	c.tryAll(ctx, "subscribe to", c.subscriptions(), c.trySubscribe)
}

func (c *check) tryAll(ctx context.Context, verb string, rights []right, try func(context.Context, right) (bool, error)) {
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
	// A stream stores nothing that is meant for another.
	refused := nats.Header{"Nats-Expected-Stream": {"none-" + nuid.Next()}}
	store := func(subject string) { list = append(list, right{subject: subject, header: refused}) }

	api("INFO")
	api("STREAM.NAMES")
	api("STREAM.LIST")
	buckets := []string{t.StateBucket}
	if t.LimitsBucket != "" {
		buckets = append(buckets, t.LimitsBucket)
	}
	streams := []string{t.Stream, t.DLQStream}
	for _, b := range buckets {
		streams = append(streams, "KV_"+b)
		store("$KV." + b + ".check")
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
	store(t.Backlog + ".check.check")
	store(t.DLQ + ".check.check")
	list = append(list, right{subject: t.space() + ".pressure.check"}, right{subject: nats.NewInbox()})
	return list
}

// subscriptions are the subjects that the gateway listens to.
func (c *check) subscriptions() []right {
	return []right{
		{subject: c.t.Ingress + ".>"},
		{subject: nats.NewInbox() + ".*"},
		{subject: "$SRV.PING"},
		{subject: "$SRV.INFO"},
		{subject: "$SRV.STATS"},
		{subject: c.t.space() + ".admin.status"},
	}
}
