package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure" // rate_limit
	"github.com/redpanda-data/benthos/v4/public/service"
)

// benthosPeer is a stream of Benthos on the same work queue.
type benthosPeer struct {
	workQueue
	// bySecond lets a second's messages go at its beginning.
	bySecond bool
	stream   *service.Stream
	ended    chan error
}

func benthosVersion() string {
	return versionOf("github.com/redpanda-data/benthos/v4") + ", " + natsVersion()
}

// jetStreamInput is the least that reads a consumer.
type jetStreamInput struct {
	consumer jetstream.Consumer
	ahead    int
	messages jetstream.MessagesContext
}

func (i *jetStreamInput) Connect(context.Context) (err error) {
	i.messages, err = i.consumer.Messages(jetstream.PullMaxMessages(i.ahead))
	return err
}

func (i *jetStreamInput) Read(ctx context.Context) (*service.Message, service.AckFunc, error) {
	m, err := i.messages.Next(jetstream.NextContext(ctx))
	switch {
	case errors.Is(err, jetstream.ErrMsgIteratorClosed):
		return nil, nil, service.ErrEndOfInput
	case err != nil:
		return nil, nil, err
	}
	return service.NewMessage(m.Data()), func(_ context.Context, failed error) error { return settle(m, failed) }, nil
}

func (i *jetStreamInput) Close(context.Context) error {
	if i.messages != nil {
		i.messages.Stop()
	}
	return nil
}

// databaseOutput calls the database.
type databaseOutput struct {
	write func(ctx context.Context, payload []byte) error
}

func (databaseOutput) Connect(context.Context) error { return nil }
func (databaseOutput) Close(context.Context) error   { return nil }
func (o databaseOutput) Write(ctx context.Context, m *service.Message) error {
	body, err := m.AsBytes()
	if err != nil {
		return err
	}
	return o.write(ctx, body)
}

func (p *benthosPeer) Start(ctx context.Context, s setup) error {
	if err := p.open(ctx, s); err != nil {
		return err
	}
	c, err := p.consumer(ctx, s)
	if err != nil {
		return err
	}
	env := service.NewEnvironment()
	err = errors.Join(
		env.RegisterInput("peers_jetstream", service.NewConfigSpec(), func(*service.ParsedConfig, *service.Resources) (service.Input, error) {
			return &jetStreamInput{consumer: c, ahead: s.Ahead}, nil
		}),
		env.RegisterOutput("peers_database", service.NewConfigSpec(), func(*service.ParsedConfig, *service.Resources) (service.Output, int, error) {
			return databaseOutput{s.Write}, s.Workers, nil
		}),
	)
	if err != nil {
		return err
	}
	b := env.NewStreamBuilder()
	if err := b.SetYAML(p.config(s)); err != nil {
		return err
	}
	if p.stream, err = b.Build(); err != nil {
		return err
	}
	p.ended = make(chan error, 1)
	go func() { p.ended <- p.stream.Run(ctx) }()
	return nil
}

func (p *benthosPeer) config(s setup) string {
	const frame = `
http: {enabled: false}
logger: {level: ERROR}
input: {peers_jetstream: {}}
output: {peers_database: {}}
pipeline:
  threads: 1
  processors: [%s]
`
	if s.Rate == 0 {
		return fmt.Sprintf(frame, "")
	}
	count, interval := 1, s.interval()
	if p.bySecond {
		count, interval = s.Rate, time.Second
	}
	return fmt.Sprintf(frame, "{rate_limit: {resource: database}}") + fmt.Sprintf(`
rate_limit_resources:
  - label: database
    local: {count: %d, interval: %s}
`, count, interval)
}

func (p *benthosPeer) Close() error {
	var err error
	if p.stream != nil {
		err = errors.Join(p.stream.StopWithin(3*time.Second), <-p.ended)
	}
	p.close()
	return err
}
