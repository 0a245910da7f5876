package ingress

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// refuse answers and counts; the worker, the sweeper and the subscription call it.
func (n *NATS) refuse(in incoming, tenant string, r *Refusal) {
	reply := in.msg.Reply
	if !in.web && n.door.mute(reply) {
		n.metrics.muted.Inc()
		return
	}
	n.metrics.refuse(tenant, in.transport(), r, in.at)
	n.witness(in, tenant, r, in.at, true)
	if n.deps.Tracer != nil {
		n.traceRefusal(in, tenant, r)
	}
	if reply != "" {
		n.answer(reply, r)
	}
}

// unanswered stands in for a broker that does not answer.
func (n *NATS) unanswered(reply string) {
	n.metrics.unconfirmed.Inc()
	if reply != "" {
		n.answer(reply, unconfirmed())
	}
}

func unconfirmed() *Refusal {
	return &Refusal{Reason: Overloaded, Text: "the broker did not confirm; the message may be stored", Wait: overloadWait}
}

// answer refuses; a reply subject of the gateway's own stands for somebody who waits
// elsewhere, and the door lets no message over NATS have one.
func (n *NATS) answer(reply string, r *Refusal) {
	if !n.callers.answer(reply, outcome{refused: r}) {
		n.pass(reply, outcome{refused: r})
	}
}

// pass sends an answer to a reply subject.
func (n *NATS) pass(reply string, o outcome) {
	m := &nats.Msg{Subject: reply, Data: o.ack}
	if o.refused != nil {
		nak := n.naks.Get().(*nakMessage)
		defer n.naks.Put(nak) // the client has copied it
		m = nak.of(o.refused, reply, n.deps.Stream)
	}
	// A failure means that the connection is gone, and the producer's with it.
	if err := n.deps.Receive.PublishMsg(m); err != nil {
		n.log.Debug("answer not sent", "error", err)
	}
}

// hearAnswers subscribes to what the broker answers to the gateway's own inbox.
func (n *NATS) hearAnswers() (*nats.Subscription, error) {
	sub, err := n.deps.Answers.Subscribe(n.callers.inbox+"*", func(m *nats.Msg) {
		n.callers.answer(m.Subject, outcome{ack: m.Data})
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // as many as there are messages under way
	}
	if err == nil {
		err = n.deps.Answers.FlushTimeout(openTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("ingress: subscribe to %s*: %w", n.callers.inbox, err)
	}
	return sub, nil
}
