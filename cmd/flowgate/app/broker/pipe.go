package broker

import (
	"bytes"
	"net"

	"github.com/nats-io/nats.go"
)

// inProcess makes connections into the embedded server that hear why it refuses
// them.
//
// The pipe between them has no buffer, and a client writes its PING after it has
// written who it is. A server that refuses it does not read that: it writes why,
// and both would wait for the other until the server's deadline, ten seconds later,
// and the reason is lost.
type inProcess struct{ nats.InProcessConnProvider }

// InProcessConn implements nats.InProcessConnProvider.
func (p inProcess) InProcessConn() (net.Conn, error) {
	c, err := p.InProcessConnProvider.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &pipe{Conn: c}, nil
}

// pipe sends the first PING, its second write, apart. Nothing overtakes it: the
// client writes no more before it has read the answer.
type pipe struct {
	net.Conn
	writes int // up to 2
}

// Write implements net.Conn. nats.go writes from one goroutine at a time.
func (p *pipe) Write(b []byte) (int, error) {
	if p.writes < 2 {
		p.writes++
		if p.writes == 2 && string(b) == "PING\r\n" {
			ping := bytes.Clone(b)
			// It ends with the answer or with the connection, which shows any error.
			go func() { _, _ = p.Conn.Write(ping) }()
			return len(b), nil
		}
	}
	return p.Conn.Write(b)
}
