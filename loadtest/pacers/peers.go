package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/nats-io/nats-server/v2/server"
)

// calls makes calls one after the other for so long, each after wait.
func calls(length time.Duration, perSecond int, wait func() error) ([]time.Time, error) {
	made := make([]time.Time, 0, perSecond*int(length/time.Second+1)*2)
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := wait(); err != nil {
			return nil, err
		}
		made = append(made, time.Now())
	}
	return made, nil
}

func paceUber(_ context.Context, perSecond int, length time.Duration) ([]time.Time, error) {
	l := ratelimit.New(perSecond)
	return calls(length, perSecond, func() error { l.Take(); return nil })
}

func paceXTime(ctx context.Context, perSecond int, length time.Duration) ([]time.Time, error) {
	l := rate.NewLimiter(rate.Limit(perSecond), 1)
	return calls(length, perSecond, func() error { return l.Wait(ctx) })
}

// paceSleeper is what people write: take a message, work, acknowledge, sleep.
func paceSleeper(ctx context.Context, perSecond int, length time.Duration) ([]time.Time, error) {
	dir, done, err := scratch()
	if err != nil {
		return nil, err
	}
	defer done()
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work.>"}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		return nil, err
	}
	for range perSecond * int(length/time.Second+1) * 2 {
		if _, err := js.PublishAsync("work.a", make([]byte, 256), jetstream.WithStallWait(10*time.Second)); err != nil {
			return nil, err
		}
	}
	<-js.PublishAsyncComplete()
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	first := true
	return calls(length, perSecond, func() error {
		if !first {
			time.Sleep(time.Second / time.Duration(perSecond))
		}
		first = false
		m, err := messages.Next()
		if err != nil {
			return err
		}
		return m.Ack()
	})
}
