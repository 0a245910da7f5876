package ingress

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

func sized(id, bytes int) incoming { return ofTenant("", id, bytes) }

// ofTenant is a message that is as long as bytes, or as its subject.
func ofTenant(tenant string, id, bytes int) incoming {
	m := &nats.Msg{Subject: fmt.Sprint(id)}
	if tenant != "" {
		m.Subject = fmt.Sprintf("ingress.%s.%d", tenant, id)
	}
	m.Data = make([]byte, max(0, bytes-len(m.Subject)))
	return incoming{msg: m, at: int64(id)}
}

// The queue against a slice a tenant, and a slice of whose turn it is.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxMessages := rapid.IntRange(1, 3000).Draw(t, "messages")
		maxBytes := rapid.IntRange(1, 100_000).Draw(t, "bytes")
		q := newQueue(maxMessages, maxBytes, "ingress.")
		model, turn := map[string][]incoming{}, []string{}
		bytes, n, next := 0, 0, 0
		taken := func(t *rapid.T, tenant string, got incoming) {
			want := model[tenant][0]
			if got.msg != want.msg {
				t.Fatalf("got %s, want %s", got.msg.Subject, want.msg.Subject)
			}
			bytes -= want.msg.Size()
			n--
			model[tenant] = model[tenant][1:]
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				tenant := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant")
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					in := ofTenant(tenant, next, rapid.IntRange(1, 400).Draw(t, "size"))
					next++
					greedy := len(model[tenant]) > 0 && n >= maxMessages/2 && 2*len(model[tenant]) > n && len(turn) > 1
					want := n < maxMessages && (n == 0 || bytes+in.msg.Size() <= maxBytes) && !greedy
					if q.push(in) != want {
						t.Fatalf("push with %d messages and %d bytes: %v", n, bytes, !want)
					}
					if want {
						if len(model[tenant]) == 0 {
							turn = append(turn, tenant)
						}
						model[tenant] = append(model[tenant], in)
						bytes += in.msg.Size()
						n++
					}
				}
			},
			"pop": func(t *rapid.T) {
				for range min(n, rapid.IntRange(1, 300).Draw(t, "n")) {
					got, ok := q.pop()
					if !ok {
						t.Fatal("nothing")
					}
					tenant := turn[0]
					turn = turn[1:]
					if taken(t, tenant, got); len(model[tenant]) > 0 {
						turn = append(turn, tenant)
					}
				}
			},
			"popBefore": func(t *rapid.T) {
				before := int64(rapid.IntRange(0, next+1).Draw(t, "instant"))
				got, ok := q.popBefore(before)
				i := slices.IndexFunc(turn, func(tenant string) bool { return model[tenant][0].at < before })
				if ok != (i >= 0) {
					t.Fatalf("popBefore(%d): %v", before, ok)
				}
				if ok {
					if taken(t, turn[i], got); len(model[turn[i]]) == 0 {
						turn = slices.Delete(turn, i, i+1)
					}
				}
			},
			"": func(t *rapid.T) {
				if q.len() != n || q.bytes != bytes || len(q.lines) != len(turn) {
					t.Fatalf("%d messages of %d bytes in %d lines, want %d of %d in %d", q.len(), q.bytes, len(q.lines), n, bytes, len(turn))
				}
			},
		})
	})
}

// A flood delays another tenant's message by one of its own.
func TestQueueTakesTurns(t *testing.T) {
	q := newQueue(1000, 1<<20, "ingress.")
	for i := range 500 {
		q.push(ofTenant("hog", i, 0))
	}
	q.push(ofTenant("quiet", 500, 0))
	for n := 1; ; n++ {
		in, _ := q.pop()
		if q.tenant(in) == "quiet" {
			if n > 2 {
				t.Errorf("it came %dth", n)
			}
			return
		}
	}
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
	if len(q.lines) != 0 {
		t.Errorf("an empty queue remembers %d tenants", len(q.lines))
	}
}
