package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// PublisherConfig says how a Watermill message becomes one of the gateway's.
type PublisherConfig struct {
	Config
	// Subject turns a Watermill topic into what follows the prefix. nil: the topic is
	// <tenant>.<topic> itself.
	Subject func(topic string) string
	// ID is the message id, the tenant's own across topics. nil: the message's UUID. Whoever
	// publishes one message to several topics of a tenant has to tell them apart here, or
	// only the first is stored.
	ID func(topic string, m *message.Message) string
	// Timeout bounds how long one message may take, its waits included, beside the
	// message's own context. 0: 30 s. Negative: there is no bound.
	Timeout time.Duration
}

// Publisher is a Client as Watermill's message.Publisher. A message's UUID is its
// Nats-Msg-Id, its metadata are the headers.
type Publisher struct {
	cfg    PublisherConfig
	client *Client
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher over js's connection, which Close leaves open.
func NewPublisher(js jetstream.JetStream, cfg PublisherConfig) (*Publisher, error) {
	c, err := New(js, cfg.Config)
	if err != nil {
		return nil, err
	}
	if cfg.Subject == nil {
		cfg.Subject = func(topic string) string { return topic }
	}
	if cfg.ID == nil {
		cfg.ID = func(_ string, m *message.Message) string { return m.UUID }
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Publisher{cfg, c}, nil
}

// Publish implements message.Publisher: one message after the other, so that their
// order is kept. The first that is not stored ends it, and is named in the error; all
// may be published again, since those that were stored are known by their ids.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	subject := p.cfg.Subject(topic)
	if !strings.Contains(subject, ".") {
		return fmt.Errorf("client: topic %q is not <tenant>.<topic>; set PublisherConfig.Subject", topic)
	}
	for _, m := range messages {
		if err := p.publish(p.client.cfg.Prefix+"."+subject, topic, m); err != nil {
			return fmt.Errorf("message %s: %w", m.UUID, err)
		}
	}
	return nil
}

func (p *Publisher) publish(subject, topic string, m *message.Message) error {
	ctx := m.Context()
	if p.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.cfg.Timeout)
		defer cancel()
	}
	msg := nats.NewMsg(subject)
	msg.Data = m.Payload
	for k, v := range m.Metadata {
		msg.Header[k] = []string{v}
	}
	if id := p.cfg.ID(topic, m); id != "" {
		msg.Header[jetstream.MsgIDHeader] = []string{id}
	}
	_, err := p.client.PublishMsg(ctx, msg)
	return err
}

// Close implements message.Publisher. What is being published is given up.
func (p *Publisher) Close() error {
	return p.client.Close()
}
