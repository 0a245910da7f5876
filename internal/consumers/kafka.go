//go:build !nokafka

package consumers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rcrowley/go-metrics"
)

func kafkaScheme() scheme {
	return scheme{[]string{"kafka", "kafkas"}, "kafka://<host>,<host>/<topic>", func(url string) error {
		_, _, err := parseKafkaURL(url)
		return err
	}, openKafkaURL}
}

// kafkaTopic is what Kafka takes for a topic's name.
var kafkaTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func validKafkaTopic(name string) error {
	if !kafkaTopic.MatchString(name) || name == "." || name == ".." {
		return errors.New("is no Kafka topic: 1 to 249 of A-Z a-z 0-9 . _ -")
	}
	return nil
}

// parseKafkaURL takes kafka://[user:password@]host[:port][,…]/[<topic>]; without a
// topic it is flowgate. A user signs in with SASL PLAIN.
func parseKafkaURL(text string) (brokerURL, template, error) {
	u, err := parseBrokerURL(text, "9092")
	if err != nil {
		return u, template{}, err
	}
	topic := u.path
	if topic == "" {
		topic = defaultName
	}
	t, err := parseTemplate("topic", topic, validKafkaTopic)
	return u, t, err
}

func openKafkaURL(_ context.Context, cfg Config, deps Deps) (Destination, error) {
	u, topic, err := parseKafkaURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	client, err := kafkaConfig(u, cfg.Timeout)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return &broker{
		name: "kafka", topic: topic, order: cfg.Order, lanes: make(chan struct{}, lanesOf(cfg)),
		pub:   &kafkaPublisher{hosts: u.hosts, client: client, log: watermill.NewSlogLogger(deps.Logger)},
		judge: func(err error) error { return kafkaVerdict(topic, err) },
		ping: func(context.Context) error {
			c, err := sarama.NewClient(u.hosts, client)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			if topic.varies {
				return nil
			}
			if _, err := c.Partitions(topic.text); err != nil {
				return fmt.Errorf("topic %s: %w", topic.text, err)
			}
			return nil
		},
	}, nil
}

// kafkaConfig is the client's configuration: confirmed by all replicas in sync, and
// every wait of it within timeout, an attempt's. It repeats a publish twice at most, for
// a leader that has moved or a connection that was lost; the rest is the shaper's.
func kafkaConfig(u brokerURL, timeout time.Duration) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = "flowgate"
	c.MetricRegistry = unmetered{metrics.NewRegistry()}
	wait := max(timeout/2, 10*time.Millisecond)
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = wait, wait, wait
	c.Net.MaxOpenRequests = 1
	c.Metadata.Timeout = wait
	c.Metadata.Full = false
	c.Metadata.Retry.Max = 1
	c.Metadata.Retry.Backoff = wait / 10
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Timeout = wait
	c.Producer.Retry.Max = 2
	c.Producer.Retry.Backoff = wait / 50
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewHashPartitioner
	// The broker's limit is the one that counts.
	c.Producer.MaxMessageBytes = int(sarama.MaxRequestSize) - 1
	if u.signIn {
		c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, sarama.SASLTypePlaintext
		c.Net.SASL.User, c.Net.SASL.Password = u.user, u.password
	}
	if u.secure() {
		var err error
		c.Net.TLS.Enable = true
		if c.Net.TLS.Config, err = u.tls(u.hosts[0]); err != nil {
			return nil, err
		}
		c.Net.TLS.Config.ServerName = "" // each broker's own
	}
	return c, c.Validate()
}

// unmetered makes none of the client's meters: nobody reads them, and the first
// would start a goroutine that never ends.
type unmetered struct{ metrics.Registry }

func (r unmetered) GetOrRegister(name string, made any) any {
	switch made.(type) {
	case func() metrics.Meter:
		return metrics.NilMeter{}
	case func() metrics.Histogram:
		return metrics.NilHistogram{}
	}
	return r.Registry.GetOrRegister(name, made)
}

// kafkaPublisher is Watermill's, made at first use: it connects when it is made.
type kafkaPublisher struct {
	hosts  []string
	client *sarama.Config
	log    watermill.LoggerAdapter

	using sync.RWMutex // held to write by Close: the client panics if it is used after
	mu    sync.Mutex
	made  *kafka.Publisher
	shut  bool // guarded by using
}

func (p *kafkaPublisher) publisher() (*kafka.Publisher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != nil {
		return p.made, nil
	}
	// A tenant's messages have one key, and so one partition, which is what Kafka
	// keeps in order.
	byTenant := kafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
		return m.Metadata.Get(tenantHeader), nil
	})
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: p.hosts, Marshaler: byTenant, OverwriteSaramaConfig: p.client}, p.log)
	if err != nil {
		return nil, err
	}
	p.made = pub
	return pub, nil
}

// Publish implements message.Publisher.
func (p *kafkaPublisher) Publish(topic string, ms ...*message.Message) error {
	p.using.RLock()
	defer p.using.RUnlock()
	if p.shut {
		return Overloaded(0, errors.New("closed"))
	}
	for _, m := range ms {
		if m.Metadata.Get(kafka.UUIDHeaderKey) != "" {
			return Permanent(fmt.Errorf("the header %s is Watermill's own", kafka.UUIDHeaderKey))
		}
	}
	pub, err := p.publisher()
	if err != nil {
		return err
	}
	return pub.Publish(topic, ms...)
}

// Close waits for calls that run; the client's timeouts bound them.
func (p *kafkaPublisher) Close() error {
	p.using.Lock()
	defer p.using.Unlock()
	p.shut = true
	if p.made == nil {
		return nil
	}
	return p.made.Close()
}

// kafkaVerdict sorts the errors of a publish. Kafka does not look at what a message
// says, so beside its size and its topic all faults are the broker's.
func kafkaVerdict(topic template, err error) error {
	switch {
	case Judge(err).Kind != Retry:
		return err // one of ours
	case errors.Is(err, sarama.ErrMessageSizeTooLarge), errors.Is(err, sarama.ErrMessageSetSizeTooLarge),
		errors.Is(err, sarama.ErrInvalidRecord):
		return Permanent(err)
	case errors.Is(err, sarama.ErrInvalidTopic), errors.Is(err, sarama.ErrUnknownTopicOrPartition),
		errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return topic.blame(err)
	}
	return Overloaded(0, err)
}
