//go:build !noamqp

package consumers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

func amqpScheme() scheme {
	return scheme{[]string{"amqp", "amqps"}, "amqp://<host>/<vhost>?queue=<queue>", func(url string) error {
		_, _, _, err := parseAMQPURL(url)
		return err
	}, openAMQPURL}
}

// shortString is the most bytes of a name, a key or a header's name in AMQP.
const shortString = 255

func validAMQPName(name string) error {
	if name == "" || len(name) > shortString || !utf8.ValidString(name) {
		return fmt.Errorf("is no AMQP name: 1 to %d bytes of UTF-8", shortString)
	}
	return nil
}

// parseAMQPURL takes amqp://[user:password@]host[:port]/[<vhost>] with either
// ?queue=<queue>, which is flowgate without it, or ?exchange=<exchange>[&key=<key>],
// whose routing key is {tenant}.{topic} without it.
func parseAMQPURL(text string) (u brokerURL, exchange string, key template, err error) {
	port := "5672"
	if strings.HasPrefix(text, "amqps:") {
		port = "5671"
	}
	if u, err = parseBrokerURL(text, port, "queue", "exchange", "key"); err != nil {
		return
	}
	if len(u.hosts) > 1 {
		err = errors.New("has several hosts; an AMQP URL has one")
		return
	}
	if u.path == "" {
		u.path = "/" // the virtual host that a broker begins with
	}
	if !u.signIn {
		u.user, u.password = "guest", "guest" // what a broker begins with
	}
	exchange = u.query["exchange"]
	what, name := "key", u.query["key"]
	switch queue := u.query["queue"]; {
	case exchange == "" && name != "":
		err = errors.New("has a key without an exchange")
		return
	case exchange != "" && queue != "":
		err = errors.New("has both a queue and an exchange; it accepts one of them")
		return
	case exchange == "":
		// The default exchange takes a queue's name for the routing key.
		if what, name = "queue", queue; name == "" {
			name = defaultName
		}
	case strings.ContainsAny(exchange, "{}"):
		err = errors.New("has {…} in its exchange; only the key may have them")
		return
	case name == "":
		name = "{tenant}.{topic}"
	}
	if exchange != "" {
		if err = validAMQPName(exchange); err != nil {
			err = fmt.Errorf("has a wrong exchange: %w", err)
			return
		}
	}
	key, err = parseTemplate(what, name, validAMQPName)
	return
}

func openAMQPURL(_ context.Context, cfg Config, deps Deps) (Destination, error) {
	u, exchange, key, err := parseAMQPURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	secure, err := u.tls(u.hosts[0])
	if err != nil {
		return nil, fmt.Errorf("amqp: %w", err)
	}
	lanes := lanesOf(cfg)
	pub := &amqpPublisher{amqpLink{url: u, secure: secure, timeout: cfg.Timeout, channels: lanes}, exchange}
	return &broker{
		name: "amqp", topic: key, order: cfg.Order, lanes: make(chan struct{}, lanes), pub: pub,
		judge: func(err error) error { return amqpVerdict(exchange, key, err) },
		ping: func(ctx context.Context) error {
			return pub.look(ctx, key)
		},
	}, nil
}

// amqpPublisher is a Watermill publisher in the form of Watermill's own, whose
// subscribers read it, with what that one lacks. There, a message that no queue takes
// is confirmed and gone; a confirmation is waited for without end; and a connection
// that is lost is made again also after Close.
//
// Messages are persistent and mandatory: done is what a queue has taken and, if it is
// durable, written. Queues, exchanges and bindings are the operator's to make.
type amqpPublisher struct {
	amqpLink

	exchange string
}

// Publish implements message.Publisher. The topic is the routing key.
func (p *amqpPublisher) Publish(topic string, ms ...*message.Message) error {
	for _, m := range ms {
		if err := p.one(topic, m); err != nil {
			return err
		}
	}
	return nil
}

// errUnroutable is a message that no queue takes.
var errUnroutable = errors.New("no queue takes it")

func (p *amqpPublisher) one(key string, m *message.Message) error {
	out, err := watermillamqp.DefaultMarshaler{}.Marshal(m)
	if err != nil {
		return err
	}
	if len(m.UUID) <= shortString {
		out.MessageId = m.UUID
	}
	if mime := m.Metadata.Get("Content-Type"); len(mime) <= shortString {
		out.ContentType = mime
	}
	ch, err := p.take(m.Context())
	if err != nil {
		return err
	}
	if err := ch.fits(out); err != nil {
		p.giveBack(ch)
		return Permanent(err)
	}
	err = ch.publish(m.Context(), p.exchange, key, out)
	if err == nil || errors.Is(err, errUnroutable) {
		p.giveBack(ch)
	} else {
		p.drop(ch, m.Context().Err() != nil)
	}
	return err
}

// look says whether the broker has what is published to.
func (p *amqpPublisher) look(ctx context.Context, key template) error {
	ch, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer p.drop(ch, false)
	switch {
	case p.exchange != "":
		err = ch.ExchangeDeclarePassive(p.exchange, "", false, false, false, false, nil)
	case !key.varies:
		_, err = ch.QueueDeclarePassive(key.text, false, false, false, false, nil)
	}
	return err
}

// amqpVerdict sorts the errors of a publish. AMQP does not look at what a message says,
// so beside its size and its key all faults are the broker's.
func amqpVerdict(exchange string, key template, err error) error {
	if Judge(err).Kind != Retry {
		return err // one of ours
	}
	if errors.Is(err, errUnroutable) {
		return key.blame(err)
	}
	said, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return Overloaded(0, err)
	}
	switch said.Code {
	case amqp.ContentTooLarge:
		return Permanent(err)
	case amqp.PreconditionFailed: // RabbitMQ's word for a message over max_message_size
		if strings.Contains(said.Reason, "size") {
			return Permanent(err)
		}
	case amqp.AccessRefused: // a topic permission of the key
		if exchange != "" {
			return key.blame(err)
		}
	}
	return Overloaded(0, err)
}
