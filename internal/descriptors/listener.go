package descriptors

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Crowded is what an HTTP client hears that is one too many.
const Crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

const (
	// refusals is how many connections too many are told so at once; the rest is closed.
	refusals = 64
	// refusalTime is what one may take.
	refusalTime = time.Second
)

// Listener holds so many connections at most. What comes beyond is told so and closed:
// left in the system's queue it would wait for those who idle.
type Listener struct {
	net.Listener
	most  int64
	open  atomic.Int64
	words []byte
	idle  idle

	mu       sync.Mutex
	refused  map[net.Conn]struct{}
	closed   bool
	refusing sync.WaitGroup
}

// Bound bounds a listener. words are said to a connection too many; with TLS there are
// none: a handshake would cost more than a request.
func Bound(l net.Listener, most int, words string) *Listener {
	return &Listener{Listener: l, most: int64(most), words: []byte(words), idle: newIdle(), refused: map[net.Conn]struct{}{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most || l.makeRoom() {
			return &conn{Conn: c, listener: l}, nil
		}
		l.open.Add(-1)
		l.refuse(c)
	}
}

// Close implements net.Listener; it ends the refusals under way.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	l.closed = true
	for c := range l.refused {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.refusing.Wait()
	return err
}

// refuse tells c that it is one too many, if few are being told.
func (l *Listener) refuse(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.words) == 0 || l.closed || len(l.refused) >= refusals {
		_ = c.Close()
		return
	}
	l.refused[c] = struct{}{}
	l.refusing.Go(func() {
		l.tell(c)
		l.mu.Lock()
		delete(l.refused, c)
		l.mu.Unlock()
		_ = c.Close()
	})
}

// tell answers once the client has asked: an answer that comes before its request a
// client takes for a fault of the connection (Go's does). What the client still sends
// is read, since a connection closed over unread bytes is reset, and the answer lost.
func (l *Listener) tell(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(refusalTime))
	sent := make([]byte, 4096)
	if _, err := c.Read(sent); err != nil {
		return
	}
	if _, err := c.Write(l.words); err != nil {
		return
	}
	_ = closeWrite(c)
	for {
		if _, err := c.Read(sent); err != nil {
			return
		}
	}
}

// conn gives its place back once.
type conn struct {
	net.Conn
	listener *Listener
	closed   sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Do(func() { c.listener.open.Add(-1) })
	return c.Conn.Close()
}

// CloseWrite lets the server end an answer before the client has sent all.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
