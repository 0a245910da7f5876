package consumers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/bubble"
)

// yard is a graveyard beside a backlog.
type yard struct {
	*Graveyard
	t       *testing.T
	l       *DeadLetters
	dead    jetstream.Stream
	backlog jetstream.Stream
	reg     *prometheus.Registry
	room    func() bool
	told    []uint64
}

func newYard(t *testing.T, change func(*jetstream.StreamConfig)) *yard {
	t.Helper()
	l, dead := dlq(t, func(c *jetstream.StreamConfig) { c.AllowDirect = true })
	cfg := jetstream.StreamConfig{
		Name: "FLOWGATE", Subjects: []string{"flowgate.backlog.>"}, Retention: jetstream.WorkQueuePolicy,
		Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, AllowDirect: true,
	}
	if change != nil {
		change(&cfg)
	}
	backlog, err := l.js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, l: l, dead: dead, backlog: backlog, reg: prometheus.NewRegistry(), room: func() bool { return true }}
	y.Graveyard = NewGraveyard(GraveyardDeps{
		JS: l.js, Stream: "FLOWGATE_DLQ", Subjects: "flowgate.dlq", BacklogStream: "FLOWGATE", Backlog: "flowgate.backlog",
		Room: func() bool { return y.room() }, Replayed: func(seq uint64, _ int) { y.told = append(y.told, seq) },
		Registerer: y.reg,
	})
	return y
}

// bury writes n dead letters of a tenant.
func (y *yard) bury(tenant string, n int, reason error) {
	y.t.Helper()
	for range n {
		d := aDelivery(int(letters(y.t, y.dead)) + 1000)
		info, err := y.dead.Info(y.t.Context())
		if err != nil {
			y.t.Fatal(err)
		}
		d.Tenant, d.Seq = tenant, info.State.LastSeq+1
		d.ID = fmt.Sprintf("%s/%d", tenant, d.Seq)
		put(y.t, y.l, d, reason)
	}
}

// all follows the pages of a filter and gives the sequences.
func (y *yard) all(f DeadLetterFilter, newest bool, n int) []uint64 {
	y.t.Helper()
	var seqs []uint64
	for next := &f; next != nil; {
		p, err := y.List(y.t.Context(), *next, newest, n)
		if err != nil {
			y.t.Fatal(err)
		}
		if len(p.Letters) > n {
			y.t.Fatalf("a page of %d, want at most %d", len(p.Letters), n)
		}
		for _, d := range p.Letters {
			seqs = append(seqs, d.Seq)
		}
		next = p.Next
	}
	return seqs
}

func (y *yard) wantDead(want uint64) {
	y.t.Helper()
	n, err := y.Count(y.t.Context())
	if err != nil || n != want {
		y.t.Errorf("%d dead letters, want %d; %v", n, want, err)
	}
}

func (y *yard) wantBacklog(want uint64) {
	y.t.Helper()
	if n := letters(y.t, y.backlog); n != want {
		y.t.Errorf("%d messages in the backlog, want %d", n, want)
	}
}

func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		reason error
		want   ErrorClass
	}{
		{ErrExpired, ClassExpired},
		{ErrCrashed, ClassCrashed},
		{fmt.Errorf("late: %w", ErrExpired), ClassExpired},
		{Permanent(errors.New("bad row")), ClassPermanent},
		{fmt.Errorf("batch: %w", Permanent(errors.New("bad row"))), ClassPermanent},
		{errors.New("no luck"), ClassAttempts},
		{RetryAfter(time.Second, errors.New("later")), ClassAttempts},
		{context.DeadlineExceeded, ClassAttempts},
		{fmt.Errorf("at last: %w", ErrCrashed), ClassCrashed},
	} {
		if got := ClassOf(c.reason); got != c.want {
			t.Errorf("%v is %s, want %s", c.reason, got, c.want)
		}
		if _, err := ParseErrorClass(string(c.want)); err != nil {
			t.Error(err)
		}
	}
	_, err := ParseErrorClass("odd")
	wantError(t, err, "odd", "permanent")
}

