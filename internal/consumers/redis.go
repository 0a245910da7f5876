//go:build !noredis

package consumers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func redisScheme() scheme {
	return scheme{[]string{"redis", "rediss"}, "redis://<host>/<db>?stream=<stream>", func(url string) error {
		_, _, _, err := parseRedisURL(url)
		return err
	}, openRedisURL}
}

func validRedisKey(name string) error {
	if name == "" || len(name) > 1024 {
		return errors.New("is no key for a stream: 1 to 1024 bytes")
	}
	return nil
}

// parseRedisURL takes redis://[[user]:password@]host[:port]/[<db>][?stream=<stream>];
// without a stream it is flowgate.
func parseRedisURL(text string) (u brokerURL, db int, stream template, err error) {
	if u, err = parseBrokerURL(text, "6379", "stream"); err != nil {
		return
	}
	if len(u.hosts) > 1 {
		err = errors.New("has several hosts; a Redis URL has one")
		return
	}
	if u.path != "" {
		if db, err = strconv.Atoi(u.path); err != nil || db < 0 {
			err = errors.New("has a path that is no number of a database, like redis://host/0")
			return
		}
	}
	name := u.query["stream"]
	if name == "" {
		name = defaultName
	}
	stream, err = parseTemplate("stream", name, validRedisKey)
	return
}

// silenceRedis keeps the client from writing to standard error by itself: what it has to
// say of a connection is in the error too. It has one logger for all.
var silenceRedis = sync.OnceFunc(func() { redis.SetLogger(unlogged{}) })

type unlogged struct{}

func (unlogged) Printf(context.Context, string, ...any) {}

func openRedisURL(_ context.Context, cfg Config, deps Deps) (Destination, error) {
	u, db, stream, err := parseRedisURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("FLOWGATE_CONSUMER_URL: %w", err)
	}
	secure, err := u.tls(u.hosts[0])
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	silenceRedis()
	lanes := lanesOf(cfg)
	client := redis.NewClient(&redis.Options{
		Addr: u.hosts[0], Username: u.user, Password: u.password, DB: db, TLSConfig: secure,
		ClientName: "flowgate",
		// The shaper repeats, at its pace. A message's context ends its call.
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: cfg.Timeout, ReadTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout,
		PoolSize:                 lanes,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NewSlogLogger(deps.Logger))
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("redis: %w", err)
	}
	return &broker{
		name: "redis", topic: stream, order: cfg.Order, lanes: make(chan struct{}, lanes),
		pub:   redisPublisher{pub},
		judge: func(err error) error { return redisVerdict(stream, err) },
		ping: func(ctx context.Context) error {
			if stream.varies {
				return client.Ping(ctx).Err()
			}
			kind, err := client.Type(ctx, stream.text).Result()
			if err == nil && kind != "none" && kind != "stream" {
				err = fmt.Errorf("the key %s is a %s, not a stream", stream.text, kind)
			}
			return err
		},
	}, nil
}

// redisPublisher is Watermill's, which fails for ever at a header of Watermill's own.
type redisPublisher struct{ message.Publisher }

func (p redisPublisher) Publish(topic string, ms ...*message.Message) error {
	for _, m := range ms {
		if m.Metadata.Get(redisstream.UUIDHeaderKey) != "" {
			return Permanent(fmt.Errorf("the header %s is Watermill's own", redisstream.UUIDHeaderKey))
		}
	}
	return p.Publisher.Publish(topic, ms...)
}

// redisVerdict sorts the errors of an XADD by their first word. Redis does not look at
// what a message says, so beside its size and its stream all faults are the server's.
func redisVerdict(stream template, err error) error {
	said, answered := errors.AsType[redis.Error](err)
	if !answered {
		if Judge(err).Kind == Retry {
			return Overloaded(0, err) // the connection, or the time
		}
		return err // one of ours
	}
	switch word, _, _ := strings.Cut(said.Error(), " "); word {
	case "WRONGTYPE", "NOPERM", "MOVED", "CROSSSLOT":
		return stream.blame(err)
	case "ERR":
		if strings.Contains(said.Error(), "Protocol error") || strings.Contains(said.Error(), "exceeds") {
			return Permanent(err) // proto-max-bulk-len
		}
	}
	// OOM, LOADING, READONLY, MISCONF, NOREPLICAS, NOAUTH, WRONGPASS, BUSY, MASTERDOWN…
	return Overloaded(0, err)
}
