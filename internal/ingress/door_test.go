package ingress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// testDoor is a door that a test can fill.
func testDoor() (*Door, *allowance, *space) {
	limits, room := &allowance{}, &space{}
	return &Door{
		prefix: "ingress.", ingress: "ingress", backlog: "flowgate.backlog.", own: "flowgate",
		maxPayload: 1000, tenants: []string{"acme", "free-*"},
		limits: limits, pressure: room, shut: func() *Refusal { return nil },
	}, limits, room
}

// All that can be wrong with a message at once: each line takes away what was refused
// first, so the order of the reasons shows. None costs anything.
func TestDecisionOrder(t *testing.T) {
	d, limits, room := testDoor()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	m := &nats.Msg{
		Subject: "ingress.evil", Reply: strings.Repeat("r", MaxReply+1), Data: make([]byte, 1001),
		Header: nats.Header{"Nats-Rollup": {"all"}, "Flowgate-Deadline": {"1s"}, "Flowgate-Cost": {"3"}},
	}
	stopping := &Refusal{Reason: Draining}
	d.shut = func() *Refusal { return stopping }
	limits.refuse(&Excess{Scope: "tenant", Limit: "x", Wait: time.Minute})
	room.full.Store(true)
	room.wait.Store(int64(time.Second))
	room.stay.Store(int64(2 * time.Second))

	for _, step := range []struct {
		reason Reason
		text   string
		mend   func()
	}{
		{Invalid, "no topic", func() { m.Subject = "ingress.evil.t" }},
		{Invalid, "reply subject", func() { m.Reply = "_INBOX.x" }},
		{TooLarge, "the limit is 1000", func() { m.Data = nil }},
		{Invalid, "Nats-Rollup", func() { delete(m.Header, "Nats-Rollup") }},
		{Forbidden, "tenant evil", func() { m.Subject = "ingress.acme.t" }},
		{Draining, "", func() { stopping = nil }},
		{RateLimited, "tenant acme over x", func() { limits.refuse(nil) }},
		{Backlogged, "full", func() { room.full.Store(false) }},
		{PastDue, "Flowgate-Deadline", func() { room.stay.Store(int64(time.Second)) }},
	} {
		h := nats.Header{}
		for k, v := range m.Header {
			h[k] = v
		}
		v := d.decide(incoming{msg: &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: h, Data: m.Data}}, 0, func() time.Time { return now })
		if v.refused == nil || v.refused.Reason != step.reason || !strings.Contains(v.refused.Text, step.text) || v.out != nil {
			t.Fatalf("%+v, want %s with %q", v.refused, step.reason, step.text)
		}
		if got := limits.costs(); len(got) > 0 {
			t.Fatalf("refused as %s, it cost %v", step.reason, got)
		}
		step.mend()
	}
	v := d.decide(incoming{msg: m}, 0, func() time.Time { return now })
	if v.refused != nil || v.tenant != "acme" || v.out.Subject != "flowgate.backlog.acme.t" || v.out.Reply != "_INBOX.x" {
		t.Errorf("with nothing wrong: %+v", v)
	}
	if got := limits.costs(); fmt.Sprint(got) != "[3]" {
		t.Errorf("it cost %v, want 3", got)
	}
}

func TestLongestWait(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		limit, backlog time.Duration // 0: admits
		reason         Reason
		wait           time.Duration
	}{
		{2 * s, 0, RateLimited, 2 * s},
		{2 * s, s, RateLimited, 2 * s},
		{s, 2 * s, RateLimited, 2 * s},
		{0, 2 * s, Backlogged, 2 * s},
		{NoRetry, 0, RateLimited, NoRetry},
		{NoRetry, 2 * s, RateLimited, NoRetry},
	} {
		d, limits, room := testDoor()
		if c.limit != 0 {
			limits.refuse(&Excess{Scope: "tenant", Limit: "x", Wait: c.limit})
		}
		room.full.Store(c.backlog != 0)
		room.wait.Store(int64(c.backlog))
		v := d.decide(incoming{msg: &nats.Msg{Subject: "ingress.acme.t"}}, 0, time.Now)
		if v.refused == nil || v.refused.Reason != c.reason || v.refused.Wait != c.wait {
			t.Errorf("limit %v, backlog %v: %+v", c.limit, c.backlog, v.refused)
		}
		if c.limit == NoRetry && !strings.Contains(v.refused.Text, "can never pass") {
			t.Errorf("text %q", v.refused.Text)
		}
		if len(limits.costs()) > 0 {
			t.Error("a refused message cost its limits")
		}
	}
}