func TestGraveyardList(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		if got := y.all(DeadLetterFilter{}, true, 5); got != nil {
			t.Errorf("an empty stream lists %v", got)
		}
		y.bury("acme", 3, Permanent(errors.New("bad row"))) // 1 2 3
		time.Sleep(time.Hour)
		y.bury("globex", 2, ErrExpired)             // 4 5
		y.bury("acme", 2, errors.New("no luck"))    // 6 7
		y.bury("acmetoo", 1, errors.New("no luck")) // 8
		bare := aDelivery(9)
		bare.Topic = ""
		put(t, y.l, bare, errors.New("no luck"))                                             // 9
		if _, err := y.l.js.Publish(t.Context(), "flowgate.dlq.acme.old", nil); err != nil { // 10: without headers
			t.Fatal(err)
		}
		hourAgo := time.Now().Add(-30 * time.Minute)
		for _, c := range []struct {
			f    DeadLetterFilter
			want []uint64
		}{
			{DeadLetterFilter{}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
			{DeadLetterFilter{Tenant: "acme"}, []uint64{1, 2, 3, 6, 7, 9, 10}},
			{DeadLetterFilter{Tenant: "nobody"}, nil},
			{DeadLetterFilter{Class: ClassPermanent}, []uint64{1, 2, 3}},
			{DeadLetterFilter{Class: ClassAttempts, Tenant: "acme"}, []uint64{6, 7, 9}},
			{DeadLetterFilter{Class: ClassUnknown}, []uint64{10}},
			{DeadLetterFilter{Class: ClassCrashed}, nil},
			{DeadLetterFilter{Before: hourAgo}, []uint64{1, 2, 3}},
			{DeadLetterFilter{After: hourAgo}, []uint64{4, 5, 6, 7, 8, 9, 10}},
			{DeadLetterFilter{After: hourAgo, Tenant: "acme"}, []uint64{6, 7, 9, 10}},
			{DeadLetterFilter{After: time.Now().Add(time.Hour)}, nil},
			{DeadLetterFilter{From: 3, To: 6}, []uint64{3, 4, 5, 6}},
			{DeadLetterFilter{From: 7, To: 7}, []uint64{7}},
			{DeadLetterFilter{From: 11}, nil},
			{DeadLetterFilter{From: 2, To: 9, Tenant: "acme", Class: ClassPermanent}, []uint64{2, 3}},
		} {
			for _, n := range []int{1, 2, 3, 100} {
				if got := y.all(c.f, false, n); !slices.Equal(got, c.want) {
					t.Errorf("%+v by %d: %v, want %v", c.f, n, got, c.want)
				}
				got := y.all(c.f, true, n)
				slices.Reverse(got)
				if !slices.Equal(got, c.want) {
					t.Errorf("%+v newest first by %d: %v, want %v", c.f, n, got, c.want)
				}
			}
		}
		p, err := y.List(t.Context(), DeadLetterFilter{From: 1, To: 1}, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		want := DeadLetter{
			Seq: 1, ID: "acme/1", Tenant: "acme", Topic: "orders.new", Class: ClassPermanent, Error: "bad row", Attempts: 1, MessageSeq: 1,
			AdmittedAt: aDelivery(1).AdmittedAt, DiedAt: p.Letters[0].DiedAt, Bytes: len(aDelivery(1000).Payload),
		}
		if diff := cmp.Diff([]DeadLetter{want}, p.Letters); diff != "" {
			t.Error(diff)
		}
		if age := time.Since(want.DiedAt); age < time.Hour || age > 2*time.Hour {
			t.Errorf("it died %s ago", age)
		}
		for _, bad := range []DeadLetterFilter{{Tenant: ">"}, {Tenant: "a.b"}, {Class: "odd"}, {From: 5, To: 4}, {After: hourAgo, Before: hourAgo}} {
			if _, err := y.List(t.Context(), bad, false, 10); err == nil {
				t.Errorf("%+v is no error", bad)
			}
		}
		// No reader is left behind.
		info, err := y.dead.Info(t.Context())
		if err != nil || info.State.Consumers != 0 {
			t.Errorf("%d readers are left, %v", info.State.Consumers, err)
		}
	})
}

