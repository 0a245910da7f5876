package producers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/loadtest/invariants"
)

// patience is how long a client waits for an answer.
const patience = 5 * time.Second

// read is what an error of a JetStream publish told.
func read(err error) (told string, wait time.Duration) {
	if err == nil {
		return invariants.Acked, 0
	}
	if reason, wait := Answer(err); reason != "" {
		return reason, wait
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected) {
		return invariants.Nobody, 0
	}
	return invariants.NoAnswer, 0
}

func message(ingress string, m Message) *nats.Msg {
	msg := &nats.Msg{Subject: ingress + "." + m.Tenant + "." + m.Topic, Data: m.Payload}
	if m.ID != "" {
		msg.Header = nats.Header{nats.MsgIdHdr: {m.ID}}
	}
	return msg
}

// Anonymous gives messages to a client without their ids.
func Anonymous(c Client) Client { return anonymous{c} }

type anonymous struct{ client Client }

// Publish implements Client.
func (a anonymous) Publish(m Message, done func(string, time.Duration)) {
	m.ID = ""
	a.client.Publish(m, done)
}

// Async publishes on one connection without waiting.
type Async struct {
	js      jetstream.JetStream
	ingress string
}

// NewAsync makes one; the connection is the caller's.
func NewAsync(nc *nats.Conn, ingress string) (*Async, error) {
	// So many may be under way that the client itself never waits for one.
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(patience), jetstream.WithPublishAsyncMaxPending(1<<20))
	return &Async{js, ingress}, err
}

// Publish implements Client.
func (a *Async) Publish(m Message, done func(string, time.Duration)) {
	future, err := a.js.PublishMsgAsync(message(a.ingress, m), jetstream.WithRetryAttempts(0))
	if err != nil {
		done(read(err))
		return
	}
	go func() {
		select {
		case <-future.Ok():
			done(invariants.Acked, 0)
		case err := <-future.Err():
			done(read(err))
		}
	}()
}

// NoReply publishes on one connection and is told nothing.
type NoReply struct {
	nc      *nats.Conn
	ingress string
}

// NewNoReply makes one; the connection is the caller's.
func NewNoReply(nc *nats.Conn, ingress string) *NoReply { return &NoReply{nc, ingress} }

// Publish implements Client.
func (n *NoReply) Publish(m Message, done func(string, time.Duration)) {
	_ = n.nc.PublishMsg(message(n.ingress, m)) // who asks for nothing does not look
	done(invariants.NotAsked, 0)
}

// Workers publish with calls that block, so many at once; what comes meanwhile waits.
type Workers struct {
	call func(ctx context.Context, m Message) (told string, wait time.Duration)

	mu      sync.Mutex
	waiting []func()
	idle    int
}

// NewSync makes workers that publish to JetStream one message after the other.
func NewSync(nc *nats.Conn, ingress string, workers int) (*Workers, error) {
	js, err := jetstream.New(nc)
	return &Workers{idle: workers, call: func(ctx context.Context, m Message) (string, time.Duration) {
		_, err := js.PublishMsg(ctx, message(ingress, m), jetstream.WithRetryAttempts(0))
		return read(err)
	}}, err
}

// NewHTTP makes workers that post to an HTTP ingress.
func NewHTTP(base string, workers int) *Workers {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers}}
	return &Workers{idle: workers, call: func(ctx context.Context, m Message) (string, time.Duration) {
		url := fmt.Sprintf("%s/v1/messages/%s/%s", base, m.Tenant, strings.ReplaceAll(m.Topic, ".", "/"))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Payload))
		if err != nil {
			return invariants.NoAnswer, 0
		}
		if m.ID != "" {
			req.Header.Set("Idempotency-Key", m.ID)
		}
		r, err := client.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				return invariants.NoAnswer, 0
			}
			return invariants.Nobody, 0
		}
		defer func() { _, _ = io.Copy(io.Discard, r.Body); _ = r.Body.Close() }() // so that the connection is used again
		var problem struct {
			Reason string `json:"reason"`
			After  *int64 `json:"retry_after_ms"`
		}
		if r.StatusCode == http.StatusAccepted {
			return invariants.Acked, 0
		}
		if err := json.NewDecoder(r.Body).Decode(&problem); err != nil || problem.Reason == "" {
			return fmt.Sprintf("code_%d", r.StatusCode), -1
		}
		if problem.After == nil {
			return problem.Reason, -1
		}
		return problem.Reason, time.Duration(*problem.After) * time.Millisecond
	}}
}

// Publish implements Client.
func (w *Workers) Publish(m Message, done func(string, time.Duration)) {
	work := func() {
		m.Sent()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done(w.call(ctx, m))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == 0 {
		w.waiting = append(w.waiting, work)
		return
	}
	w.idle--
	go w.run(work)
}

// run does what there is, one after the other, as one of the workers.
func (w *Workers) run(work func()) {
	for work != nil {
		work()
		work = w.next()
	}
}

func (w *Workers) next() (work func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.idle++
		return nil
	}
	work = w.waiting[0]
	w.waiting = w.waiting[1:]
	return work
}
