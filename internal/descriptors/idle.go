package descriptors

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// idle are connections on which no request is under way, who has been so longest first.
type idle struct {
	mu    sync.Mutex
	order *list.List
	of    map[net.Conn]*list.Element
}

func newIdle() idle {
	return idle{order: list.New(), of: map[net.Conn]*list.Element{}}
}

// Yield has connections without a request give way to new ones once there are as many as
// may be; it is to be the server's ConnState. It suits servers whose clients ask again.
func (l *Listener) Yield(c net.Conn, state http.ConnState) {
	l.idle.mu.Lock()
	defer l.idle.mu.Unlock()
	if e := l.idle.of[c]; e != nil {
		l.idle.order.Remove(e)
		delete(l.idle.of, c)
	}
	if state == http.StateNew || state == http.StateIdle {
		l.idle.of[c] = l.idle.order.PushBack(c)
	}
}

// makeRoom closes the connection that has been idle longest; false: there is none.
func (l *Listener) makeRoom() bool {
	l.idle.mu.Lock()
	var c net.Conn
	if e := l.idle.order.Front(); e != nil {
		c = l.idle.order.Remove(e).(net.Conn)
		delete(l.idle.of, c)
	}
	l.idle.mu.Unlock()
	if c == nil {
		return false
	}
	_ = c.Close()
	return true
}
