// Publishes messages with the plain Go client and does what refusals ask:
//
//	go run ./docs/clients/go nats://127.0.0.1:4222 ingress.acme.orders order 3
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// readme:
var hint = regexp.MustCompile(`retry_after_ms=(\d+)$`)

func publish(ctx context.Context, js jetstream.JetStream, subject, id string, body []byte) (*jetstream.PubAck, error) {
	for {
		ack, err := js.Publish(ctx, subject, body, jetstream.WithMsgID(id))
		nak, ok := errors.AsType[*jetstream.APIError](err)
		if !ok {
			return ack, err // stored, or no answer
		}
		found := hint.FindStringSubmatch(nak.Description)
		if found == nil {
			return nil, err // waiting cannot help
		}
		log.Printf("%s: %d: %s", id, nak.ErrorCode, nak.Description)
		wait, err := time.ParseDuration(found[1] + "ms")
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(max(wait, 50*time.Millisecond)): // then again, under the same id
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), nak)
		}
	}
}

// :readme

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: go run . <url> <subject> <first part of the ids> <how many>")
	}
	nc, err := nats.Connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	n, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for i := range n {
		ack, err := publish(ctx, js, os.Args[2], fmt.Sprintf("%s-%d", os.Args[3], i), []byte(strconv.Itoa(i)))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ack.Stream, ack.Sequence)
	}
}