// Pages go on over more than one window and over holes, newest first.
func TestGraveyardWindows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		js := y.l.js
		publish := func(n int, tenant string) {
			for range n {
				if _, err := js.PublishAsync("flowgate.dlq."+tenant+".x", nil); err != nil {
					t.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
		}
		publish(2, "rare")
		publish(12_000, "acme")
		publish(1, "rare")
		publish(3_000, "acme")
		if got := y.all(DeadLetterFilter{Tenant: "rare"}, true, 10); !slices.Equal(got, []uint64{12_003, 2, 1}) {
			t.Errorf("the rare tenant's are %v", got)
		}
		if got := y.all(DeadLetterFilter{}, true, 700); len(got) != 15_003 || !slices.IsSortedFunc(got, func(a, b uint64) int { return int(b) - int(a) }) {
			t.Errorf("%d dead letters, want 15003 in order", len(got))
		}
		// A hole in the middle.
		if err := y.dead.Purge(t.Context(), jetstream.WithPurgeSubject("flowgate.dlq.acme.>")); err != nil {
			t.Fatal(err)
		}
		if got := y.all(DeadLetterFilter{}, true, 2); !slices.Equal(got, []uint64{12_003, 2, 1}) {
			t.Errorf("after the purge %v", got)
		}
	})
}

func TestGraveyardGet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		d := aDelivery(7)
		d.Payload, d.Headers = []byte("\x00\xff body"), map[string][]string{"X": {"a", "b"}, "Flowgate-Id": {"forged"}, "Nats-Msg-Id": {"7"}, "Flowgate-Deadline": {"2020-01-01T00:00:00Z"}}
		put(t, y.l, d, Permanent(errors.New("bad row")))
		got, err := y.Get(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		want := DeadLetterContent{
			DeadLetter: DeadLetter{Seq: 1, ID: "acme/7", Tenant: "acme", Topic: "orders.new", Class: ClassPermanent, Error: "bad row", Attempts: 1,
				MessageSeq: 7, AdmittedAt: d.AdmittedAt, DiedAt: got.DiedAt, Bytes: 7},
			Headers: map[string][]string{"X": {"a", "b"}, "Flowgate-Deadline": {"2020-01-01T00:00:00Z"}}, Payload: d.Payload,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for _, seq := range []uint64{0, 2, 99} {
			if _, err := y.Get(t.Context(), seq); !errors.Is(err, ErrNoDeadLetter) {
				t.Errorf("dead letter %d: %v", seq, err)
			}
		}
		if err := y.Delete(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if err := y.Delete(t.Context(), 1); !errors.Is(err, ErrNoDeadLetter) {
			t.Errorf("deleted twice: %v", err)
		}
		wantSamples(t, y.reg, map[string]float64{"flowgate_dead_letters_purged_total": 1})
		if err := y.l.js.DeleteStream(t.Context(), "FLOWGATE_DLQ"); err != nil {
			t.Fatal(err)
		}
		_, err = y.Get(t.Context(), 1)
		wantError(t, err, "dead-letter stream FLOWGATE_DLQ", "not found")
	})
}

func TestReplay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		d := aDelivery(7)
		d.ID, d.Attempt = "acme/order-7", 5
		d.Headers = map[string][]string{
			"X": {"a", "b"}, "Nats-Msg-Id": {"order-7"}, "Nats-Expected-Stream": {"FLOWGATE"}, "Flowgate-Cost": {"3"},
			"Flowgate-Deadline": {"2020-01-01T00:00:00Z"}, "Flowgate-Id": {"forged"},
		}
		put(t, y.l, d, ErrExpired)
		raised, err := y.Replay(t.Context(), 1)
		if err != nil || raised.BacklogSeq != 1 || raised.ID != "acme/order-7" {
			t.Fatalf("%+v %v", raised, err)
		}
		m := letter(t, y.backlog, 1)
		for _, name := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
			m.Header.Del(name) // of the look
		}
		if m.Subject != "flowgate.backlog.acme.orders.new" || string(m.Data) != "payload 7" {
			t.Errorf("%s %q", m.Subject, m.Data)
		}
		if diff := cmp.Diff(nats.Header{
			"X": {"a", "b"}, "Flowgate-Cost": {"3"}, "Flowgate-Id": {"acme/order-7"}, "Nats-Msg-Id": {"$replay/FLOWGATE@i1/7"},
		}, m.Header); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		y.wantDead(0)
		if _, err := y.Replay(t.Context(), 1); !errors.Is(err, ErrNoDeadLetter) {
			t.Errorf("replayed twice: %v", err)
		}
		if !slices.Equal(y.told, []uint64{1}) {
			t.Errorf("told of %v", y.told)
		}
		wantSamples(t, y.reg, map[string]float64{`flowgate_dead_letters_replayed_total{tenant="acme"}`: 1})

		// It dies again, under another sequence: another dead letter, replayed within the
		// window for ids.
		d.Seq = 8
		put(t, y.l, d, errors.New("again"))
		if _, err := y.Replay(t.Context(), 2); err != nil {
			t.Error(err)
		}
		y.wantDead(0)
		y.wantBacklog(2)
	})
}

