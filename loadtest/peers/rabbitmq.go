package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitMQPeer is a quorum queue that rejects what it cannot hold, and a client that
// sleeps.
type rabbitMQPeer struct {
	conns     [2]*amqp.Connection // producers and consumer, as its documentation asks for
	producers *amqp.Channel
	consumer  *amqp.Channel
	ended     sync.WaitGroup
	stop      context.CancelFunc
}

const rabbitQueue = "work"

// errNack is a nack in words: the protocol gives no reason with it.
var errNack = errors.New("basic.nack")

func (p *rabbitMQPeer) Start(ctx context.Context, s setup) (err error) {
	for i := range p.conns {
		if p.conns[i], err = amqp.Dial(s.Broker); err != nil {
			return err
		}
	}
	if p.producers, err = p.conns[0].Channel(); err != nil {
		return err
	}
	if err := p.producers.Confirm(false); err != nil {
		return err
	}
	if p.consumer, err = p.conns[1].Channel(); err != nil {
		return err
	}
	if _, err := p.consumer.QueueDeclare(rabbitQueue, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-max-length": int64(s.Backlog), "x-overflow": "reject-publish",
	}); err != nil {
		return err
	}
	if err := p.consumer.Qos(s.Ahead, 0, false); err != nil {
		return err
	}
	deliveries, err := p.consumer.Consume(rabbitQueue, "worker", false, false, false, false, nil)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	p.stop = stop
	work := make(chan amqp.Delivery)
	for range s.Workers {
		p.ended.Go(func() {
			for d := range work {
				p.write(running, s, d)
			}
		})
	}
	p.ended.Go(func() {
		defer close(work)
		for d := range deliveries {
			work <- d
			if s.Rate > 0 {
				time.Sleep(s.interval())
			}
		}
	})
	return nil
}

// write tries until the database takes it; only then the broker forgets it.
func (p *rabbitMQPeer) write(ctx context.Context, s setup, d amqp.Delivery) {
	for s.Write(ctx, d.Body) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
	if err := d.Ack(false); err != nil && ctx.Err() == nil {
		report(fmt.Errorf("ack: %w", err))
	}
}

func (p *rabbitMQPeer) Publish(ctx context.Context, tenant string, payload []byte) error {
	c, err := p.producers.PublishWithDeferredConfirmWithContext(ctx, "", rabbitQueue, false, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, Body: payload, Headers: amqp.Table{"tenant": tenant},
	})
	if err != nil {
		return err
	}
	ok, err := c.WaitContext(ctx)
	if err == nil && !ok {
		err = errNack
	}
	return err
}

func (p *rabbitMQPeer) Close() error {
	if p.stop != nil {
		p.stop()
	}
	var errs []error
	if p.consumer != nil {
		errs = append(errs, p.consumer.Close()) // ends the deliveries
	}
	p.ended.Wait()
	for _, c := range p.conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// freshQueue removes what the phase before left, and tells the versions of the broker, of
// Erlang and of the client.
func freshQueue(url string) (version string, err error) {
	c, err := amqp.Dial(url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ch, err := c.Channel()
	if err != nil {
		return "", err
	}
	_, err = ch.QueueDelete(rabbitQueue, false, false, false)
	broker, _ := c.Properties["version"].(string)
	platform, _ := c.Properties["platform"].(string)
	return fmt.Sprintf("RabbitMQ %s, %s, amqp091-go %s", broker, platform, versionOf("github.com/rabbitmq/amqp091-go")), err
}
