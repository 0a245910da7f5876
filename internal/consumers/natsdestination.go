package consumers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// NATSTarget is what a nats: URL says.
type NATSTarget struct {
	// Prefix begins the subjects, without a dot at its end.
	Prefix string
	// Reply: a delivery waits for a reply.
	Reply bool
}

// NATS is the target if the URL is a nats: one.
func (c Config) NATS() (target NATSTarget, ok bool) {
	target, err := parseNATSURL(c.URL)
	return target, err == nil
}

// Subject tokens of the gateway's own names; _INBOX and _R_ are the server's, $ too.
var natsPrefix = regexp.MustCompile(`^[A-Za-z0-9-][\w-]*(\.[\w-]+)*$`)

// maxPrefix leaves room below the server's 4 KiB for a subject line.
const maxPrefix = 255

func parseNATSURL(s string) (NATSTarget, error) {
	rest, ok := strings.CutPrefix(s, "nats:")
	prefix, query, asked := strings.Cut(rest, "?")
	switch {
	case !ok || strings.HasPrefix(rest, "//"):
		return NATSTarget{}, errors.New("is not nats:<subject prefix>; FLOWGATE_NATS_URL says which NATS, and it is the gateway's own")
	case !natsPrefix.MatchString(prefix) || len(prefix) > maxPrefix:
		return NATSTarget{}, errors.New("has no subject prefix like orders.out after nats: (tokens of A-Z a-z 0-9 _ - joined by dots, none beginning the prefix with _)")
	case !asked:
		return NATSTarget{Prefix: prefix}, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil || len(values) != 1 || len(values["ack"]) != 1 || values.Get("ack") != "reply" {
		return NATSTarget{}, errors.New("has a query that is not understood; nats: takes ?ack=reply alone")
	}
	return NATSTarget{Prefix: prefix, Reply: true}, nil
}

func checkNATSURL(s string) error {
	_, err := parseNATSURL(s)
	return err
}

func openNATSURL(_ context.Context, cfg Config, deps Deps) (Destination, error) {
	target, err := parseNATSURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	return NewNATS(deps.NATS, target, cfg.Order, cfg.Timeout), nil
}

// NATS is a Destination that publishes each message to <prefix>.<tenant>.<topic>.
//
// Without a reply a message is done once the server has taken it: whether anybody
// hears it, or a stream stores it, is not asked. With one, a batch is sent one message
// after the other.
type NATS struct {
	nc      *nats.Conn
	target  NATSTarget
	order   Order
	timeout time.Duration
}

// NewNATS publishes over nc, which must not keep for later what it cannot send now
// (nats.ReconnectBufSize(-1)). Close leaves it open. timeout bounds a delivery.
func NewNATS(nc *nats.Conn, target NATSTarget, order Order, timeout time.Duration) *NATS {
	return &NATS{nc: nc, target: target, order: order, timeout: timeout}
}

// Deliver implements Destination.
func (n *NATS) Deliver(ctx context.Context, batch []Delivery) []error {
	ctx, cancel := context.WithTimeout(ctx, n.timeout) // a flush must have one
	defer cancel()
	if n.target.Reply {
		ctx, stop := n.whileConnected(ctx)
		defer stop()
		return inTurn(ctx, batch, n.order, n.request)
	}
	before := n.look()
	verdicts := inTurn(ctx, batch, n.order, n.publish)
	err := nats.ErrDisconnected
	if n.nc.IsConnected() {
		err = n.nc.FlushWithContext(ctx)
	}
	if refused := n.since(before); refused != nil {
		err = refused
	}
	if err != nil {
		// Not known which of them the server has: none is called done.
		err = Overloaded(0, fmt.Errorf("nats: the server has not confirmed: %w", err))
		for i, v := range verdicts {
			if v == nil {
				verdicts[i] = err
			}
		}
	}
	return verdicts
}

// moment is what a connection was like before a delivery.
type moment struct {
	reconnects uint64
	last       error
}

func (n *NATS) look() moment { return moment{n.nc.Stats().Reconnects, n.nc.LastError()} }

// errReconnected: what was sent before may be lost, whatever the new connection says.
var errReconnected = errors.New("the connection was made anew meanwhile")

// since is what happened to the connection since then that means a message may not
// have arrived: a new one, or a right that is missing. The server says the latter
// before it answers a flush, but not to which of those who publish at once.
func (n *NATS) since(before moment) error {
	now := n.look()
	if now.reconnects != before.reconnects {
		return errReconnected
	}
	if now.last != before.last && errors.Is(now.last, nats.ErrPermissionViolation) && strings.Contains(now.last.Error(), `"`+n.target.Prefix+".") {
		return now.last
	}
	return nil
}

// whileConnected is ctx until the connection breaks: a reply to what was sent over it
// does not come any more.
func (n *NATS) whileConnected(ctx context.Context) (context.Context, func()) {
	ctx, broken := context.WithCancelCause(ctx)
	changed := n.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() {
		if _, ok := <-changed; ok {
			broken(nats.ErrDisconnected)
		}
	}()
	return ctx, func() {
		n.nc.RemoveStatusListener(changed) // which closes it
		broken(nil)
	}
}

func (n *NATS) publish(_ context.Context, d Delivery) error {
	return n.verdict(n.nc.PublishMsg(n.message(d)))
}

func (n *NATS) request(ctx context.Context, d Delivery) error {
	before := n.look()
	m := n.message(d)
	reply, err := n.nc.RequestMsgWithContext(ctx, m)
	if err == nil {
		return replyVerdict(m.Subject, reply)
	}
	if refused := n.since(before); refused != nil {
		err = refused
	} else if broken := context.Cause(ctx); errors.Is(broken, nats.ErrDisconnected) {
		err = broken
	} else if ctx.Err() != nil {
		// Somebody listens and did not reply: the message's own attempt.
		return fmt.Errorf("nats: no reply from %s in time: %w", m.Subject, err)
	}
	return n.verdict(err)
}

// verdict sorts an error of the client's.
func (n *NATS) verdict(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return Permanent(fmt.Errorf("nats: with its headers it is larger than the server's max_payload of %d bytes: %w", n.nc.MaxPayload(), err))
	case errors.Is(err, nats.ErrNoResponders):
		return Overloaded(0, fmt.Errorf("nats: nobody listens below %s: %w", n.target.Prefix, err))
	}
	return Overloaded(0, fmt.Errorf("nats: %w", err))
}

// message is a delivery as it is published. Of the producer's headers those of the
// server (Nats-…) stay away: they would drive a stream there. Its id is for that
// stream's deduplication.
func (n *NATS) message(d Delivery) *nats.Msg {
	h := make(nats.Header, len(d.Headers)+8)
	for name, values := range d.Headers {
		if plain := plainName(name); !strings.HasPrefix(plain, "nats-") && !isOwn(plain) {
			h[name] = values
		}
	}
	for _, own := range ownHeaders(d) {
		h[own[0]] = []string{own[1]}
	}
	h[nats.MsgIdHdr] = []string{d.ID}
	subject := n.target.Prefix + "." + d.Tenant
	if d.Topic != "" {
		subject += "." + d.Topic
	}
	return &nats.Msg{Subject: subject, Header: h, Data: d.Payload}
}

// Close leaves the connection to its owner.
func (n *NATS) Close() error { return nil }