// The backlog is asked for the message itself: by its tenant's id, and with the time that
// its limits hold it back; and told of it again when it is forwarded.
func TestWhatTheBacklogIsAsked(t *testing.T) {
	d, limits, room := testDoor()
	m := func(h nats.Header) incoming {
		return incoming{msg: &nats.Msg{Subject: "ingress.acme.t", Header: h, Data: []byte("x")}}
	}
	v := d.decide(m(nats.Header{"Nats-Msg-Id": {"7"}}), 0, time.Now)
	if want := (Ask{Tenant: "acme", ID: "acme/7"}); v.ask != want || room.asked[0] != want {
		t.Errorf("asked %+v, and forwarded as %+v", room.asked, v.ask)
	}
	v = d.decide(m(nil), 0, time.Now)
	if want := (Ask{Tenant: "acme"}); v.ask != want || room.asked[1] != want {
		t.Errorf("without an id: asked %+v, and forwarded as %+v", room.asked[1], v.ask)
	}
	limits.refuse(&Excess{Scope: "tenant", Limit: "x", Wait: time.Second})
	d.decide(m(nil), 0, time.Now)
	if want := (Ask{Tenant: "acme", Least: time.Second}); room.asked[2] != want {
		t.Errorf("over a limit: asked %+v", room.asked[2])
	}
	d.mode = Open
	d.decide(m(nil), 0, time.Now)
	if len(room.asked) != 3 {
		t.Error("asked for a place with limits and backpressure off")
	}
}

func TestStalledIsSaid(t *testing.T) {
	for _, c := range []struct {
		room Room
		want string
	}{
		{Room{}, "the backlog is full"},
		{Room{Stalled: true}, "the backlog is full, and nothing is delivered at present"},
	} {
		if r := backlogged(c.room); r.Text != c.want {
			t.Errorf("%+v: %q", c.room, r.Text)
		}
	}
}

func TestAllowedTenants(t *testing.T) {
	d, _, _ := testDoor()
	for tenant, want := range map[string]bool{"acme": true, "ACME": false, "acme2": false, "free-1": true, "free-": true, "free": false} {
		v := d.decide(incoming{msg: &nats.Msg{Subject: "ingress." + tenant + ".t"}}, 0, time.Now)
		if (v.refused == nil) != want || !want && (v.refused.Reason != Forbidden || v.refused.Wait != NoRetry) {
			t.Errorf("%s: %+v", tenant, v.refused)
		}
	}
	d.tenants = nil
	if v := d.decide(incoming{msg: &nats.Msg{Subject: "ingress.anyone.t"}}, 0, time.Now); v.refused != nil {
		t.Errorf("without a list: %+v", v.refused)
	}
}

func TestMuteReplies(t *testing.T) {
	d, _, _ := testDoor()
	d.ingress, d.own = "in.gress", "fg-1"
	for reply, want := range map[string]bool{
		"": false, "_INBOX.x.y": false, "in.gress": true, "in.gress.a.b": true, "in.gressx": false, "in": false, "in.gres": false,
		"fg-1": true, "fg-1.x": true, "fg-12.x": false, "fg-1x": false, "$JS.API.STREAM.DELETE.S": true, "$": true, "a.$": false,
		"a..b": true, "a.": true, ".a": true, "a.*.b": true, ">": true, "a*b": false, "_R_.x": false,
	} {
		if d.mute(reply) != want {
			t.Errorf("mute(%q) = %v", reply, !want)
		}
	}
}

// BenchmarkDecide is the time and memory that a decision takes; the backlog and the
// limits of the test cost next to nothing.
func BenchmarkDecide(b *testing.B) {
	ids := []string{"7"}
	for name, fill := range map[string]func(nats.Header){
		"plain":   nil,
		"headers": func(h nats.Header) { h["Nats-Msg-Id"], h["traceparent"] = ids, ids },
	} {
		b.Run(name, func(b *testing.B) {
			d, _, _ := testDoor()
			d.limits = free{}
			m := &nats.Msg{Subject: "ingress.acme.orders.new", Reply: "_INBOX.abcdefghijkl.1", Data: make([]byte, 256)}
			if fill != nil {
				m.Header = nats.Header{}
			}
			b.ReportAllocs()
			for b.Loop() {
				if fill != nil {
					fill(m.Header)
				}
				if v := d.decide(incoming{msg: m}, 1, time.Now); v.refused != nil {
					b.Fatal(v.refused)
				}
			}
		})
	}
}

// free are limits that cost nothing.
type free struct{}

func (free) Look(int64, Identity, int64) (Excess, bool) { return Excess{}, true }
func (free) Take(int64, Identity, int64)                {}
func (free) Quotas(int64, Identity) []Quota             { return nil }

func TestDecideAllocations(t *testing.T) {
	d, _, _ := testDoor()
	d.limits = free{}
	m := &nats.Msg{Subject: "ingress.acme.orders.new", Reply: "_INBOX.abcdefghijkl.1", Data: make([]byte, 256)}
	if n := testing.AllocsPerRun(1000, func() { d.decide(incoming{msg: m}, 1, time.Now) }); n > 2 {
		t.Errorf("a decision allocates %v times, want 2: the message and its subject", n)
	}
}
