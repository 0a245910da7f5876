package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
)

func TestPath(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t)
		nc, js := r.client()
		ack, err := js.Publish(t.Context(), "ingress.acme.orders.eu", []byte("hello"), jetstream.WithMsgID("o-1"))
		if err != nil {
			t.Fatal(err)
		}
		if ack.Stream != "FLOWGATE" || ack.Sequence != 1 || ack.Duplicate {
			t.Errorf("acknowledged with %+v", ack)
		}
		reply, err := nc.Request("ingress.acme.orders.eu", []byte("plain"), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(reply.Data); got != `{"stream":"FLOWGATE","seq":2}` {
			t.Errorf("a plain request is answered with %s", got)
		}
		if err := nc.Publish("ingress.globex.orders", []byte("no reply")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got := r.sink.log()
		if len(got) != 3 {
			t.Fatalf("%d deliveries, want 3", len(got))
		}
		slices.SortFunc(got, func(a, b consumers.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
		d := got[0]
		if d.ID != "acme/o-1" || d.Tenant != "acme" || d.Topic != "orders.eu" || d.Seq != 1 || d.Attempt != 1 ||
			string(d.Payload) != "hello" || d.Headers[nats.MsgIdHdr][0] != "o-1" {
			t.Errorf("delivered %+v", d)
		}
		incarnation := r.running().assets.Incarnation
		if want := "FLOWGATE@" + incarnation + "/2"; got[1].ID != want {
			t.Errorf("without an id of its own: %s, want %s", got[1].ID, want)
		}
		if got[2].Tenant != "globex" || string(got[2].Payload) != "no reply" {
			t.Errorf("delivered %+v", got[2])
		}
		if s := r.settled(); s.Depth.Total != 0 {
			t.Errorf("depth %+v after all was delivered", s.Depth)
		}
	})
}

// B09: ids are their tenant's, a repeat is told as one, a refused id is not used up.
func TestMessageIDs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:2/s")
		_, js := r.client()
		publish := func(tenant, id string) (*jetstream.PubAck, error) {
			return js.Publish(t.Context(), "ingress."+tenant+".orders", []byte(tenant+id), jetstream.WithMsgID(id))
		}
		for _, tenant := range []string{"a", "b"} {
			if ack, err := publish(tenant, "1"); err != nil || ack.Duplicate {
				t.Errorf("%s: %+v, %v", tenant, ack, err)
			}
		}
		if ack, err := publish("a", "1"); err != nil || !ack.Duplicate {
			t.Errorf("repeated: %+v, %v", ack, err)
		}
		code, wait := refusal(second(publish("a", "2")))
		if code != 60429 {
			t.Fatalf("the third of two a second: code %d", code)
		}
		time.Sleep(wait)
		if ack, err := publish("a", "2"); err != nil || ack.Duplicate {
			t.Errorf("after the hint: %+v, %v", ack, err)
		}
		time.Sleep(time.Second)
		if n := len(r.sink.log()); n != 3 {
			t.Errorf("%d deliveries, want 3", n)
		}
	})
}

func second(_ *jetstream.PubAck, err error) error { return err }

