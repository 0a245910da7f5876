package app

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
)

// A thousand changes while four tenants publish: each is in force for the next message
// after the answer, and no message of the others is refused, lost or doubled.
func TestAThousandChangesUnderLoad(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:100000/s", "FLOWGATE_LIMIT_TENANT_OVERRIDES=load-2=gcra:90000/s", "FLOWGATE_SHAPER_RATE=unlimited",
			"FLOWGATE_BACKPRESSURE_HIGH=100000")
		_, probe := r.client()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var producers sync.WaitGroup
		acknowledged := make([]map[string]bool, 4)
		for p := range acknowledged {
			_, js := r.client()
			acknowledged[p] = map[string]bool{}
			producers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := strconv.Itoa(i)
					// Its own context: a publish that is under way is to be answered.
					_, err := js.Publish(context.Background(), fmt.Sprintf("ingress.load-%d.orders", p), nil, jetstream.WithMsgID(id))
					if err != nil {
						t.Errorf("load-%d, message %d: %v", p, i, err)
						return
					}
					acknowledged[p][fmt.Sprintf("load-%d/%s", p, id)] = true
					if i%3 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		set := func(key, limit string) {
			t.Helper()
			time.Sleep(time.Millisecond)
			if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/"+key, `{"limit":"`+limit+`"}`); code != 200 {
				t.Fatalf("%s %s: %d %s", key, limit, code, body)
			}
		}
		published := 0
		for i := range 250 {
			set("probe", "token-bucket:0/s")
			if n := passes(r, probe, "probe", 1); n != 0 {
				t.Fatalf("change %d: admitted by the rule before", 4*i)
			}
			set("*", fmt.Sprintf("token-bucket:%d/s", 100_000+i))
			set("load-*", fmt.Sprintf("%s:%d/s", []string{"token-bucket", "sliding-window-counter", "fixed-window", "sliding-window"}[i%4], 100_000+i))
			set("probe", "unlimited")
			if published += passes(r, probe, "probe", 1); published != i+1 {
				t.Fatalf("change %d: refused by the rule before", 4*i+3)
			}
		}
		stop()
		producers.Wait()
		r.settled()

		delivered := map[string]int{}
		for _, d := range r.sink.log() {
			delivered[d.ID]++
		}
		for p := range acknowledged {
			if len(acknowledged[p]) < 100 {
				t.Errorf("load-%d published %d messages: no load", p, len(acknowledged[p]))
			}
			for id := range acknowledged[p] {
				if n := delivered[id]; n != 1 {
					t.Errorf("%s: delivered %d times", id, n)
				}
				published++
			}
		}
		if n := len(r.sink.log()); n != published {
			t.Errorf("%d delivered of %d acknowledged", n, published)
		}
	})
}

// Neither a flood of other names, nor room for few, nor a change of another's limit
// gives a tenant its token back; its own new limit does, and at once.
func TestASpentTokenStaysSpent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_LIMIT_TENANT=token-bucket:1/h,burst=1", "FLOWGATE_LIMIT_MAX_KEYS=100", "FLOWGATE_SHAPER_RATE=unlimited")
		_, js := r.client()
		started := time.Now()
		if n := passes(r, js, "acme", 2); n != 1 {
			t.Fatalf("%d of the one token", n)
		}
		spent := func(after string) {
			t.Helper()
			_, err := js.Publish(t.Context(), "ingress.acme.orders", nil)
			code, wait := refusal(err)
			left := time.Hour - time.Since(started)
			if code != 60429 || wait < left || wait > left+time.Millisecond {
				t.Errorf("after %s: code %d, wait %s; want 60429 and %s", after, code, wait, left)
			}
		}
		admitted := 0
		for i := range 2000 {
			admitted += passes(r, js, fmt.Sprintf("other-%d", i), 1)
		}
		// 99 have room; the others share one overflow bucket.
		if admitted != 100 {
			t.Errorf("%d of 2000 other tenants admitted with room for 100 keys, want 100", admitted)
		}
		spent("2000 other tenants")
		if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/other-1", `{"limit":"token-bucket:1000/s"}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		spent("another's new limit")
		time.Sleep(10 * time.Minute)
		spent("10 minutes")
		if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/acme", `{"limit":"token-bucket:100/s"}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		time.Sleep(10 * time.Millisecond)
		if n := passes(r, js, "acme", 1); n != 1 {
			t.Error("refused 10 ms after its limit became 100/s")
		}
		// Lowered with a full bucket: no more than the new burst passes.
		time.Sleep(time.Minute)
		if code, body, _ := ask(r, "PUT", "/api/v1/limits/tenant/acme", `{"limit":"token-bucket:5/h"}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if n := passes(r, js, "acme", 20); n != 5 {
			t.Errorf("%d pass after the burst was lowered to 5", n)
		}
	})
}
