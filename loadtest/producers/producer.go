// Package producers publishes as a flowgate user's services do: with ordinary
// JetStream clients, at their own pace, whatever the answers. Open loop: a slow
// answer does not slow the next message.
package producers

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/loadtest/invariants"
)

// Plan says how many messages should have been published so long after the start.
type Plan func(elapsed time.Duration) int

// Steady is a constant rate a second.
func Steady(rate float64) Plan {
	return func(elapsed time.Duration) int { return int(rate * elapsed.Seconds()) }
}

// Bursts is n messages at once at first, and again after each period.
func Bursts(n int, first, period time.Duration) Plan {
	return func(elapsed time.Duration) int {
		if elapsed < first {
			return 0
		}
		return n * (1 + int((elapsed-first)/period))
	}
}

// Producer is one service of one tenant.
type Producer struct {
	Tenant, Topic string
	Plan          Plan
	// Obeys: it waits as long as a NAK says and then tries again under the same id;
	// otherwise what is refused is forgotten.
	Obeys bool
	// Prefix begins the message ids, and Size is the payload's least length in bytes.
	Prefix string
	Size   int
	// Ingress is the first subject token; empty: "ingress".
	Ingress string
}

// tick is how often a producer looks at its plan.
const tick = 2 * time.Millisecond

// Run publishes until ctx ends, then waits for the answers still out. js must have
// a publish-async timeout, or a lost answer is waited for in vain.
func (p Producer) Run(ctx context.Context, js jetstream.JetStream, ledger *invariants.Ledger) {
	if p.Ingress == "" {
		p.Ingress = "ingress"
	}
	start := time.Now()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var answers sync.WaitGroup
	defer answers.Wait()
	var mu sync.Mutex
	var again retries
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var due []try
		now := time.Now()
		mu.Lock()
		for len(again) > 0 && !again[0].at.After(now) {
			due = append(due, heap.Pop(&again).(try))
		}
		mu.Unlock()
		for ; n < p.Plan(now.Sub(start)); n++ {
			due = append(due, p.message(n))
		}
		for _, t := range due {
			p.publish(js, ledger, t, &answers, func(wait time.Duration) {
				mu.Lock()
				t.at = time.Now().Add(wait)
				heap.Push(&again, t)
				mu.Unlock()
			})
		}
	}
}

func (p Producer) message(n int) try {
	id := fmt.Sprintf("%s%06d", p.Prefix, n)
	payload := fmt.Sprintf(`{"tenant":%q,"n":%d,"nonce":%q}`, p.Tenant, n, rand.Text())
	if pad := p.Size - len(payload); pad > 0 {
		payload += strings.Repeat(" ", pad)
	}
	return try{id: id, payload: payload}
}

func (p Producer) publish(js jetstream.JetStream, ledger *invariants.Ledger, t try, answers *sync.WaitGroup, later func(time.Duration)) {
	ledger.Sent(p.Tenant, t.id, t.payload)
	msg := &nats.Msg{
		Subject: p.Ingress + "." + p.Tenant + "." + p.Topic, Data: []byte(t.payload),
		Header: nats.Header{nats.MsgIdHdr: {t.id}},
	}
	future, err := js.PublishMsgAsync(msg)
	if err != nil {
		ledger.Unsure(p.Tenant, t.id)
		return
	}
	answers.Go(func() {
		select {
		case <-future.Ok():
			ledger.Acked(p.Tenant, t.id)
		case err := <-future.Err():
			reason, wait := Answer(err)
			if reason == "" || reason == "overloaded" {
				ledger.Unsure(p.Tenant, t.id) // it may be stored after all
			} else {
				ledger.Refused(p.Tenant, reason)
			}
			if p.Obeys && (wait >= 0 || reason == "") {
				later(max(wait, tick))
			}
		}
	})
}

// try is a message to be published.
type try struct {
	id, payload string
	at          time.Time
}

// retries orders tries by time.
type retries []try

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(v any)        { *r = append(*r, v.(try)) }
func (r *retries) Pop() any {
	old := *r
	t := old[len(old)-1]
	*r = old[:len(old)-1]
	return t
}
