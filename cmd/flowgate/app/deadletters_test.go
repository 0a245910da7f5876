package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

// poison refuses everything for good.
func poison(context.Context, consumers.Delivery) error {
	return consumers.Permanent(errors.New("no such column"))
}

// asked reads the answer to a request that must succeed.
func asked[T any](r *running, method, path, body string) (answer T) {
	r.t.Helper()
	code, text, _ := ask(r, method, path, body)
	if code != 200 {
		r.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// empty waits until nothing is in the backlog.
func (r *running) empty() {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if s, _ := r.Status(); s.Depth.Total == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("the backlog does not empty: %+v", r.settled().Depth)
		}
	}
}

// delivered is how often each id was, after the first n deliveries.
func (s *sink) delivered(n int) map[string]int {
	ids := map[string]int{}
	for _, d := range s.log()[n:] {
		ids[d.ID]++
	}
	return ids
}

// backlogHolds is what the stream itself says.
func (r *running) backlogHolds() uint64 {
	r.t.Helper()
	info, err := r.running().assets.Backlog.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return info.State.Msgs
}

// A message that the destination refuses, from its death to its delivery.
func TestADeadLetterIsRaised(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		r.sink.answers(poison)
		_, js := r.client()
		for _, m := range []*nats.Msg{
			{Subject: "ingress.acme.orders.new", Data: []byte("one"), Header: nats.Header{
				"Nats-Msg-Id": {"o-1"}, "X": {"a", "b"}, "Flowgate-Id": {"globex/1"}, "Flowgate-Deadline": {"1m"}, "Nats-Expected-Stream": {"FLOWGATE"},
			}},
			{Subject: "ingress.globex.orders", Data: []byte("\xff\x00")},
		} {
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		r.empty()
		time.Sleep(3 * time.Minute) // past its deadline, and past the window for ids
		if got := r.settled().DeadLetters; got != 2 {
			t.Fatalf("%d dead letters, want 2", got)
		}
		list := asked[DeadLetterList](r, "GET", "/api/v1/dead-letters", "")
		if len(list.DeadLetters) != 2 || list.Next != nil {
			t.Fatalf("%+v", list)
		}
		numbered, first := list.DeadLetters[0], list.DeadLetters[1]
		if first.Seq != 1 || first.ID != "acme/o-1" || first.Tenant != "acme" || first.Topic != "orders.new" || first.Class != "permanent" ||
			first.Error != "no such column" || first.Attempts != 1 || first.Bytes != 3 || first.AdmittedAt.IsZero() || time.Since(first.DiedAt) < 3*time.Minute {
			t.Errorf("%+v", first)
		}
		if !strings.HasPrefix(numbered.ID, "FLOWGATE@") || numbered.Seq != 2 {
			t.Errorf("%+v", numbered)
		}
		shown := asked[DeadLetterContent](r, "GET", "/api/v1/dead-letters/1", "")
		if shown.DeadLetter != first || shown.Payload != "one" || shown.Base64 || len(shown.Headers["X"]) != 2 || shown.Headers["Flowgate-Deadline"] == nil {
			t.Errorf("%+v", shown)
		}
		if shown := asked[DeadLetterContent](r, "GET", "/api/v1/dead-letters/2", ""); shown.Payload != "/wA=" || !shown.Base64 {
			t.Errorf("%+v", shown)
		}

		r.sink.answers(nil)
		n := len(r.sink.log())
		raised := asked[RaisedDeadLetter](r, "POST", "/api/v1/dead-letters/1/replay?author=ann&reason=mended", "")
		if raised.ID != "acme/o-1" || raised.BacklogSeq != 3 {
			t.Errorf("%+v", raised)
		}
		if p := asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", `{"all":true}`); p.Count != 1 || p.Next != nil {
			t.Errorf("%+v", p)
		}
		if s, _ := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters in the status", s.DeadLetters)
		}
		r.empty()
		got := r.sink.log()[n:]
		if len(got) != 2 {
			t.Fatalf("%d deliveries, want 2", len(got))
		}
		d, e := got[0], got[1]
		if d.ID != "acme/o-1" || d.Tenant != "acme" || d.Topic != "orders.new" || d.Attempt != 1 || string(d.Payload) != "one" || d.Seq != 3 || !d.Deadline.IsZero() {
			t.Errorf("%+v", d)
		}
		if h := fmt.Sprint(d.Headers); h != "map[Nats-Msg-Id:[o-1] X:[a b]]" {
			t.Errorf("headers %s", h)
		}
		if e.ID != numbered.ID || string(e.Payload) != "\xff\x00" || len(e.Headers) != 0 {
			t.Errorf("%+v", e)
		}
		if s := r.settled(); s.Depth.Total != 0 || s.DeadLetters != 0 || r.backlogHolds() != 0 {
			t.Errorf("%+v", s)
		}
		for _, path := range []string{"/api/v1/dead-letters/1/replay", "/api/v1/dead-letters/77/replay"} {
			if code, body, _ := ask(r, "POST", path, ""); code != 404 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	})
}

