package ingress

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

func sized(id, bytes int) incoming {
	return incoming{msg: &nats.Msg{Subject: fmt.Sprint(id), Data: make([]byte, max(0, bytes-len(fmt.Sprint(id))))}, at: int64(id)}
}

// The queue against a slice.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxMessages := rapid.IntRange(1, 3000).Draw(t, "messages")
		maxBytes := rapid.IntRange(1, 100_000).Draw(t, "bytes")
		q := newQueue(maxMessages, maxBytes, "ingress.")
		var model []incoming
		bytes, next := 0, 0
		same := func(t *rapid.T, got incoming) {
			if got.msg != model[0].msg {
				t.Fatalf("got %s, want %s", got.msg.Subject, model[0].msg.Subject)
			}
			bytes -= model[0].msg.Size()
			model = model[1:]
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					in := sized(next, rapid.IntRange(1, 400).Draw(t, "size"))
					next++
					want := len(model) < maxMessages && (len(model) == 0 || bytes+in.msg.Size() <= maxBytes)
					if q.push(in) != want {
						t.Fatalf("push with %d messages and %d bytes: %v", len(model), bytes, !want)
					}
					if want {
						model = append(model, in)
						bytes += in.msg.Size()
					}
				}
			},
			"pop": func(t *rapid.T) {
				for range min(len(model), rapid.IntRange(1, 300).Draw(t, "n")) {
					got, ok := q.pop()
					if !ok {
						t.Fatal("nothing")
					}
					same(t, got)
				}
			},
			"popBefore": func(t *rapid.T) {
				before := int64(rapid.IntRange(0, next+1).Draw(t, "instant"))
				got, ok := q.popBefore(before)
				if want := len(model) > 0 && model[0].at < before; ok != want {
					t.Fatalf("popBefore(%d): %v", before, ok)
				}
				if ok {
					same(t, got)
				}
			},
			"": func(t *rapid.T) {
				if q.len() != len(model) || q.bytes != bytes {
					t.Fatalf("%d messages of %d bytes, want %d of %d", q.len(), q.bytes, len(model), bytes)
				}
			},
		})
	})
}

func TestQueueClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10, 1000, "ingress.")
		got := make(chan string, 10)
		go func() {
			for {
				in, ok := q.pop()
				if !ok {
					close(got)
					return
				}
				got <- in.msg.Subject
			}
		}()
		synctest.Wait() // it waits for a message
		q.push(sized(1, 1))
		if s := <-got; s != "1" {
			t.Errorf("got %s", s)
		}
		q.push(sized(2, 1)) // what is there when the queue closes comes out
		q.push(sized(3, 1))
		q.close()
		if q.push(sized(4, 1)) {
			t.Error("a closed queue took a message")
		}
		var rest []string
		for s := range got {
			rest = append(rest, s)
		}
		if fmt.Sprint(rest) != "[2 3]" {
			t.Errorf("after close: %v", rest)
		}
		q.close() // again
	})
}

// One oversized message passes through an empty queue: its producer is told by the
// door that it is too large, not that the gateway is overloaded.
func TestQueueOversized(t *testing.T) {
	q := newQueue(10, 100, "ingress.")
	if !q.push(sized(1, 500)) {
		t.Error("refused by an empty queue")
	}
	if q.push(sized(2, 1)) {
		t.Error("a second one was taken")
	}
}

// A producer, a worker and a sweeper at once: each message comes out once.
func TestQueueContention(t *testing.T) {
	const n = 20_000
	q := newQueue(1<<20, 1<<30, "ingress.")
	seen := make([]int, n)
	var mu sync.Mutex
	out := func(in incoming) { mu.Lock(); seen[in.at]++; mu.Unlock() }
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, ok := q.pop()
			if !ok {
				return
			}
			out(in)
		}
	})
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if in, ok := q.popBefore(n); ok {
				out(in)
			}
		}
	})
	m := &nats.Msg{Subject: "x"}
	for i := range n {
		if !q.push(incoming{msg: m, at: int64(i)}) {
			t.Fatal("full")
		}
	}
	q.close()
	close(stop)
	wg.Wait()
	for i, times := range seen {
		if times != 1 {
			t.Fatalf("message %d came out %d times", i, times)
		}
	}
}

// A tenant that floods the queue leaves room for others; alone it may have all of it.
func TestQueueKeepsRoomForOthers(t *testing.T) {
	q := newQueue(100, 1<<20, "ingress.")
	push := func(tenant string) bool {
		return q.push(incoming{msg: &nats.Msg{Subject: "ingress." + tenant + ".t"}})
	}
	for range 100 {
		if !push("flood") {
			t.Fatal("alone it was refused")
		}
	}
	for range 60 {
		q.pop()
	}
	if !push("polite") {
		t.Fatal("the other was refused")
	}
	flood := 0
	for push("flood") {
		flood++
	}
	if q.len() != 50 {
		t.Errorf("the flood filled the queue to %d of 100 beside another, want 50", q.len())
	}
	for i := range 40 {
		if !push(fmt.Sprint("polite", i%5)) {
			t.Fatalf("other %d was refused beside a flood", i)
		}
	}
	for range q.len() {
		q.pop()
	}
	if len(q.held) != 0 {
		t.Errorf("an empty queue remembers %d tenants", len(q.held))
	}
}
