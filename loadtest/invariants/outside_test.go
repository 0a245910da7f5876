package invariants

import (
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
)

const ms = int64(time.Millisecond)

// run is a record of n messages of one tenant that were all acknowledged and delivered, 10 ms
// each, the next as the one before is done.
func run(n int) *Record {
	r := &Record{DeadLetters: map[string]bool{}}
	for i := range n {
		at := int64(i) * 10 * ms
		id := "acme/" + string(rune('a'+i))
		place := r.Send(Message{id, "acme", at})
		r.Tell(Try{place, at, at, at + ms, Acked})
		r.Arrive(Arrived{ID: id, Tenant: "acme", Seq: uint64(i + 1), Attempt: 1, Process: 1, Admitted: at + ms, Released: at + 2*ms, Started: at + 2*ms, Ended: at + 9*ms, Done: true})
	}
	return r
}

// Every check keeps quiet about a good run, and finds the breach that is faked into it.
func TestEveryCheckFindsItsBreach(t *testing.T) {
	lost := func(r *Record) Check { return r.NothingLost() }
	once := func(r *Record) Check { return r.Once() }
	order := func(r *Record) Check { return r.Order(false) }
	strict := func(r *Record) Check { return r.Order(true) }
	answered := func(r *Record) Check { return r.Answered(2 * time.Second) }
	rate := func(r *Record) Check {
		return Rate(r.Departures(1), algorithms.Rate{N: 100, Per: time.Second}, 0)
	}
	for _, c := range []struct {
		name  string
		check func(*Record) Check
		fake  func(*Record)
		says  string // the first breach; empty: it must be kept
	}{
		{"all delivered", lost, func(*Record) {}, ""},
		{"one lost", lost, func(r *Record) { r.Deliveries = append(r.Deliveries[:1], r.Deliveries[2:]...) }, "acme/b was acknowledged at 00:00:00.011000, and is neither delivered nor dead-lettered; 0 wait, 1 are missing"},
		{"one only failed", lost, func(r *Record) { r.Deliveries[2].Done = false }, "acme/c was acknowledged"},
		{"one is a dead letter", lost, func(r *Record) { r.Deliveries[2].Done = false; r.DeadLetters["acme/c"] = true }, ""},
		{"one waits", lost, func(r *Record) { r.Deliveries[2].Done = false; r.Waiting = 1 }, ""},
		{"two lost and one waits", lost, func(r *Record) { r.Deliveries = r.Deliveries[:2]; r.Waiting = 1 }, "acme/c was acknowledged"},
		{"one from nobody", lost, func(r *Record) { r.Deliveries[1].ID = "acme/x"; r.Waiting = 1 }, "acme/x came at 00:00:00.012000 as sequence 2, and nobody sent it"},
		{"one refused and delivered", lost, func(r *Record) { r.Tries[1].Told = "backlog" }, "acme/b came at 00:00:00.012000 as sequence 2, and each of its tries was refused"},
		{"one overloaded and delivered", lost, func(r *Record) { r.Tries[1].Told = "overloaded" }, ""},
		{"one altered", lost, func(r *Record) { r.Deliveries[1].Altered = true }, "acme/b came at 00:00:00.012000 as sequence 2 with another payload"},

		{"each once", once, func(*Record) {}, ""},
		{"a failed attempt before", once, func(r *Record) { d := r.Deliveries[1]; d.Done = false; r.Arrive(d) }, ""},
		{"twice", once, func(r *Record) { repeat(r, 1, 50*ms) }, "acme/b (sequence 2) was done at 00:00:00.019000 as attempt 1, which left at 00:00:00.012000, and again at 00:00:00.069000 as attempt 1, and no gateway was killed"},
		{"twice, and the first was not heard of", once, func(r *Record) { repeat(r, 1, 50*ms); r.Deliveries[1].Unheard = true }, ""},
		{"twice, and the second was not heard of", once, func(r *Record) { repeat(r, 1, 50*ms); r.Deliveries[4].Unheard = true }, "acme/b"},
		{"twice, killed in between", once, func(r *Record) { repeat(r, 1, 50*ms); r.Open(15*ms, true); r.Close(30 * ms) }, ""},
		{"twice, stopped in order", once, func(r *Record) { repeat(r, 1, 50*ms); r.Open(15*ms, false); r.Close(30 * ms) }, "acme/b"},
		{"twice, killed long before", once, func(r *Record) { repeat(r, 1, 50*ms); r.Open(5*ms, true); r.Close(8 * ms) }, "acme/b"},
		{"twice, killed long after", once, func(r *Record) { repeat(r, 1, 5000*ms); r.Open(3000*ms, true); r.Close(3001 * ms) }, "acme/b"},

		{"in order", order, func(*Record) {}, ""},
		{"out of order", order, func(r *Record) { swap(r, 1, 2) }, "tenant acme: sequence 2 left at 00:00:00.022000, after 3 at 00:00:00.012000"},
		{"a retry steps aside", order, func(r *Record) { again(r, 0, 25*ms) }, ""},
		{"another process", order, func(r *Record) { swap(r, 1, 2); r.Deliveries[1].Process = 2 }, ""},
		{"strictly in order", strict, func(*Record) {}, ""},
		{"strictly, a retry steps aside", strict, func(r *Record) { again(r, 0, 25*ms) }, "tenant acme: sequence 1 left at"},
		{"strictly, two at a time", strict, func(r *Record) { r.Deliveries[1].Ended = 25 * ms }, "tenant acme: sequence 3 left at 00:00:00.022000, while 2 was under way until 00:00:00.025000"},
		{"strictly, again after it was done", strict, func(r *Record) { d := r.Deliveries[3]; d.Released += 8 * ms; r.Arrive(d) }, "sequence 4 left again"},

		{"answered", answered, func(*Record) {}, ""},
		{"a NAK is an answer", answered, func(r *Record) { r.Tries[1].Told = "backlog" }, ""},
		{"late", answered, func(r *Record) { r.Tries[1].Answered += 3000 * ms }, "acme/b, published at 00:00:00.010000: acknowledged after 3.001s"},
		{"never", answered, func(r *Record) { r.Tries[1].Told = NoAnswer }, "acme/b, published at 00:00:00.010000: no answer"},
		{"nobody", answered, func(r *Record) { r.Tries[1].Told = Nobody }, "acme/b, published at 00:00:00.010000: nobody there"},
		{"nobody, and none was there", answered, func(r *Record) { r.Tries[1].Told = Nobody; r.Open(5*ms, true); r.Close(30 * ms) }, ""},
		{"nobody, long after", answered, func(r *Record) {
			r.Tries[1].Told = Nobody
			r.Tries[1].Sent = 9000 * ms
			r.Open(5*ms, true)
			r.Close(30 * ms)
		}, "acme/b"},
		{"not asked", answered, func(r *Record) { r.Tries[1].Told = NotAsked; r.Tries[1].Answered = 0 }, ""},

		{"at the rate", rate, func(*Record) {}, ""},
		{"too early", rate, func(r *Record) { r.Deliveries[2].Released -= ms }, "departures in"},

		{"one at a time", func(r *Record) Check { return r.Deepest(1) }, func(*Record) {}, ""},
		{"two at a time", func(r *Record) Check { return r.Deepest(1) }, func(r *Record) { r.Deliveries[0].Ended += 20 * ms }, "2 were waiting at 00:00:00.011000, when acme/b came"},
		{"one that stays", func(r *Record) Check { return r.Deepest(1) }, func(r *Record) { r.Deliveries = r.Deliveries[1:] }, "2 were waiting at 00:00:00.011000, when acme/b came"},
		{"a dead letter leaves", func(r *Record) Check { return r.Deepest(1) }, func(r *Record) { r.Deliveries[0].Done = false; r.DeadLetters["acme/a"] = true }, ""},

		{"none refused", func(r *Record) Check { return r.Unrefused("acme", func(s string) bool { return s == "acme" }) }, func(*Record) {}, ""},
		{"one refused", func(r *Record) Check { return r.Unrefused("acme", func(s string) bool { return s == "acme" }) }, func(r *Record) { r.Tries[3].Told = "backlog" }, "acme/d, published at 00:00:00.030000: backlog"},
		{"nobody of that name", func(r *Record) Check { return r.Unrefused("other", func(s string) bool { return s == "other" }) }, func(*Record) {}, "there is none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(4)
			c.fake(r)
			got := c.check(r)
			if c.says == "" && !got.OK() {
				t.Errorf("%s: %q", got.Promise, got.Broken)
			}
			if c.says != "" && (got.OK() || !strings.Contains(got.Broken[0], c.says)) {
				t.Errorf("%s: %q, want %q", got.Promise, got.Broken, c.says)
			}
		})
	}
}