// It has all its attempts again, and what fails again is another dead letter.
func TestAReplayedMessageThatFailsAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=3")
		r.sink.answers(func(context.Context, consumers.Delivery) error { return errors.New("no luck") })
		_, js := r.client()
		if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil, jetstream.WithMsgID("o-1")); err != nil {
			t.Fatal(err)
		}
		r.empty()
		for seq := 1; seq <= 3; seq++ {
			l := asked[DeadLetterList](r, "GET", "/api/v1/dead-letters?class=attempts", "").DeadLetters
			if len(l) != 1 || l[0].Attempts != 3 || l[0].ID != "acme/o-1" || int(l[0].Seq) != seq {
				t.Fatalf("%+v", l)
			}
			if n := len(r.sink.log()); n != 3*seq {
				t.Errorf("%d attempts, want %d", n, 3*seq)
			}
			// Within the window for ids, and again.
			asked[RaisedDeadLetter](r, "POST", fmt.Sprintf("/api/v1/dead-letters/%d/replay", seq), "")
			r.empty()
		}
	})
}

// Replays go up to LOW and wait; producers are never refused on their account, and
// the depth is that of the stream all the time.
func TestReplayLeavesProducersTheirRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=50", "FLOWGATE_BACKPRESSURE_LOW=20", "FLOWGATE_SHAPER_RATE=20/s", "FLOWGATE_LIMIT_TENANT=unlimited")
		r.sink.answers(poison)
		_, js := r.client()
		for range 10 {
			r.admitted(js, "acme", 40)
			r.empty()
		}
		r.sink.answers(nil)
		n := len(r.sink.log())
		began := time.Now()
		total, most := uint64(0), uint64(0)
		body := `{"tenant":"acme","class":"permanent"}`
		done := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(300 * time.Millisecond):
				}
				if i%5 == 0 { // a producer among them
					r.admitted(js, "globex", 1)
				}
				s, _ := r.Status()
				most = max(most, s.Depth.Total)
				if s.Level != "normal" {
					t.Errorf("pressured at %d", s.Depth.Total)
				}
			}
		})
		for requests := 1; ; requests++ {
			p := asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", body)
			total += p.Count
			if p.Next == nil {
				if requests < 2 {
					t.Error("one request replayed all of it")
				}
				break
			}
			if p.Stopped != "" || !p.Waiting && p.Count == 0 {
				t.Fatalf("%+v", p)
			}
			next, err := json.Marshal(p.Next)
			if err != nil {
				t.Fatal(err)
			}
			body = string(next)
		}
		close(done)
		watch.Wait()
		if total != 400 || most > 22 || most < 15 {
			t.Errorf("%d replayed, the depth was up to %d", total, most)
		}
		if took := time.Since(began); took < 15*time.Second {
			t.Errorf("400 at 20/s took %s", took)
		}
		r.empty()
		for id, times := range r.sink.delivered(n) {
			if times != 1 {
				t.Errorf("%s was delivered %d times", id, times)
			}
		}
		if s := r.settled(); s.DeadLetters != 0 || r.backlogHolds() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Depth is right at once, before the outlet or a canary has told of anything, and
