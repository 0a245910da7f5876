package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// The front door's own bounds: what was received and not yet decided.
const (
	queueMessages = 1 << 15
	queueBytes    = 64 << 20
	sweepEvery    = 100 * time.Millisecond
	// overloadWait is the hint when the gateway or the broker cannot keep up.
	overloadWait = time.Second
	// lastAnswers bounds the wait for the broker's answers to what it has confirmed.
	lastAnswers = 500 * time.Millisecond
	// openTimeout bounds the server's word on the subscription.
	openTimeout = 10 * time.Second
)

// Deps are what the NATS front door works with.
type Deps struct {
	// Receive takes the producers' messages and answers them; Forward carries
	// the admitted ones. Apart, so that refusing goes on when forwarding stalls.
	Receive, Forward *nats.Conn
	// Answers hears the broker's answers that are meant for the gateway itself.
	// Apart too, so that a flood does not delay them; nil: Receive.
	Answers *nats.Conn

	Limits       Limits
	Backpressure Backpressure
	// Confirmed is told how many forwarded messages went through the stream, and
	// the stream's last sequence at that moment; it may be nil.
	Confirmed func(forwarded, lastSeq uint64)
	// Witness hears of every decision; it may be nil.
	Witness Witness
	// Recorder hears of every message while it records; it may be nil.
	Recorder Recorder

	// Name is the gateway's subject space and queue group, Stream the backlog
	// stream, Backlog its subject prefix; neither ends in a dot.
	Name, Stream, Backlog string
	// StoredCanary: the stream has replicas.
	StoredCanary bool

	// Tracer makes spans of what is decided; nil: there are none.
	Tracer Tracer
	// Mode is what becomes of the decisions of Limits and Backpressure.
	Mode Mode
	// Clock reads monotonic nanoseconds.
	Clock func() int64
	// TenantLabel bounds the tenants that metrics name; KnownTenant gives only
	// labels that there are, for what was refused. nil: all.
	TenantLabel, KnownTenant func(tenant string) string
	Registerer               prometheus.Registerer
	Logger                   *slog.Logger
}

// NATS is the front door for NATS producers.
type NATS struct {
	deps     Deps
	door     Door
	queue    *queue
	forward  *Forwarder
	holding  *holding
	callers  *callers
	metrics  *metrics
	log      *slog.Logger
	draining atomic.Bool
	opened   chan struct{}
	// stirred: the sweep runs, or was just told to by stir.
	stirred atomic.Bool
	stir    chan struct{}
	naks    sync.Pool
}

// New makes the NATS front door; nothing starts before Run. A file of API keys is
// read at once.
func New(cfg Config, deps Deps) (*NATS, error) {
	all := func(t string) string { return t }
	if deps.TenantLabel == nil {
		deps.TenantLabel = all
	}
	if deps.KnownTenant == nil {
		deps.KnownTenant = all
	}
	n := &NATS{
		deps:    deps,
		queue:   newQueue(queueMessages, queueBytes, cfg.Prefix+"."),
		metrics: newMetrics(deps.Registerer, deps.TenantLabel, deps.KnownTenant),
		log:     deps.Logger.With("component", "ingress"),
		opened:  make(chan struct{}),
		stir:    make(chan struct{}, 1),
		naks:    sync.Pool{New: func() any { return new(nakMessage) }},
	}
	if deps.Answers == nil {
		n.deps.Answers = deps.Receive
	}
	inbox := n.deps.Answers.NewInbox()
	if !under(inbox, deps.Name) {
		// A producer over NATS could have answers sent there.
		return nil, fmt.Errorf("ingress: the inbox %s is not among the gateway's own subjects %s.>", inbox, deps.Name)
	}
	n.callers = newCallers(inbox, deps.Clock, n.pass)
	keys, err := openAPIKeys(cfg.APIKeysFile, n.log)
	if err != nil {
		return nil, err
	}
	if keys != nil {
		keys.register(deps.Registerer)
	}
	n.door = Door{
		keys: keys, mode: deps.Mode,
		prefix: cfg.Prefix + ".", ingress: cfg.Prefix,
		backlog: deps.Backlog + ".", own: deps.Name,
		maxPayload: int(cfg.MaxPayload),
		tenants:    cfg.Tenants,
		limits:     deps.Limits, pressure: deps.Backpressure,
		shut: n.shut,
	}
	n.forward = newForwarder(deps.Forward, deps.Backlog+".", deps.StoredCanary, deps.Clock, n.unanswered, n.confirmed())
	n.holding = newHolding(time.Duration(cfg.Hold), n.queue.nudge)
	n.metrics.queued(deps.Registerer, func() float64 { return float64(n.queue.len()) }, func() float64 { return float64(n.holding.len()) })
	return n, nil
}

