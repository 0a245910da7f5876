package ingress

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// pipe makes in-process connections that a test can hold up.
type pipe struct {
	to *server.Server
	// swallow has what is written lost on the way; block has writing hang.
	swallow, block atomic.Bool
	release        chan struct{}

	mu   sync.Mutex
	last net.Conn
}

func (p *pipe) InProcessConn() (net.Conn, error) {
	c, err := p.to.InProcessConn()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = &held{c, p}
	return p.last, nil
}

// cut breaks the connection.
func (p *pipe) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.last.Close()
}

type held struct {
	net.Conn
	p *pipe
}

func (h *held) Write(b []byte) (int, error) {
	if h.p.block.Load() {
		<-h.p.release
	}
	if h.p.swallow.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}