// A replay that ended between the publish and the delete: the dead letter is there,
// and the broker knows its stream id.
func TestReplayAfterACrash(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		d := aDelivery(7)
		again := func() uint64 {
			put(t, y.l, d, errors.New("bad"))
			info, err := y.dead.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// The window of the dead letters' own ids is over for the next one.
			time.Sleep(3 * time.Minute)
			return info.State.LastSeq
		}
		y.backlog = mustUpdate(t, y, func(c *jetstream.StreamConfig) { c.Duplicates = time.Hour })
		first := again()
		if _, err := y.Replay(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		// The same dead letter is there again, and its replay waits: it is not published
		// twice.
		raised, err := y.Replay(t.Context(), again())
		if err != nil || raised.BacklogSeq != 1 {
			t.Errorf("%+v %v", raised, err)
		}
		y.wantDead(0)
		y.wantBacklog(1)
		// The first replay is gone from the backlog: nobody can say that it was delivered,
		// and the message must not be lost.
		if err := y.backlog.DeleteMsg(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		raised, err = y.Replay(t.Context(), again())
		if err != nil || raised.BacklogSeq != 2 {
			t.Errorf("%+v %v", raised, err)
		}
		y.wantDead(0)
		y.wantBacklog(1)
		if h := letter(t, y.backlog, 2).Header; h.Get("Nats-Msg-Id") != "$replay/FLOWGATE@i1/7/2" || h.Get("Flowgate-Id") != "acme/7" {
			t.Errorf("%v", h)
		}
		// And that replay counts as one too.
		if raised, err = y.Replay(t.Context(), again()); err != nil || raised.BacklogSeq != 2 {
			t.Errorf("%+v %v", raised, err)
		}
		y.wantBacklog(1)
		if !slices.Equal(y.told, []uint64{1, 2}) {
			t.Errorf("told of %v", y.told)
		}
	})
}

func mustUpdate(t *testing.T, y *yard, change func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	info, err := y.backlog.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	change(&info.Config)
	s, err := y.l.js.UpdateStream(t.Context(), info.Config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever keeps the broker from storing it leaves the dead letter where it is.
func TestReplayRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, func(c *jetstream.StreamConfig) { c.MaxMsgs = 2 })
		y.bury("acme", 4, errors.New("bad"))
		p, err := y.ReplayAll(t.Context(), DeadLetterFilter{Tenant: "acme"}, time.Time{})
		if !errors.Is(err, ErrBacklogFull) || p.Count != 2 || p.Next == nil || p.Next.From != 3 || p.Next.To != 4 {
			t.Errorf("%+v %v", p, err)
		}
		y.wantDead(2)
		// Room again.
		if err := y.backlog.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, err := y.ReplayAll(t.Context(), *p.Next, time.Time{}); err != nil || p.Count != 2 || p.Next != nil {
			t.Errorf("%+v %v", p, err)
		}
		y.wantDead(0)

		if err := y.backlog.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		y.bury("acme", 1, errors.New("bad"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := y.Replay(ctx, 5); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if err := y.l.js.DeleteStream(t.Context(), "FLOWGATE"); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Replay(t.Context(), 5); err == nil {
			t.Error("no error without a backlog")
		}
		y.wantDead(1)
	})
}

// What nobody can replay does not hold up the rest.
func TestReplayOfWhatIsNotOurs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		y.bury("acme", 1, errors.New("bad"))
		for _, subject := range []string{"flowgate.dlq.acme.old", "flowgate.dlq.acme"} {
			if _, err := y.l.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: nats.Header{"Flowgate-Id": {"acme/1"}}}); err != nil {
				t.Fatal(err)
			}
		}
		y.bury("acme", 1, errors.New("bad"))
		p, err := y.ReplayAll(t.Context(), DeadLetterFilter{}, time.Time{})
		if err != nil || p.Count != 2 || p.Skipped != 2 || p.Next != nil || !strings.Contains(p.Why.Error(), "dead letter 2 was not written by flowgate") {
			t.Errorf("%+v %v", p, err)
		}
		y.wantDead(2)
		y.wantBacklog(2)
	})
}

func TestReplayAllWaitsForRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		y.bury("acme", 10, errors.New("bad"))
		y.room = func() bool { return len(y.told) < 4 }
		began := time.Now()
		p, err := y.ReplayAll(t.Context(), DeadLetterFilter{}, began.Add(10*time.Second))
		if err != nil || p.Count != 4 || !p.Waiting || p.Next == nil || p.Next.From != 5 || p.Next.To != 10 {
			t.Errorf("%+v %v", p, err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("it waited for %s", took)
		}
		y.wantDead(6)
		// What dies while it runs is not part of it.
		y.bury("acme", 1, errors.New("bad"))
		y.room = func() bool { return true }
		if p, err := y.ReplayAll(t.Context(), *p.Next, time.Time{}); err != nil || p.Count != 6 || p.Next != nil {
			t.Errorf("%+v %v", p, err)
		}
		y.wantDead(1)
	})
}

// Two who replay the same dead letters put each into the backlog once.
func TestReplayTwiceAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		y.bury("acme", 300, errors.New("bad"))
		var count sync.WaitGroup
		counts := make([]uint64, 3)
		for i := range counts {
			count.Go(func() {
				p, err := y.ReplayAll(t.Context(), DeadLetterFilter{}, time.Time{})
				if err != nil {
					t.Error(err)
				}
				counts[i] = p.Count
			})
		}
		count.Wait()
		if counts[0]+counts[1]+counts[2] != 300 {
			t.Errorf("%v replayed, want 300 in all", counts)
		}
		y.wantBacklog(300)
		y.wantDead(0)
	})
}

func TestPurge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			f    DeadLetterFilter
			left []uint64
		}{
			{DeadLetterFilter{}, nil},
			{DeadLetterFilter{Tenant: "acme"}, []uint64{4, 5, 7}},
			{DeadLetterFilter{To: 4}, []uint64{5, 6, 7}},
			{DeadLetterFilter{Tenant: "acme", To: 2}, []uint64{3, 4, 5, 6, 7}},
			{DeadLetterFilter{From: 2, To: 3}, []uint64{1, 4, 5, 6, 7}},
			{DeadLetterFilter{Class: ClassExpired}, []uint64{1, 2, 3, 6, 7}},
			{DeadLetterFilter{Tenant: "acme", Class: ClassExpired}, []uint64{1, 2, 3, 4, 5, 6, 7}},
			{DeadLetterFilter{Before: time.Now().Add(30 * time.Minute)}, []uint64{4, 5, 6, 7}},
			{DeadLetterFilter{After: time.Now().Add(30 * time.Minute), Tenant: "acme"}, []uint64{1, 2, 3, 4, 5, 7}},
		} {
			y := newYard(t, nil)
			began := time.Now()
			shift := func(at time.Time) time.Time {
				if at.IsZero() {
					return at
				}
				return began.Add(30 * time.Minute)
			}
			c.f.Before, c.f.After = shift(c.f.Before), shift(c.f.After)
			y.bury("acme", 3, errors.New("bad")) // 1 2 3
			time.Sleep(time.Hour)
			y.bury("globex", 2, ErrExpired)         // 4 5
			y.bury("acme", 1, errors.New("bad"))    // 6
			y.bury("acmetoo", 1, errors.New("bad")) // 7
			p, err := y.Purge(t.Context(), c.f, time.Time{})
			if err != nil || p.Next != nil || p.Count != uint64(7-len(c.left)) {
				t.Errorf("%+v: %+v %v", c.f, p, err)
			}
			if got := y.all(DeadLetterFilter{}, false, 100); !slices.Equal(got, c.left) {
				t.Errorf("%+v leaves %v, want %v", c.f, got, c.left)
			}
			wantSamples(t, y.reg, map[string]float64{"flowgate_dead_letters_purged_total": float64(7 - len(c.left))})
		}
	})
}