// confirmed wraps the callback with the count of what the stream did not store:
// a duplicate, or a message refused by the broker's own limits.
func (n *NATS) confirmed() func(forwarded, lastSeq uint64, own bool) {
	var f0, l0 uint64
	return func(forwarded, lastSeq uint64, own bool) {
		stored := lastSeq - l0
		if own {
			stored-- // the canary itself is one of what was stored
		}
		if sent := forwarded - f0; l0 > 0 && sent > stored {
			n.metrics.unstored.Add(float64(sent - stored))
		}
		f0, l0 = forwarded, lastSeq
		if n.deps.Confirmed != nil {
			n.deps.Confirmed(forwarded, lastSeq)
		}
	}
}

// Opened is closed once producers are heard.
func (n *NATS) Opened() <-chan struct{} { return n.opened }

// Drain has every further message refused with reason draining.
func (n *NATS) Drain() { n.draining.Store(true) }

// Silent reports whether the broker does not confirm what is forwarded.
func (n *NATS) Silent() bool { return n.forward.silent.Load() }

// Forwarded is how many messages went to the broker so far.
func (n *NATS) Forwarded() uint64 { return n.forward.sent.Load() }

// Refused counts what was refused since the start, by reason.
func (n *NATS) Refused() map[Reason]uint64 { return n.metrics.refusals() }

// RefusedRate is how many messages a second were refused over the last seconds.
func (n *NATS) RefusedRate() float64 { return n.metrics.refusedRate(n.deps.Clock()) }

func (n *NATS) shut() *Refusal {
	if n.draining.Load() {
		return draining()
	}
	if n.forward.silent.Load() {
		return &Refusal{Reason: Overloaded, Text: "the broker does not confirm", Wait: overloadWait}
	}
	if !n.forward.ready() {
		return &Refusal{Reason: Overloaded, Text: "the broker does not keep up", Wait: overloadWait}
	}
	return nil
}

func draining() *Refusal {
	return &Refusal{Reason: Draining, Text: "this gateway is shutting down", Wait: 0}
}

// Run takes messages until ctx ends; then it works off what it received and
// waits for the broker to confirm, so that every producer has its answer. It
// fails if the connection is closed for good.
func (n *NATS) Run(ctx context.Context) error {
	closed := n.deps.Receive.StatusChanged(nats.CLOSED)
	defer n.deps.Receive.RemoveStatusListener(closed)
	closedForward := n.deps.Forward.StatusChanged(nats.CLOSED)
	defer n.deps.Forward.RemoveStatusListener(closedForward)

	if err := n.forward.listen(); err != nil {
		return err
	}
	answers, err := n.hearAnswers()
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }()
	sub, err := n.deps.Receive.QueueSubscribe(n.door.prefix+">", n.deps.Name, n.receive)
	if err != nil {
		return fmt.Errorf("ingress: subscribe to %s>: %w", n.door.prefix, err)
	}
	// The library must never drop: the bound is our queue's, which answers.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("ingress: lift the client's pending limits: %w", err)
	}

	if err := n.deps.Receive.FlushTimeout(openTimeout); err != nil {
		return fmt.Errorf("ingress: subscribe to %s>: %w", n.door.prefix, err)
	}

	var background, worker sync.WaitGroup
	run, stop := context.WithCancel(context.Background())
	background.Go(func() { n.forward.watch(run) })
	background.Go(func() { n.sweep(run) })
	if n.door.keys != nil {
		background.Go(func() { n.door.keys.watch(run) })
	}
	worker.Go(n.work)
	close(n.opened)

	select {
	case <-ctx.Done():
	case <-closed:
		err = errors.New("ingress: the NATS connection was closed for good")
	case <-closedForward:
		err = errors.New("ingress: the forwarding connection was closed for good")
	}
	n.draining.Store(true)
	if err == nil {
		drain(sub)
	}
	n.queue.close()
	worker.Wait()
	// The sweep gives up on each message by itself, so this ends.
	await(n.forward.settled)
	stop()
	end := time.Now().Add(lastAnswers)
	await(func() bool { return n.callers.none() || time.Now().After(end) }) // they are on their way
	background.Wait()
	_ = n.deps.Receive.FlushTimeout(time.Second)
	return err
}

// drain ends the subscription once all that was under way to it is received; to
// unsubscribe would drop what the library holds.
func drain(sub *nats.Subscription) {
	done := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(done) })
	if sub.Drain() != nil {
		return // there is no connection
	}
	select {
	case <-done:
	case <-time.After(time.Second):
		_ = sub.Unsubscribe()
	}
}