// B13: one request on the wire, one answer, and a NAK in the form that clients know.
func TestNAKOnTheWire(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:4/s,burst=1")
		nc, _ := r.client()
		inbox := nats.NewInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := nc.PublishRequest("ingress.acme.orders", inbox, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		if n, _, err := sub.Pending(); n != 2 || err != nil {
			t.Fatalf("%d answers for 2 requests, %v", n, err)
		}
		var nak *nats.Msg
		for range 2 { // the NAK overtakes the acknowledgement, or not
			m, err := sub.NextMsg(time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if m.Header != nil {
				nak = m
			}
		}
		if nak == nil {
			t.Fatal("no NAK")
		}
		var body struct {
			Type, Stream, Reason, Scope, Key, Limit string
			Seq                                     *uint64
			Error                                   map[string]any
			Wait                                    int64 `json:"retry_after_ms"`
		}
		if err := json.Unmarshal(nak.Data, &body); err != nil {
			t.Fatal(err)
		}
		if body.Type != "io.flowgate.v1.nak" || body.Stream != "FLOWGATE" || *body.Seq != 0 || body.Reason != "rate_limited" ||
			body.Scope != "tenant" || body.Key != "acme" || body.Limit != "token-bucket:4/s,burst=1" || body.Wait < 200 || body.Wait > 250 {
			t.Errorf("NAK %s", nak.Data)
		}
		if len(body.Error) != 3 || body.Error["code"] != 429.0 || body.Error["err_code"] != 60429.0 ||
			!strings.HasSuffix(body.Error["description"].(string), fmt.Sprintf("; retry_after_ms=%d", body.Wait)) {
			t.Errorf("error %v", body.Error)
		}
		if nak.Header.Get("Retry-After") != "1" || nak.Header.Get("Flowgate-Retry-After-Ms") != fmt.Sprint(body.Wait) ||
			nak.Header.Get("Flowgate-Reason") != "rate_limited" || nak.Header.Get("Flowgate-Scope") != "tenant" || nak.Header.Get("Status") != "" {
			t.Errorf("headers %v", nak.Header)
		}
	})
}

// B01: refusals cost nothing, so a caller who keeps asking gets its whole limit.
func TestLimitUnderABlast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:10/s,burst=10")
		begin := time.Now()
		results := make(chan int)
		var last time.Duration
		for range 20 {
			_, js := r.client()
			go func() {
				accepted := 0
				for time.Since(begin) < 10*time.Second {
					if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err == nil {
						accepted++
					}
					time.Sleep(7 * time.Millisecond)
				}
				results <- accepted
			}()
		}
		accepted := 0
		for range 20 {
			accepted += <-results
		}
		if accepted < 108 || accepted > 112 {
			t.Errorf("%d accepted in 10 s at 10/s with a burst of 10, want 110", accepted)
		}
		_, js := r.client()
		for range 2 {
			_, last = refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil)))
		}
		if last > 100*time.Millisecond {
			t.Errorf("the hint is %s at 10/s", last)
		}
		time.Sleep(time.Second)
		r.admitted(js, "acme", 10)
	})
}

// B08: whoever obeys the hint is admitted, also where it is no whole millisecond.
func TestHintIsEnough(t *testing.T) {
	for _, rate := range []string{"20/s", "3/s"} {
		t.Run(rate, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:"+rate+",burst=1")
				_, js := r.client()
				r.admitted(js, "acme", 1)
				for i := range 200 {
					code, wait := refusal(second(js.Publish(t.Context(), "ingress.acme.orders", nil)))
					if code != 60429 || wait <= 0 {
						t.Fatalf("round %d: code %d, wait %s", i, code, wait)
					}
					time.Sleep(wait)
					if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err != nil {
						t.Fatalf("round %d: after the hint of %s: %v", i, wait, err)
					}
				}
			})
		})
	}
}

func TestDeadlinePassesWhileWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHAPER_RATE=1/s")
		_, js := r.client()
		r.admitted(js, "acme", 10)
		time.Sleep(1500 * time.Millisecond)
		msg := func(deadline string) *nats.Msg {
			return &nats.Msg{Subject: "ingress.acme.orders", Header: nats.Header{"Flowgate-Deadline": {deadline}}}
		}
		if code, wait := refusal(second(js.PublishMsg(t.Context(), msg("3s")))); code != 60408 || wait >= 0 {
			t.Errorf("it would wait 8 s and may wait 3: code %d, wait %s", code, wait)
		}
		if _, err := js.PublishMsg(t.Context(), msg("1m")); err != nil {
			t.Errorf("it would wait 8 s and may wait 60: %v", err)
		}
		// Admitted in time, and then the consumer is away for longer.
		r.sink.answers(func(context.Context, consumers.Delivery) error { return consumers.Overloaded(0, errors.New("down")) })
		time.Sleep(2 * time.Minute)
		r.sink.answers(nil)
		time.Sleep(time.Minute)
		if s := r.settled(); s.DeadLetters != 1 || s.Depth.Total != 0 {
			t.Errorf("%d dead letters, depth %d; want the one that expired", s.DeadLetters, s.Depth.Total)
		}
	})
}
