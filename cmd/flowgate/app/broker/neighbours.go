package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// IngressKey is the metadata of a gateway's micro service that says which subjects
// it answers.
const IngressKey = "flowgate.ingress"

// listenTime is how long neighbours have to answer; within a data centre they take
// milliseconds.
const listenTime = 250 * time.Millisecond

// Neighbour is another gateway on the same NATS.
type Neighbour struct{ Name, Ingress string }

// Answering finds gateways of other names that answer subjects below ingress: a
// producer would get two answers. It takes 250 ms, and finds those that run.
func Answering(ctx context.Context, nc *nats.Conn, name, ingress string) ([]Neighbour, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("look for other gateways: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest("$SRV.INFO", sub.Subject, nil); err != nil {
		return nil, fmt.Errorf("look for other gateways: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	var found []Neighbour
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("look for other gateways: %w", err)
		}
		var info struct {
			Name     string            `json:"name"`
			Metadata map[string]string `json:"metadata"`
		}
		if json.Unmarshal(m.Data, &info) != nil || info.Name == name {
			continue // no service, or ours: the lease is for that
		}
		if other := info.Metadata[IngressKey]; other != "" && overlap(other, ingress+".>") {
			found = append(found, Neighbour{info.Name, other})
		}
	}
}