// await looks until done says so.
func await(done func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		<-tick.C
	}
}

// receive runs on the subscription's goroutine and must not block.
func (n *NATS) receive(m *nats.Msg) {
	n.enter(incoming{msg: m, at: n.deps.Clock()})
}

// enter queues a message, or answers it at once; it never blocks.
func (n *NATS) enter(in incoming) {
	if r := n.deps.Recorder; r != nil && r.Recording() {
		n.record(in)
	}
	if !n.queue.push(in) {
		r := &Refusal{Reason: Overloaded, Text: "the gateway cannot keep up", Wait: overloadWait}
		if in.web && n.draining.Load() {
			r = draining()
		}
		n.refuse(in, "", r)
		return
	}
	if !n.stirred.Load() && n.stirred.CompareAndSwap(false, true) {
		n.stir <- struct{}{} // has room: the sweep took the one before
	}
}

func (n *NATS) work() {
	defer n.holding.stop()
	for {
		in, ok := n.queue.pop()
		switch {
		case !ok:
			for { // the queue is closed: nobody is let in any more
				m, ok := n.holding.takeBefore(math.MaxInt64)
				if !ok {
					return
				}
				n.unhold(m, draining())
			}
		case in.msg == nil:
			n.release()
		default:
			n.handle(in)
		}
	}
}

func (n *NATS) handle(in incoming) {
	now := n.deps.Clock()
	if !in.web && n.door.mute(in.msg.Reply) {
		n.metrics.muted.Inc()
		return
	}
	v := n.door.read(in, time.Now)
	if v.refused == nil {
		ahead, behind := n.holding.ahead(v.tenant)
		n.door.judge(in, &v, now, ahead, time.Now)
		if (behind && v.refused == nil || v.refused.passing()) && n.holding.put(heldMessage{in: in, v: v}, v.refused.wait(), now) {
			return
		}
		if behind && v.refused == nil { // there is no room to hold it, and it must not overtake
			v.refused = &Refusal{Reason: Overloaded, Text: "the gateway cannot keep up", Wait: overloadWait}
		}
	}
	n.conclude(in, &v, now)
	if n.metrics.timed() {
		n.metrics.decided(n.deps.Clock() - now)
	}
}

// release lets in what was held until now, or holds it on, or refuses it.
func (n *NATS) release() {
	for {
		now := n.deps.Clock()
		m, ok := n.holding.take(now)
		if !ok {
			return
		}
		n.door.judge(m.in, &m.v, now, 0, time.Now)
		if m.v.refused.passing() && n.holding.again(m, m.v.refused.Wait, now) {
			continue
		}
		if m.v.refused != nil {
			n.unhold(m, m.v.refused)
			continue
		}
		n.metrics.held.WithLabelValues("admitted").Inc()
		n.conclude(m.in, &m.v, now)
	}
}

// unhold refuses a message that was held.
func (n *NATS) unhold(m heldMessage, r *Refusal) {
	n.metrics.held.WithLabelValues("refused").Inc()
	n.refuse(m.in, m.v.tenant, r)
}

// conclude forwards a message that was decided on at the instant now, or refuses it.
func (n *NATS) conclude(in incoming, v *verdict, now int64) {
	if v.refused == nil {
		if n.deps.Tracer != nil {
			n.trace(&in, v)
		}
		if strings.HasPrefix(v.out.Reply, importReply) {
			v.out.Reply = n.callers.relay(v.out.Reply, in.at)
		}
		err := n.forward.forward(v.out, in.at, now)
		if !errors.Is(err, errUnconfirmed) {
			n.deps.Backpressure.Enter(now, v.ask, v.out.Size())
		}
		if err != nil {
			n.log.Debug("forwarding failed", "error", err)
			v.refused = &Refusal{Reason: Overloaded, Text: "the broker does not keep up", Wait: overloadWait}
			if !in.web {
				n.callers.forget(v.out.Reply)
			}
		}
	}
	if v.refused != nil {
		n.refuse(in, v.tenant, v.refused)
		return
	}
	if in.traced != nil {
		in.traced(nil)
	}
	n.metrics.admit(v.tenant, in.transport())
	if n.deps.Witness != nil {
		n.deps.Witness.Admitted(now, v.tenant)
	}
	if v.shadow != nil {
		n.witness(in, v.tenant, v.shadow, now, false)
		n.metrics.spare(v.tenant, in.transport(), v.shadow)
	}
}
