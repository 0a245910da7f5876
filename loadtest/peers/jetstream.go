package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsVersion is that of the server that the JetStream rows share.
func natsVersion() string {
	return "nats-server " + server.VERSION + ", nats.go " + versionOf("github.com/nats-io/nats.go")
}

// workQueue is a NATS server of one's own with a bounded work queue, and the producers'
// side of it; those on JetStream share it.
type workQueue struct {
	server *server.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	// perSubject gives each of the tenants its part of the messages.
	perSubject bool
}

// open starts the server on a port of loopback and makes the stream.
func (q *workQueue) open(ctx context.Context, s setup) (err error) {
	q.server, err = server.NewServer(&server.Options{JetStream: true, StoreDir: s.Dir, SyncInterval: syncEvery, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		return err
	}
	q.server.Start()
	if !q.server.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server is not ready after 10 s")
	}
	if q.nc, err = nats.Connect(q.server.ClientURL()); err != nil {
		return err
	}
	if q.js, err = jetstream.New(q.nc); err != nil {
		return err
	}
	cfg := jetstream.StreamConfig{
		Name: "WORK", Subjects: []string{"work.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, MaxMsgs: int64(s.Backlog),
	}
	if q.perSubject {
		cfg.MaxMsgsPerSubject, cfg.DiscardNewPerSubject = int64(s.Backlog/tenants), true
	}
	q.stream, err = q.js.CreateOrUpdateStream(ctx, cfg)
	return err
}

// consumer is the one durable consumer.
func (q *workQueue) consumer(ctx context.Context, s setup) (jetstream.Consumer, error) {
	return q.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: s.Ahead,
	})
}

func (q *workQueue) Publish(ctx context.Context, tenant string, payload []byte) error {
	_, err := q.js.Publish(ctx, "work."+tenant, payload)
	return err
}

func (q *workQueue) close() {
	if q.nc != nil {
		q.nc.Close()
	}
	if q.server != nil {
		q.server.Shutdown()
		q.server.WaitForShutdown()
	}
}

// settle answers the broker for one message.
func settle(m jetstream.Msg, failed error) error {
	if failed != nil {
		return m.NakWithDelay(retryAfter)
	}
	return m.Ack()
}

// jetStreamPeer is a stream with a limit, and a client that sleeps.
type jetStreamPeer struct {
	workQueue
	messages jetstream.MessagesContext
	ended    sync.WaitGroup
}

func (p *jetStreamPeer) Start(ctx context.Context, s setup) error {
	if err := p.open(ctx, s); err != nil {
		return err
	}
	c, err := p.consumer(ctx, s)
	if err != nil {
		return err
	}
	if p.messages, err = c.Messages(jetstream.PullMaxMessages(s.Ahead)); err != nil {
		return err
	}
	work := make(chan jetstream.Msg)
	for range s.Workers {
		p.ended.Go(func() {
			for m := range work {
				report(settle(m, s.Write(ctx, m.Data())))
			}
		})
	}
	p.ended.Go(func() {
		defer close(work)
		for {
			m, err := p.messages.Next()
			if err != nil {
				if !errors.Is(err, jetstream.ErrMsgIteratorClosed) {
					report(fmt.Errorf("consumer: %w", err))
				}
				return
			}
			work <- m
			if s.Rate > 0 {
				time.Sleep(s.interval())
			}
		}
	})
	return nil
}

func (p *jetStreamPeer) Close() error {
	if p.messages != nil {
		p.messages.Stop()
	}
	p.ended.Wait()
	p.close()
	return nil
}
