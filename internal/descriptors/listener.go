package descriptors

import (
	"net"
	"sync"
	"sync/atomic"
)

// Crowded is what an HTTP client hears that is one too many.
const Crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

// Listener holds so many connections at most. What comes beyond is told so and closed:
// left in the system's queue it would wait for those who idle.
type Listener struct {
	net.Listener
	most  int64
	open  atomic.Int64
	words []byte
}

// Bound bounds a listener. words are said to a connection too many; with TLS there are
// none: a handshake would cost more than a request.
func Bound(l net.Listener, most int, words string) *Listener {
	return &Listener{Listener: l, most: int64(most), words: []byte(words)}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &conn{Conn: c, listener: l}, nil
		}
		l.open.Add(-1)
		_, _ = c.Write(l.words) // has room in an empty buffer
		_ = c.Close()
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
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
