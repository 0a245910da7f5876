package shaper

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowgate/flowgate/internal/consumers"
)

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		headers := rapid.MapOf(rapid.StringN(1, 8, 200), rapid.SliceOfN(rapid.String(), 1, 3)).Draw(t, "headers")
		payload := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		body, n := pack(headers, payload)
		gotHeaders, gotPayload := unpack(body, n)
		if string(gotPayload) != string(payload) {
			t.Fatalf("payload %q", gotPayload)
		}
		if len(headers) > 0 && !cmp.Equal(headers, gotHeaders) {
			t.Fatal(cmp.Diff(headers, gotHeaders))
		}
	})
}

func TestDelivery(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 500, time.UTC)
	stored := func(headers map[string][]string, payload string) *message {
		m := &message{seq: 9, lane: &lane{tenant: "acme"}, topic: "orders.eu", at: at.UnixNano(), attempts: 2}
		body, n := pack(headers, []byte(payload))
		m.setBody(body, n)
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
	for _, c := range []struct {
		m    *message
		want consumers.Delivery
	}{
		{stored(map[string][]string{"Nats-Msg-Id": {"acme/o-1"}, "X": {"a", "b"}, "Flowgate-Deadline": {"2026-12-01T11:00:00Z"}}, "p"), withID},
		{stored(nil, "p"), without},
	} {
		if diff := cmp.Diff(c.want, c.m.delivery("FLOWGATE@made", released.UnixNano())); diff != "" {
			t.Error(diff)
		}
	}
}