// repeat has a message done a second time, so much later.
func repeat(r *Record, i int, later int64) {
	d := r.Deliveries[i]
	d.Released, d.Started, d.Ended = d.Released+later, d.Started+later, d.Ended+later
	r.Arrive(d)
}

// again has a message fail, and succeed so much later.
func again(r *Record, i int, later int64) {
	repeat(r, i, later)
	r.Deliveries[i].Done = false
	r.Deliveries[len(r.Deliveries)-1].Attempt++
}

// swap has two messages leave in each other's place.
func swap(r *Record, i, j int) {
	a, b := &r.Deliveries[i], &r.Deliveries[j]
	a.Released, b.Released = b.Released, a.Released
}

func TestFairness(t *testing.T) {
	r := &Record{}
	offer := func(tenant string, n, done int) {
		for i := range n {
			id := tenant + string(rune('a'+i))
			r.Send(Message{ID: id, Tenant: tenant})
			if i < done {
				r.Arrive(Arrived{ID: id, Tenant: tenant, Ended: 5, Done: true})
			}
		}
	}
	offer("small", 2, 2)
	offer("a", 20, 4)
	offer("b", 20, 4)
	shares := r.Shares(0, 10) // of 10, small has its 2, and the others 4 each
	for i, want := range []Share{{"small", 2, 2, 2}, {"a", 20, 4, 4}, {"b", 20, 4, 4}} {
		if shares[i] != want {
			t.Errorf("%+v, want %+v", shares[i], want)
		}
	}
	if got := Jain(shares); got < 0.9999 || !r.Fair(0.98, 0, 10).OK() {
		t.Errorf("all have their parts, and the index is %g", got)
	}
	if got := Jain([]Share{{Got: 10, Fair: 5}, {Got: 0, Fair: 5}}); got != 0.5 {
		t.Errorf("one of two has all: %g", got)
	}
	offer("c", 20, 16)
	if c := r.Fair(0.98, 0, 10); c.OK() || !strings.Contains(c.Broken[0], "tenant a had 4 of a fair part of 8") {
		t.Errorf("%q", c.Broken)
	}
	if got := r.Shares(6, 10); got[0].Got != 0 {
		t.Errorf("done outside of the time: %+v", got)
	}
}