// while producers publish.
func TestDepthCountsReplays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_CONSUMER_TIMEOUT=1h", "FLOWGATE_LIMIT_TENANT=unlimited", "FLOWGATE_SHAPER_RATE=unlimited")
		r.sink.answers(poison)
		_, js := r.client()
		r.admitted(js, "acme", 300)
		r.empty()
		r.sink.answers(hangs)
		if p := asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", `{"to":100}`); p.Count != 100 {
			t.Errorf("%+v", p)
		}
		if s, _ := r.Status(); s.Depth.Total != 100 {
			t.Errorf("depth %d, want 100", s.Depth.Total)
		}
		var both sync.WaitGroup
		both.Go(func() { r.admitted(js, "acme", 200) })
		both.Go(func() { asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", `{"all":true}`) })
		both.Wait()
		synctest.Wait()
		if s := r.settled(); s.Depth.Total != 500 || r.backlogHolds() != 500 {
			t.Errorf("depth %d, want 500; the stream holds %d", s.Depth.Total, r.backlogHolds())
		}
	})
}

// At MAX the broker refuses: what was replayed is told, the rest stays.
func TestReplayIntoAFullBacklog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=10", "FLOWGATE_BACKPRESSURE_MAX=12", "FLOWGATE_CONSUMER_TIMEOUT=1h", "FLOWGATE_LIMIT_TENANT=unlimited")
		r.sink.answers(poison)
		_, js := r.client()
		r.admitted(js, "acme", 9)
		r.empty()
		r.sink.answers(hangs)
		r.admitted(js, "acme", 10)
		// One by one they may go up to MAX: it is what the operator asked for.
		for seq := 1; seq <= 4; seq++ {
			code, body, _ := ask(r, "POST", fmt.Sprintf("/api/v1/dead-letters/%d/replay", seq), "")
			if want := map[bool]int{true: 200, false: 503}[seq <= 2]; code != want {
				t.Errorf("%d: %d %s", seq, code, body)
			} else if code == 503 && !strings.Contains(body, "the backlog is full") {
				t.Errorf("%d: %s", seq, body)
			}
		}
		if s := r.settled(); s.DeadLetters != 7 || s.Depth.Total != 12 || r.backlogHolds() != 12 {
			t.Errorf("%+v", s)
		}
		// Many wait for room.
		p := asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", `{"all":true}`)
		if p.Count != 0 || !p.Waiting || p.Next == nil || p.Next.From != 3 || p.Next.To != 9 {
			t.Errorf("%+v", p)
		}
		r.sink.answers(nil)
	})
}

// Two who replay the same dead letters, one by one and all of them.
func TestReplayTwice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		r.sink.answers(poison)
		_, js := r.client()
		r.admitted(js, "acme", 50)
		r.empty()
		r.sink.answers(nil)
		n := len(r.sink.log())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", `{"all":true}`) })
		}
		all.Go(func() {
			for seq := 50; seq > 0; seq-- {
				if code, body, _ := ask(r, "POST", fmt.Sprintf("/api/v1/dead-letters/%d/replay", seq), ""); code != 200 && code != 404 {
					t.Errorf("%d: %d %s", seq, code, body)
				}
			}
		})
		all.Wait()
		r.empty()
		ids := r.sink.delivered(n)
		if len(ids) != 50 || len(r.sink.log())-n != 50 || r.settled().DeadLetters != 0 {
			t.Errorf("%d ids in %d deliveries, %d dead letters", len(ids), len(r.sink.log())-n, r.settled().DeadLetters)
		}
	})
}

