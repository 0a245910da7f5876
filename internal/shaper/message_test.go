package shaper

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flowgate/flowgate/internal/consumers"
)

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		headers := rapid.MapOf(rapid.StringN(1, 8, 200), rapid.SliceOfN(rapid.String(), 1, 3)).Draw(t, "headers")
		payload := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		topic := rapid.String().Draw(t, "topic")
		if got, want := len(pack(topic, headers, payload)), packedSize(topic, headers, payload); got != want {
			t.Fatalf("%d bytes, want %d", got, want)
		}
		gotTopic, gotHeaders, gotPayload := unpack(pack(topic, headers, payload))
		if gotTopic != topic || string(gotPayload) != string(payload) {
			t.Fatalf("topic %q, payload %q", gotTopic, gotPayload)
		}
		if len(headers) > 0 && !cmp.Equal(headers, gotHeaders) {
			t.Fatal(cmp.Diff(headers, gotHeaders))
		}
	})
}

func TestDelivery(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 500, time.UTC)
	stored := func(headers map[string][]string, payload string) *message {
		m := &message{seq: 9, at: at.UnixNano()}
		m.setBody(pack("orders.eu", headers, []byte(payload)))
		return m
	}
	released := at.Add(time.Second)
	common := consumers.Delivery{
		Tenant: "acme", Topic: "orders.eu", Seq: 9, Attempt: 3, Payload: []byte("p"), AdmittedAt: at, ReleasedAt: released,
	}
	withID, without := common, common
	withID.ID, withID.Headers = "acme/o-1", map[string][]string{"Nats-Msg-Id": {"o-1"}, "X": {"a", "b"}, "Flowgate-Deadline": {"2026-12-01T11:00:00Z"}}
	withID.Deadline = time.Date(2026, 12, 1, 11, 0, 0, 0, time.UTC)
	without.ID = "FLOWGATE@made/9"
	replayed, replayedWithout, forged := withID, without, without
	replayed.Headers, replayed.Deadline = map[string][]string{"Nats-Msg-Id": {"o-1"}}, time.Time{}
	replayedWithout.ID, replayedWithout.Headers = "FLOWGATE@before/3", map[string][]string{"X": {"a"}}
	forged.Headers = map[string][]string{"Flowgate-Id": {"globex/o-1"}}
	for _, c := range []struct {
		m    *message
		want consumers.Delivery
	}{
		{stored(map[string][]string{"Nats-Msg-Id": {"acme/o-1"}, "X": {"a", "b"}, "Flowgate-Deadline": {"2026-12-01T11:00:00Z"}}, "p"), withID},
		{stored(nil, "p"), without},
		{stored(map[string][]string{"Nats-Msg-Id": {"$replay/x"}, "Flowgate-Id": {"acme/o-1"}}, "p"), replayed},
		{stored(map[string][]string{"Nats-Msg-Id": {"$replay/x"}, "Flowgate-Id": {"FLOWGATE@before/3"}, "X": {"a"}}, "p"), replayedWithout},
		{stored(map[string][]string{"Flowgate-Id": {"globex/o-1"}}, "p"), forged},
	} {
		if diff := cmp.Diff(c.want, c.m.delivery("FLOWGATE@made", "acme", 2, released.UnixNano()), cmpopts.EquateComparable(consumers.Refusals{})); diff != "" {
			t.Error(diff)
		}
	}
}

// The bits of a message do not touch each other.
func TestMessageBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m message
		cost, gen, st, isLoading, isCareful := uint64(1), uint8(0), waiting, false, false
		t.Repeat(map[string]func(*rapid.T){
			"cost": func(t *rapid.T) {
				cost = rapid.Uint64Range(1, 1_000_000).Draw(t, "cost")
				m.setCost(cost)
			},
			"generation": func(t *rapid.T) {
				g := rapid.Uint32().Draw(t, "gen")
				gen = uint8(g)
				m.setGen(g)
			},
			"state": func(t *rapid.T) {
				st = rapid.SampledFrom([]state{waiting, delayed, inFlight}).Draw(t, "state")
				m.setState(st)
			},
			"loading": func(t *rapid.T) { isLoading = !isLoading; m.set(loading, isLoading) },
			"careful": func(t *rapid.T) { isCareful = !isCareful; m.set(careful, isCareful) },
			"": func(t *rapid.T) {
				if m.cost() != cost || m.gen() != gen || m.state() != st || m.is(loading) != isLoading || m.is(careful) != isCareful {
					t.Fatalf("cost %d, generation %d, state %d, loading %v, careful %v", m.cost(), m.gen(), m.state(), m.is(loading), m.is(careful))
				}
			},
		})
	})
}

func TestCost(t *testing.T) {
	for text, want := range map[string]uint64{"": 1, "1": 1, "7": 7, "1000000": 1_000_000, "0": 1, "-3": 1, "many": 1, "99999999": 1} {
		h := map[string][]string{"Flowgate-Cost": {text}}
		if got := costOf(h); got != want {
			t.Errorf("%q costs %d, want %d", text, got, want)
		}
	}
	if costOf(nil) != 1 {
		t.Error("a message without headers does not cost 1")
	}
}
