package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Config says which gateway, and how much at once. The zero value is good for a gateway
// with default names.
type Config struct {
	// Prefix is the gateway's FLOWGATE_INGRESS_PREFIX; empty: ingress.
	Prefix string
	// Name is its FLOWGATE_NAME, which names the broadcast; empty: flowgate.
	Name string
	// Quiet: do not listen to the broadcast; for whom the NATS server does not permit it.
	Quiet bool
	// MaxInFlight bounds the messages that are published and not yet finished, those
	// that wait for a hint among them; more wait for room. 0: 1024.
	MaxInFlight int
	// TryTimeout is how long an answer is waited for before the message is sent again.
	// A gateway answers within 2 s. 0: 5 s.
	TryTimeout time.Duration
}

// Validate joins all that is wrong.
func (c Config) Validate() error {
	var errs []error
	for name, v := range map[string]string{"Prefix": c.Prefix, "Name": c.Name} {
		if strings.ContainsAny(v, " \t\r\n*>") || strings.Contains("."+v+".", "..") && v != "" {
			errs = append(errs, fmt.Errorf("client: %s: %q is not a subject", name, v))
		}
	}
	if c.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("client: MaxInFlight: %d is negative", c.MaxInFlight))
	}
	if c.TryTimeout < 0 {
		errs = append(errs, fmt.Errorf("client: TryTimeout: %s is negative", c.TryTimeout))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "ingress"
	}
	if c.Name == "" {
		c.Name = "flowgate"
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1024
	}
	if c.TryTimeout == 0 {
		c.TryTimeout = 5 * time.Second
	}
	return c
}

// ErrClosed is what a closed client returns, and Close gives to what is under way.
var ErrClosed = errors.New("client: closed")

// Client publishes through a gateway. It is safe for concurrent use. Clients of one
// process that publish for the same tenants should be one.
type Client struct {
	cfg   Config
	nc    *nats.Conn
	lanes *lanes
	ear   *ear // nil: quiet

	room   chan struct{}
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	pending sync.WaitGroup
}

// New makes a client that publishes over js's connection, and begins to listen to the
// broadcast. Close it before the connection.
func New(js jetstream.JetStream, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg.withDefaults(), nc: js.Conn(), lanes: newLanes()}
	c.room = make(chan struct{}, c.cfg.MaxInFlight)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if !cfg.Quiet {
		var err error
		if c.ear, err = listen(c.nc, c.cfg.Name+".pressure", c.lanes); err != nil {
			c.cancel()
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	return c, nil
}

// Close ends what is under way with ErrClosed and waits for that. To have everything
// stored first, wait for the futures.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.lanes.close()
	c.pending.Wait()
	if c.ear == nil {
		return nil
	}
	return c.ear.close()
}

// Subject is where a tenant's messages of a topic are published; the topic's tokens are
// parted by dots.
func (c *Client) Subject(tenant, topic string) string {
	return c.cfg.Prefix + "." + tenant + "." + topic
}

// Publish publishes data for a tenant, under an id of its own, and returns when it is
// stored. See PublishMsg.
func (c *Client) Publish(ctx context.Context, tenant, topic string, data []byte) (*jetstream.PubAck, error) {
	return c.PublishMsg(ctx, &nats.Msg{Subject: c.Subject(tenant, topic), Data: data})
}

// PublishMsg publishes m and returns when the broker has stored it; for as long as ctx
// lasts it obeys the gateway's hints and tries again. Without a Nats-Msg-Id m gets one.
// m is not changed.
//
// The error is a *Refused if no other try would help. If ctx ends, or would end before
// the hint has passed, the error is both ctx's and the last refusal's; in the latter
// case it is returned at once. After ErrOverloaded, or without any answer, the message
// may be stored all the same, and publishing it again under its id is safe.
func (c *Client) PublishMsg(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer c.leave()
	return c.publish(ctx, c.newPublication(m))
}

// Future is a message on its way.
type Future struct {
	done chan struct{}
	ack  *jetstream.PubAck
	err  error
}

// Done is closed when the message is stored, or was given up.
func (f *Future) Done() <-chan struct{} { return f.done }

// Result waits for Done and returns what PublishMsg would.
func (f *Future) Result() (*jetstream.PubAck, error) {
	<-f.done
	return f.ack, f.err
}

// PublishMsgAsync is PublishMsg, but returns when the message is on its way; it waits
// for room if MaxInFlight messages are. ctx is the message's, to its end; m is not to be
// changed before.
func (c *Client) PublishMsgAsync(ctx context.Context, m *nats.Msg) *Future {
	f := &Future{done: make(chan struct{})}
	if err := c.enter(ctx); err != nil {
		f.err = err
		close(f.done)
		return f
	}
	p := c.newPublication(m)
	go func() {
		defer c.leave()
		defer close(f.done)
		f.ack, f.err = c.publish(ctx, p)
	}()
	return f
}

// enter waits for room.
func (c *Client) enter(ctx context.Context) error {
	select {
	case <-c.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	case c.room <- struct{}{}:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		<-c.room
		return ErrClosed
	}
	c.pending.Add(1)
	return nil
}

func (c *Client) leave() {
	<-c.room
	c.pending.Done()
}

