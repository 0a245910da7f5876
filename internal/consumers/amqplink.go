//go:build !noamqp

package consumers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// amqpLink is a connection to an AMQP broker, made when it is needed and again when
// it is lost, and its channels, each of which is used by one publish at a time.
type amqpLink struct {
	url      brokerURL
	secure   *tls.Config
	timeout  time.Duration
	channels int

	mu   sync.Mutex
	conn *amqpConn // nil: none
	shut bool
}

// amqpConn is one connection.
type amqpConn struct {
	*amqp.Connection
	raw  net.Conn
	idle chan *amqpChannel
}

// amqpChannel is a channel in confirm mode.
type amqpChannel struct {
	*amqp.Channel
	conn    *amqpConn
	returns chan amqp.Return
	closes  chan *amqp.Error
}

// take gives a channel.
func (l *amqpLink) take(ctx context.Context) (*amqpChannel, error) {
	conn, err := l.connection(ctx)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case ch := <-conn.idle:
			if !ch.IsClosed() {
				return ch, nil
			}
			continue
		default:
		}
		// Opening one waits for the broker without end.
		stop := context.AfterFunc(ctx, conn.cut)
		ch, err := conn.open()
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			conn.cut()
		}
		return ch, err
	}
}

// connection gives the connection, and makes it if there is none.
func (l *amqpLink) connection(ctx context.Context) (*amqpConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return nil, errors.New("closed")
	}
	if err := ctx.Err(); err != nil { // it has waited for another to connect in vain
		return nil, err
	}
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, nil
	}
	l.conn = nil
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	l.conn = conn
	return conn, nil
}

func (l *amqpLink) dial(ctx context.Context) (*amqpConn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", l.url.hosts[0])
	if err != nil {
		return nil, err
	}
	raw = bounded{raw, l.timeout}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	stream := raw
	if l.secure != nil {
		secured := tls.Client(raw, l.secure)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		stream = secured
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("flowgate")
	conn, err := amqp.Open(stream, amqp.Config{
		SASL:       []amqp.Authentication{&amqp.PlainAuth{Username: l.url.user, Password: l.url.password}},
		Vhost:      l.url.path,
		Heartbeat:  10 * time.Second,
		Properties: properties,
	})
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return &amqpConn{conn, raw, make(chan *amqpChannel, l.channels)}, nil
}

// bounded is a connection whose writes end: a broker that runs short of memory stops
// to read, and the client would wait for it without end.
type bounded struct {
	net.Conn
	timeout time.Duration
}

func (b bounded) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(b.timeout)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}

// cut ends a connection at once; all that waits on it fails.
func (c *amqpConn) cut() { _ = c.raw.Close() }

func (c *amqpConn) open() (*amqpChannel, error) {
	ch, err := c.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("confirm mode: %w", err)
	}
	return &amqpChannel{ch, c, ch.NotifyReturn(make(chan amqp.Return, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))}, nil
}

// giveBack keeps a channel for the next.
func (l *amqpLink) giveBack(ch *amqpChannel) {
	select {
	case ch.conn.idle <- ch:
	default:
		_ = ch.Close()
	}
}

// drop gives up a channel on which something failed. If the broker has not answered
// in time, its connection goes too: a late answer must not be taken for the next one's.
func (l *amqpLink) drop(ch *amqpChannel, silent bool) {
	if silent {
		ch.conn.cut()
		return
	}
	_ = ch.Close()
}

// fits refuses what would not fit in the protocol's frames and break the connection
// for all.
func (ch *amqpChannel) fits(m amqp.Publishing) error {
	const around = 2048 // the other properties, and the frame
	size := around
	for k, v := range m.Headers {
		if len(k) > shortString {
			return fmt.Errorf("the header %.32q… has a name of %d bytes; AMQP takes %d", k, len(k), shortString)
		}
		if s, ok := v.(string); ok {
			size += len(k) + len(s) + 8
		}
	}
	if most := ch.conn.Config.FrameSize; most > 0 && size > most {
		return fmt.Errorf("the headers have %d bytes; the broker takes %d (frame_max)", size-around, most-around)
	}
	return nil
}

// publish returns once the broker has confirmed the message. What no queue takes comes
// back before its confirmation.
func (ch *amqpChannel) publish(ctx context.Context, exchange, key string, m amqp.Publishing) error {
	const mandatory = true
	sent, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, mandatory, false, m)
	if err != nil {
		return ch.cause(err)
	}
	confirmed, err := sent.WaitContext(ctx)
	if err != nil {
		return fmt.Errorf("no confirmation: %w", err)
	}
	if !confirmed {
		return ch.cause(errors.New("the broker refused the message"))
	}
	select {
	case r := <-ch.returns:
		return fmt.Errorf("%w: %s (exchange %q, key %q)", errUnroutable, r.ReplyText, exchange, key)
	default:
		return nil
	}
}

// cause is why a channel was closed, or err if it was not.
func (ch *amqpChannel) cause(err error) error {
	if !ch.IsClosed() {
		return err
	}
	select {
	case e := <-ch.closes:
		if e != nil {
			return e
		}
	default:
	}
	return err
}

// Close ends the connection, and with it what still waits for the broker.
func (l *amqpLink) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	if l.conn == nil {
		return nil
	}
	defer l.conn.cut()
	if err := l.conn.CloseDeadline(time.Now().Add(time.Second)); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("amqp: close: %w", err)
	}
	return nil
}