// A request that is cut off anywhere, and made again, delivers once.
func TestReplayCutOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_CONSUMER_TIMEOUT=1h", "FLOWGATE_CONSUMER_CONCURRENCY=100")
		r.sink.answers(poison)
		_, js := r.client()
		r.admitted(js, "acme", 40)
		r.empty()
		release := make(chan struct{})
		r.sink.answers(func(ctx context.Context, _ consumers.Delivery) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		n := len(r.sink.log())
		js2 := r.control()
		published := 0
		for seq := uint64(1); seq <= 40; seq++ {
			if seq%2 == 0 {
				// The gateway died between the publish and the delete: what it had published
				// is in the backlog, the dead letter still there.
				stream, err := js2.Stream(t.Context(), "FLOWGATE_DLQ")
				if err != nil {
					t.Fatal(err)
				}
				m, err := stream.GetMsg(t.Context(), seq)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := js2.PublishMsg(t.Context(), &nats.Msg{Subject: "flowgate.backlog.acme.orders", Data: m.Data, Header: nats.Header{
					"Flowgate-Id": {m.Header.Get("Flowgate-Id")}, "Nats-Msg-Id": {consumers.ReplayID + m.Header.Get("Nats-Msg-Id")},
				}}); err != nil {
					t.Fatal(err)
				}
				published++
			} else {
				// The client left, at once or in the middle.
				ask(r, "POST", fmt.Sprintf("/api/v1/dead-letters/%d/replay", seq), "", func(q *http.Request) {
					ctx, cancel := context.WithCancel(q.Context())
					*q = *q.WithContext(ctx)
					if seq%4 == 1 {
						cancel()
					} else {
						go cancel()
					}
				})
			}
		}
		if p := asked[DeadLetterProgress](r, "POST", "/api/v1/dead-letters/replay", `{"all":true}`); p.Next != nil {
			t.Errorf("%+v", p)
		}
		close(release)
		r.empty()
		for id, times := range r.sink.delivered(n) {
			if times != 1 {
				t.Errorf("%s was delivered %d times", id, times)
			}
		}
		if got := len(r.sink.delivered(n)); got != 40 || r.settled().DeadLetters != 0 {
			t.Errorf("%d of 40 delivered, %d dead letters", got, r.settled().DeadLetters)
		}
	})
}

// A producer cannot pass its message off as a replay, nor as another's.
func TestAForgedID(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		_, js := r.client()
		for _, h := range []nats.Header{
			{"Flowgate-Id": {"globex/1"}},
			{"Flowgate-Id": {"globex/1"}, "Nats-Msg-Id": {"o-1"}},
			{"Flowgate-Id": {"globex/1"}, "Nats-Msg-Id": {"$replay/FLOWGATE@x/1"}},
		} {
			if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "ingress.acme.orders", Header: h}); err != nil {
				t.Fatal(err)
			}
		}
		r.empty()
		got := r.sink.log()
		if len(got) != 3 || !strings.HasPrefix(got[0].ID, "FLOWGATE@") || got[1].ID != "acme/o-1" || got[2].ID != "acme/$replay/FLOWGATE@x/1" {
			t.Errorf("%+v", got)
		}
		for _, d := range got { // it is the producer's own header, and no more
			if len(d.Headers["Flowgate-Id"]) != 1 || d.Headers["Flowgate-Id"][0] != "globex/1" {
				t.Errorf("headers %v", d.Headers)
			}
		}
	})
}

func TestPurgingDeadLetters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		r.sink.answers(poison)
		_, js := r.client()
		for _, tenant := range []string{"acme", "globex", "initech"} {
			r.admitted(js, tenant, 5)
			r.empty()
			time.Sleep(time.Minute)
		}
		left := func(want uint64) {
			t.Helper()
			if s, _ := r.Status(); s.DeadLetters != want {
				t.Errorf("%d dead letters, want %d", s.DeadLetters, want)
			}
		}
		for _, c := range []struct {
			body string
			code int
			n    uint64
			left uint64
		}{
			{`{}`, 400, 0, 15},
			{`{"tenant":"a.b"}`, 400, 0, 15},
			{`{"class":"odd"}`, 400, 0, 15},
			{`{"older_than":"2"}`, 400, 0, 15},
			{`{"sequence":2}`, 400, 0, 15},
			{`{"older_than":"150s"}`, 200, 5, 10},
			{`{"tenant":"globex","reason":"asked for","author":"ann"}`, 200, 5, 5},
			{`{"class":"expired"}`, 200, 0, 5},
			{`{"from":14,"class":"permanent"}`, 200, 2, 3},
			{`{"all":true}`, 200, 3, 0},
		} {
			code, body, _ := ask(r, "POST", "/api/v1/dead-letters/purge", c.body)
			var p DeadLetterProgress
			_ = json.Unmarshal([]byte(body), &p)
			if code != c.code || p.Count != c.n || p.Next != nil {
				t.Errorf("%s: %d %s", c.body, code, body)
			}
			left(c.left)
		}
		r.admitted(js, "acme", 1)
		r.empty()
		time.Sleep(6 * time.Second)
		left(1)
		if code, body, _ := ask(r, "DELETE", "/api/v1/dead-letters/16", ""); code != 204 {
			t.Errorf("%d %s", code, body)
		}
		if code, body, _ := ask(r, "DELETE", "/api/v1/dead-letters/16", ""); code != 404 {
			t.Errorf("%d %s", code, body)
		}
		left(0)
	})
}