// publish tries until p is stored, refused for good, or ctx ends.
func (c *Client) publish(ctx context.Context, p *publication) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()

	if err := c.inTurn(ctx, p); err != nil {
		return nil, p.ended(err)
	}
	for {
		p.tries++
		ack, err := c.try(ctx, p.msg)
		if err == nil {
			c.lanes.admitted(p.ticket)
			return ack, nil
		}
		if ctx.Err() != nil {
			return nil, p.ended(cause(ctx))
		}
		wait, again := p.failed(err)
		if !again {
			return nil, err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
			return nil, p.ended(fmt.Errorf("the next try would be in %s: %w", wait, context.DeadlineExceeded))
		}
		if refused, ok := err.(*Refused); ok && refused.Reason == ErrRateLimited {
			key := laneKey{refused.Scope, p.key(refused.Scope)}
			c.lanes.refused(key, p.ticket, refused.Limit, wait, time.Now())
			err = c.await(ctx, key, p)
		} else {
			err = sleep(ctx, wait)
		}
		if err != nil {
			return nil, p.ended(err)
		}
	}
}

// try asks the gateway once.
func (c *Client) try(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.TryTimeout)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, err
	}
	return read(reply.Data)
}

// inTurn waits, before the first try, where messages like p wait already, and, if the
// gateway would refuse p, for its turn at the tenant's part of the rate.
func (c *Client) inTurn(ctx context.Context, p *publication) error {
	for _, scope := range scopes {
		if key, ok := p.applies(scope); ok && c.lanes.join(key, p.ticket, time.Now()) {
			p.why = ErrRateLimited
			if err := c.await(ctx, key, p); err != nil {
				return err
			}
		}
	}
	if c.ear == nil {
		return nil
	}
	if gap, told := c.ear.slow(p.tenant); told {
		key := laneKey{pressure, p.tenant}
		p.why = ErrBacklog
		c.lanes.slow(key, p.ticket, gap, time.Now())
		return c.await(ctx, key, p)
	}
	return nil
}

// await waits in line.
func (c *Client) await(ctx context.Context, key laneKey, p *publication) error {
	select {
	case <-p.ticket.ready:
		return nil
	case <-ctx.Done():
		c.lanes.leave(key, p.ticket)
		return cause(ctx)
	}
}

// cause is why ctx ended: its own error, or that the client was closed.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); err == ErrClosed {
		return err
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	}
}

// publication is a message on its way.
type publication struct {
	msg                   *nats.Msg
	tenant, service, user string
	apiKey                string
	ticket                *ticket
	tries                 int
	// failures counts those in a row that came without a time to wait.
	failures int
	last     error  // what the last try brought
	why      Reason // what it waited for before the first
}

// The headers that limits look at.
const (
	userHeader   = "Flowgate-User"
	apiKeyHeader = "Flowgate-Api-Key"
	costHeader   = "Flowgate-Cost"
)

func (c *Client) newPublication(m *nats.Msg) *publication {
	own := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
	for k, v := range m.Header {
		own.Header[k] = v
	}
	if own.Header.Get(jetstream.MsgIDHeader) == "" {
		own.Header.Set(jetstream.MsgIDHeader, nuid.Next())
	}
	p := &publication{msg: own, user: own.Header.Get(userHeader), apiKey: own.Header.Get(apiKeyHeader)}
	rest, _ := strings.CutPrefix(m.Subject, c.cfg.Prefix+".")
	p.tenant, rest, _ = strings.Cut(rest, ".")
	p.service, _, _ = strings.Cut(rest, ".")
	cost, err := strconv.Atoi(own.Header.Get(costHeader))
	if err != nil {
		cost = 1
	}
	p.ticket = c.lanes.ticket(float64(min(max(cost, 1), 1_000_000)))
	return p
}

// scopes are those whose key a message shows.
var scopes = [...]string{"gateway", "service", "tenant", "user", "api_key"}

// key is p's in a scope.
func (p *publication) key(scope string) string {
	switch scope {
	case "service":
		return p.service
	case "tenant":
		return p.tenant
	case "user":
		return p.user
	case "api_key":
		return p.apiKey
	}
	return ""
}

func (p *publication) applies(scope string) (laneKey, bool) {
	key := p.key(scope)
	return laneKey{scope, key}, key != "" || scope == "gateway"
}

// failed says after what time to try again, if at all.
func (p *publication) failed(err error) (wait time.Duration, again bool) {
	p.last = err
	if refused, ok := err.(*Refused); ok {
		switch {
		case refused.final():
			return 0, false
		case refused.RetryAfter > 0 && refused.Reason != ErrOverloaded:
			p.failures = 0
			return refused.RetryAfter, true
		}
		p.failures++
		if wait = max(0, refused.RetryAfter); refused.Reason == ErrDraining && p.failures == 1 {
			return wait, true // at once: another gateway may be there
		}
		return wait + backoff(p.failures), true
	}
	for _, passing := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded, nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrStaleConnection,
	} {
		if errors.Is(err, passing) {
			p.failures++
			return backoff(p.failures), true
		}
	}
	return 0, false
}

// ended is the error of a message that was given up for cause.
func (p *publication) ended(cause error) error {
	switch {
	case p.last != nil:
		return fmt.Errorf("not stored after %d tries: %w; the last brought: %w", p.tries, cause, p.last)
	case p.why != "":
		return fmt.Errorf("not stored: %w while it waited before its first try: %w", cause, p.why)
	}
	return fmt.Errorf("not stored: %w", cause)
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// backoff is exponential with full jitter, for whoever was given no time to wait.
func backoff(failures int) time.Duration {
	most := min(minBackoff<<min(failures-1, 10), maxBackoff)
	return time.Duration(rand.Int64N(int64(most))) + time.Millisecond
}
