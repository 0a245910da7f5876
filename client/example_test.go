package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/client"
	"github.com/flowgate/flowgate/cmd/flowgate/app"
	"github.com/flowgate/flowgate/cmd/flowgate/settings"
)

// Thirty messages at once, and a gateway that takes ten of them at once and 50/s then.
func Example() {
	url, stop := gateway("FLOWGATE_LIMIT_TENANT=token-bucket:50/s,burst=10")
	defer stop()
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}

	gate, err := client.New(js, client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var futures []*client.Future
	for i := range 30 {
		m := nats.NewMsg(gate.Subject("acme", "orders"))
		m.Header.Set("Nats-Msg-Id", fmt.Sprintf("order-%d", i))
		m.Data = fmt.Appendf(nil, `{"order":%d}`, i)
		futures = append(futures, gate.PublishMsgAsync(ctx, m))
	}
	stored := 0
	for _, f := range futures {
		if _, err := f.Result(); err != nil {
			log.Fatal(err)
		}
		stored++
	}
	fmt.Println(stored, "are stored")
	// Output: 30 are stored
}

// What waiting cannot help, or the context has no time for, is an error that says why.
func ExampleRefused() {
	url, stop := gateway("FLOWGATE_LIMIT_TENANT=token-bucket:1/h")
	defer stop()
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	gate, err := client.New(js, client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for range 2 {
		_, err := gate.Publish(ctx, "acme", "orders", []byte("x"))
		refused, ok := errors.AsType[*client.Refused](err)
		if !ok {
			fmt.Println("stored, error", err)
			continue
		}
		fmt.Println(refused.Reason == client.ErrRateLimited, refused.Scope, refused.Key, refused.Limit)
		fmt.Println(refused.RetryAfter.Round(time.Hour), errors.Is(err, context.DeadlineExceeded))
	}
	// Output:
	// stored, error <nil>
	// true tenant acme token-bucket:1/h
	// 1h0m0s true
}

// A service that is built on Watermill publishes through the gateway.
func ExampleNewPublisher() {
	url, stop := gateway()
	defer stop()
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}

	publisher, err := client.NewPublisher(js, client.PublisherConfig{
		Subject: func(topic string) string { return "acme." + topic },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer publisher.Close()
	fmt.Println(publisher.Publish("orders", message.NewMessage("order-17", []byte(`{"order":17}`))))
	// Output: <nil>
}

// gateway is one in this process, for the examples alone.
func gateway(environ ...string) (url string, stop func()) {
	dir, err := os.MkdirTemp("", "flowgate")
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := settings.Load(append([]string{
		"FLOWGATE_DATA_DIR=" + dir, "FLOWGATE_NATS_LISTEN=127.0.0.1:0", "FLOWGATE_INGRESS_HTTP_LISTEN=off", "FLOWGATE_ADMIN_LISTEN=off",
	}, environ...))
	if err != nil {
		log.Fatal(err)
	}
	g, err := app.New(app.Options{Config: cfg})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})
	<-g.Ready()
	url, _ = g.Addr()
	return url, func() {
		cancel()
		running.Wait()
		_ = os.RemoveAll(dir)
	}
}
