package broker

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// inProcess makes connections into the embedded server whose writes are buffered,
// as the kernel does for TCP.
//
// The server's own pipe has no buffer: a write ends when the other side has read it
// all. A client that writes a buffer of publishes would stand still with its lock
// held until the server has worked them off (measured: 0.80 of raw JetStream for
// async producers, 1.0 with a buffer); and one that writes its PING while the
// server writes why it refuses it would wait with it for the deadline, ten seconds
// later, and never hear why.
type inProcess struct{ nats.InProcessConnProvider }

// InProcessConn implements nats.InProcessConnProvider.
func (p inProcess) InProcessConn() (net.Conn, error) {
	c, err := p.InProcessConnProvider.InProcessConn()
	if err != nil {
		return nil, err
	}
	return newPipe(c), nil
}

// Bounds of a pipe's buffer, of which there are two, and of the time they have to
// empty when it is closed.
const (
	pipeBuffer = 256 << 10
	pipeLinger = time.Second
)

// pipe is a connection with a buffer for what it writes.
type pipe struct {
	net.Conn

	mu       sync.Mutex
	changed  sync.Cond
	waiting  []byte // written and not sent
	spare    []byte // the buffer that was sent before
	closed   bool
	err      error // of the sending; it ends it
	deadline time.Time
}

func newPipe(c net.Conn) *pipe {
	p := &pipe{Conn: c}
	p.changed.L = &p.mu
	go p.send()
	return p
}

// send passes on what is written until the pipe is closed.
func (p *pipe) send() {
	defer func() { _ = p.Conn.Close() }()
	for {
		p.mu.Lock()
		for len(p.waiting) == 0 && !p.closed {
			p.changed.Wait()
		}
		chunk := p.waiting
		p.waiting, p.spare = p.spare[:0], nil
		p.mu.Unlock()
		if len(chunk) == 0 {
			return // closed, and all is sent
		}
		_, err := p.Conn.Write(chunk)
		p.mu.Lock()
		p.spare = chunk
		p.err = err
		p.mu.Unlock()
		p.changed.Broadcast()
		if err != nil {
			return
		}
	}
}

// Write implements net.Conn: it waits for room and not for the other side.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 && len(p.waiting)+len(b) > pipeBuffer && p.err == nil && !p.closed {
		if !p.deadline.IsZero() {
			left := time.Until(p.deadline)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			timer := time.AfterFunc(left, p.changed.Broadcast)
			p.changed.Wait()
			timer.Stop()
			continue
		}
		p.changed.Wait()
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case p.closed:
		return 0, net.ErrClosed
	}
	p.waiting = append(p.waiting, b...)
	p.changed.Broadcast()
	return len(b), nil
}

// SetWriteDeadline implements net.Conn.
func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	p.deadline = t
	p.mu.Unlock()
	p.changed.Broadcast()
	return nil
}

// SetDeadline implements net.Conn.
func (p *pipe) SetDeadline(t time.Time) error {
	_ = p.SetWriteDeadline(t)
	return p.SetReadDeadline(t)
}

// Close implements net.Conn. What was written is sent first, if the other side
// reads it.
func (p *pipe) Close() error {
	p.mu.Lock()
	already := p.closed
	p.closed = true
	p.mu.Unlock()
	if already {
		return nil
	}
	err := p.Conn.SetWriteDeadline(time.Now().Add(pipeLinger))
	p.changed.Broadcast()
	return err
}
