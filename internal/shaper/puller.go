package shaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// The pull requests' own bounds.
const (
	pullExpires   = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	// The server drops a connection for which more than 64 MiB wait. Two requests may be
	// open at a time; one carries at least one of the largest messages.
	pullBytes = 16 << 20
)

// puller hands out a consumer's messages, of which so many are asked for at a time.
//
// The client library's iterator does not ask again if the last message it is owed is
// taken while its request is still being sent: with an empty index beside a full stream,
// nothing left the gateway for 30 s then. And it drops what its channel has no room for.
// Here who takes the messages asks for them, and the subscription drops nothing.
type puller struct {
	nc        *nats.Conn
	sub       *nats.Subscription
	subject   string
	ask, owed int // how many are asked for, and not handed out yet
	bytes     int // what one request may carry
	// oversize: the next message did not fit into what was left of a request, and is
	// asked for alone and without a bound: the payload limit it was stored under may be
	// gone.
	oversize bool
	// silence looks each two heartbeats whether anything was heard; to set a timer back
	// at each message would cost as much as to take it in.
	silence *time.Timer
	heard   atomic.Bool
}

var errSilent = errors.New("the broker has been silent for two heartbeats")

// newPuller asks for ask messages of the consumer; silent is called once the broker
// does not show any more that it knows of that.
func newPuller(nc *nats.Conn, stream, consumer string, ask int, silent func(error)) (*puller, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	p := &puller{nc: nc, sub: sub, subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer, ask: ask}
	p.bytes = max(pullBytes, int(nc.MaxPayload())+64<<10)
	p.silence = time.AfterFunc(time.Hour, func() {
		if !p.heard.Swap(false) {
			silent(errSilent)
			return
		}
		p.silence.Reset(2 * pullHeartbeat)
	})
	p.silence.Reset(2 * pullHeartbeat)
	// What is asked for bounds what can wait here.
	if err := errors.Join(sub.SetPendingLimits(-1, -1), p.request()); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *puller) stop() {
	p.silence.Stop()
	_ = p.sub.Unsubscribe() // fails only if the connection is gone
}

// request asks for more once half of it was handed out.
func (p *puller) request() error {
	batch, bytes := p.ask-p.owed, p.bytes
	switch {
	case p.oversize:
		batch, bytes = 1, 0
	case p.owed > p.ask/2:
		return nil
	}
	body, err := json.Marshal(struct {
		Expires   time.Duration `json:"expires"`
		Batch     int           `json:"batch"`
		Bytes     int           `json:"max_bytes,omitempty"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullExpires, batch, bytes, pullHeartbeat})
	if err != nil {
		return err
	}
	p.owed += batch
	p.oversize = false
	return p.nc.PublishRequest(p.subject, p.sub.Subject, body)
}

// next waits for a message. It fails if ctx ends, or if the consumer is gone or moved.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	for {
		if err := p.request(); err != nil {
			return nil, err
		}
		m, err := p.sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		p.heard.Store(true)
		if m.Reply != "" {
			p.owed--
			return m, nil
		}
		if err := p.told(m); err != nil {
			return nil, err
		}
	}
}

// told takes a word from the broker about a request of ours. It says nothing if a
// request's bytes come out even before its number: what that leaves open counts as owed
// until the feed begins anew, with the silence at the latest.
func (p *puller) told(m *nats.Msg) error {
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	switch {
	case status == "100": // a heartbeat
		return nil
	case status == "409" && description == "Message Size Exceeds MaxBytes":
		p.oversize = true
	case status == "408", status == "409" && description == "Batch Completed":
	default:
		return fmt.Errorf("pull: %s %s", status, description)
	}
	// The request is over, and so many of it were not handed out.
	n, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err != nil || n < 0 {
		return fmt.Errorf("pull: the broker ended a request without the number of messages it leaves open: %q", m.Header)
	}
	p.owed = max(0, p.owed-n)
	return nil
}