func TestTheDeadLettersAPI(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		r.sink.answers(poison)
		_, js := r.client()
		r.admitted(js, "acme", 5)
		r.empty()
		for query, want := range map[string]string{
			"order=best": "neither newest nor oldest", "limit=0": "1 to 1000", "limit=1001": "1 to 1000", "from=x": "not a sequence",
			"colour=red": "there is no parameter", "tenant=a&tenant=b": "tenant: is there 2 times", "from=5&to=4": "empty", "newer_than=x": "newer_than",
			"older_than=1h&newer_than=1h": "both so old and so new", "tenant=*": "tenant",
		} {
			if code, body, _ := ask(r, "GET", "/api/v1/dead-letters?"+query, ""); code != 400 || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", query, code, body)
			}
		}
		l := asked[DeadLetterList](r, "GET", "/api/v1/dead-letters?limit=2", "")
		if len(l.DeadLetters) != 2 || l.DeadLetters[0].Seq != 5 || l.Next == nil || l.Next.To != 3 {
			t.Errorf("%+v", l)
		}
		l = asked[DeadLetterList](r, "GET", "/api/v1/dead-letters?limit=2&order=oldest&tenant=acme&from=2", "")
		if len(l.DeadLetters) != 2 || l.DeadLetters[0].Seq != 2 || l.Next == nil || l.Next.From != 4 || l.Next.Tenant != "acme" {
			t.Errorf("%+v", l)
		}
		for _, path := range []string{"0", "x", "-1", "1x"} {
			if code, body, _ := ask(r, "GET", "/api/v1/dead-letters/"+path, ""); code != 400 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		// What producers sent is not for everybody; the list is.
		elsewhere := func(q *http.Request) { q.RemoteAddr, q.Host = "192.0.2.1:40000", "gate.example.org" }
		for _, c := range []struct {
			method, path, body string
			code               int
		}{
			{"GET", "/api/v1/dead-letters", "", 200},
			{"GET", "/api/v1/dead-letters/1", "", 403},
			{"POST", "/api/v1/dead-letters/1/replay", "", 403},
			{"DELETE", "/api/v1/dead-letters/1", "", 403},
			{"POST", "/api/v1/dead-letters/replay", `{"all":true}`, 403},
			{"POST", "/api/v1/dead-letters/purge", `{"all":true}`, 403},
		} {
			if code, body, _ := ask(r, c.method, c.path, c.body, elsewhere); code != c.code {
				t.Errorf("%s %s from elsewhere: %d %s", c.method, c.path, code, body)
			}
		}
		if n := len(asked[DeadLetterList](r, "GET", "/api/v1/dead-letters", "").DeadLetters); n != 5 {
			t.Errorf("%d dead letters are left, want 5", n)
		}
		// Without the stream: an answer that says so.
		if err := r.control().DeleteStream(t.Context(), "FLOWGATE_DLQ"); err != nil {
			t.Fatal(err)
		}
		if code, body, _ := ask(r, "GET", "/api/v1/dead-letters", ""); code != 503 || !strings.Contains(body, "FLOWGATE_DLQ") {
			t.Errorf("%d %s", code, body)
		}
	})
}
