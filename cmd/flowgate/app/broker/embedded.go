package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// startTime bounds the embedded server's start after its store is read: what is
// left is to open its ports.
const startTime = 30 * time.Second

// Broker is the NATS in use. Its methods may be called from several goroutines.
type Broker struct {
	cfg Config
	// inbox begins the subjects on which the gateway's connections get answers.
	inbox string
	log   *slog.Logger

	server *server.Server // nil if it is not embedded
	opts   *server.Options
	logs   *serverLog
	lock   *os.File
	// password signs the gateway in to the embedded server; empty: as Config says.
	password string

	mu     sync.Mutex
	opened []*nats.Conn // guarded by mu
	// deny ends what Permitted gave; nil: nothing. Guarded by mu.
	deny context.CancelCauseFunc

	stop    sync.Once
	stopped chan struct{} // closed when everything is down
}

// Start starts the embedded server, and does nothing if Config names another one:
// the first Connect tells whether that is there. On an error nothing is left
// running and the data directory is free.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Broker, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, inbox: cfg.Name + ".inbox." + nuid.Next(), log: log.With("component", "broker"), stopped: make(chan struct{})}
	if cfg.URL != "" {
		// The default database is made in the data directory; only that needs it, and
		// says so if it is not there.
		_ = os.MkdirAll(cfg.DataDir, 0o750)
		return b, nil
	}
	var err error
	if b.lock, err = lockDir(cfg.DataDir); err != nil {
		return nil, err
	}
	if err := b.embed(ctx); err != nil {
		_ = b.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return b, nil
}

func (b *Broker) embed(ctx context.Context) error {
	opts, password, err := b.cfg.options()
	if err != nil {
		return err
	}
	b.opts, b.password = opts, password
	// The server opens its port after its store. A port in use should not take the
	// time that a large store does, nor touch it.
	if !opts.DontListen && opts.Port > 0 {
		l, err := net.Listen("tcp", net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port)))
		if err != nil {
			return fmt.Errorf("NATS client address (FLOWGATE_NATS_LISTEN): %w; stop what uses it, or set another address", err)
		}
		_ = l.Close()
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	b.server, b.logs = s, newServerLog(b.log, b.password != "")
	if b.cfg.Replies > 0 {
		b.logs.late = `Publish Violation - Subject "` + b.inbox + "."
	}
	s.SetLoggerV2(b.logs, false, false, false)
	s.Start()
	if err := b.await(ctx); err != nil {
		return err
	}
	if !s.JetStreamEnabled() {
		return fmt.Errorf("embedded NATS server: JetStream is not enabled; its store is %s", opts.StoreDir)
	}
	b.log.Debug("embedded NATS server started", "url", b.ClientURL(), "store", opts.StoreDir, "version", server.VERSION)
	return nil
}

// await waits until the server is ready. What would end a process of the server's
// own, a port in use or a store that cannot be written, ends the wait.
func (b *Broker) await(ctx context.Context) error {
	for end := time.Now().Add(startTime); ; {
		ready := b.server.ReadyForConnections(100 * time.Millisecond)
		select {
		case text := <-b.logs.fatal:
			return fmt.Errorf("embedded NATS server (FLOWGATE_DATA_DIR %s): %s", b.cfg.DataDir, text)
		default:
		}
		switch {
		case ready:
			b.logs.started.Store(true)
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("embedded NATS server: %w", context.Cause(ctx))
		case time.Now().After(end):
			return fmt.Errorf("embedded NATS server is not ready after %s", startTime)
		}
	}
}

// Embedded reports whether the server runs in this process and has its store to
// itself, so that it lives and dies with this process. It is false for a server that
// FLOWGATE_NATS_CONFIG puts into a cluster.
func (b *Broker) Embedded() bool { return b.server != nil && alone(b.opts) }

// ClientURL is where producers connect to, without what signs in; empty if that is
// in-process only.
func (b *Broker) ClientURL() string {
	switch {
	case b.server == nil:
		return redact(b.cfg.URL)
	case b.opts.DontListen:
		return ""
	}
	return b.server.ClientURL()
}

// errStopTime is what Close returns if its context ends first.
var errStopTime = errors.New("the embedded NATS server did not stop in time")

// Close closes the connections that Connect made, stops the embedded server and
// lets the data directory go. It may be called more than once; each call returns
// when everything is down, or with an error when its context ends.
func (b *Broker) Close(ctx context.Context) error {
	b.stop.Do(func() { go b.shutdown() })
	select {
	case <-b.stopped:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-b.stopped:
		return nil
	default:
		return errStopTime
	}
}

func (b *Broker) shutdown() {
	defer close(b.stopped)
	b.mu.Lock()
	opened := b.opened
	b.opened = nil
	b.mu.Unlock()
	for _, nc := range opened {
		nc.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
	if b.lock != nil {
		_ = b.lock.Close() // nothing was written that a failure could lose
	}
}
