package ingress

import (
	"net"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// pipe makes in-process connections that a test can hold up.
type pipe struct {
	to *server.Server
	// swallow has what is written lost on the way; block has writing hang.
	swallow, block atomic.Bool
	// lose has messages without headers lost, as a store that cannot write does: it
	// neither stores nor answers, while it goes on refusing by the expected sequence.
	lose    atomic.Bool
	release chan struct{}

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
	if h.p.lose.Load() {
		n := len(b)
		_, err := h.Conn.Write(plainPublish.ReplaceAll(b, nil))
		return n, err
	}
	return h.Conn.Write(b)
}

// plainPublish is a publish into the backlog of a payload without line breaks.
var plainPublish = regexp.MustCompile(`(?m)^PUB flowgate\.backlog\.[^\r\n]*\r\n[^\r\n]*\r\n`)
