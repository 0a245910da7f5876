package producers

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/loadtest/invariants"
)

// Pump publishes a schedule: each message at its instant, whatever became of those before
// it. Latency counts from that instant, also for what waits for a worker.
type Pump struct {
	Schedule iter.Seq[arrivals.Arrival]
	// Client is what publishes a tenant's messages, and what it does when it is refused.
	Client func(tenant string) (Client, Reaction)
	Record *invariants.Record
	// Ingress is the first subject token.
	Ingress string
	// First is the number of the first message's id.
	First int
}

// Client publishes one message; it does not block for the answer, which it gives to done.
type Client interface {
	Publish(m Message, done func(told string, wait time.Duration))
}

// Message is one to be published.
type Message struct {
	Tenant, Topic, ID string
	Payload           []byte
	// Sent is called when the client begins, which may be after it was given the message.
	Sent func()
}

// Reaction is what a producer does that is refused: it waits as long as it is told, gives up,
// or waits for a time of its own.
type Reaction struct {
	Forget bool
	After  time.Duration
}

// ID is that of the number'th message.
func ID(number int) string { return fmt.Sprintf("m%07d", number) }

// Payload is that of a message: its id, filled up.
func Payload(id string, bytes int) []byte {
	return []byte(id + strings.Repeat(".", max(0, bytes-len(id))))
}

// pumped is a message on its way.
type pumped struct {
	place    int
	m        Message
	due      time.Time
	client   Client
	reaction Reaction
}

// Run publishes until the schedule is over and who was refused has come back, or until ctx
// ends; then it waits for the answers still out. began is the schedule's beginning.
func (p Pump) Run(ctx context.Context, began time.Time) {
	var out sync.WaitGroup
	defer out.Wait()
	var mu sync.Mutex
	var again pending
	woken := make(chan struct{}, 1)
	under := 0 // way
	wake := func() {
		mu.Lock()
		under--
		mu.Unlock()
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	send := func(m *pumped) {
		out.Add(1)
		mu.Lock()
		under++
		mu.Unlock()
		sent := time.Now()
		m.m.Sent = func() { sent = time.Now() }
		m.client.Publish(m.m, func(told string, wait time.Duration) {
			defer out.Done()
			defer wake()
			now := time.Now()
			p.Record.Tell(invariants.Try{Message: m.place, Due: m.due.UnixNano(), Sent: sent.UnixNano(), Answered: now.UnixNano(), Told: told})
			if told == invariants.Acked || told == invariants.NotAsked || m.reaction.Forget {
				return
			}
			unanswered := told == invariants.NoAnswer || told == invariants.Nobody
			switch {
			case unanswered:
				wait = 100 * time.Millisecond
			case wait < 0:
				return // waiting cannot help
			case m.reaction.After > 0:
				wait = m.reaction.After
			}
			next := *m
			next.due = now.Add(max(wait, tick))
			mu.Lock()
			defer mu.Unlock()
			heap.Push(&again, &next)
		})
	}
	next, stop := iter.Pull(p.Schedule)
	defer stop()
	number := p.First
	coming, more := next()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		for more && !began.Add(coming.At).After(now) {
			m := p.message(coming, began.Add(coming.At), number)
			number++
			send(m)
			coming, more = next()
		}
		var due []*pumped
		mu.Lock()
		for len(again) > 0 && !again[0].due.After(now) {
			due = append(due, heap.Pop(&again).(*pumped))
		}
		wait := time.Hour
		if len(again) > 0 {
			wait = time.Until(again[0].due)
		}
		over := !more && under == 0 && len(again) == 0 && len(due) == 0
		mu.Unlock()
		if over {
			return
		}
		for _, m := range due {
			send(m)
		}
		if more {
			wait = min(wait, time.Until(began.Add(coming.At)))
		}
		timer.Reset(max(0, wait))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-woken:
		}
	}
}

func (p Pump) message(a arrivals.Arrival, due time.Time, number int) *pumped {
	id := ID(number)
	m := &pumped{due: due, m: Message{Tenant: a.Tenant, Topic: a.Topic, ID: id, Payload: Payload(invariants.RowID(a.Tenant, id), a.Bytes)}}
	m.client, m.reaction = p.Client(a.Tenant)
	m.place = p.Record.Send(invariants.Message{ID: invariants.RowID(a.Tenant, id), Tenant: a.Tenant, Due: due.UnixNano()})
	return m
}

// pending orders messages by the time at which they are tried again.
type pending []*pumped

func (p pending) Len() int           { return len(p) }
func (p pending) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p pending) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *pending) Push(v any)        { *p = append(*p, v.(*pumped)) }
func (p *pending) Pop() any {
	old := *p
	last := old[len(old)-1]
	*p = old[:len(old)-1]
	return last
}
