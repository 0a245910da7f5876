package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/consumers"
	"github.com/flowgate/flowgate/internal/history"
)

// read asks the admin address for JSON.
func read[T any](t *testing.T, r *running, path string) (v T) {
	t.Helper()
	code, body := get(r, path)
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, code, body)
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// A surge is seen in the history: what came, what was refused and why, what was delivered,
// and the changes of the level with their readings.
func TestHistoryOfASurge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &sink{}
		s.answers(func(context.Context, consumers.Delivery) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		})
		r := startIn(t, t.TempDir(), s, "FLOWGATE_BACKPRESSURE_HIGH=100", "FLOWGATE_BACKPRESSURE_LOW=50", "FLOWGATE_SHAPER_RATE=40/s", "FLOWGATE_LIMIT_TENANT=unlimited",
			"FLOWGATE_CONSUMER_CONCURRENCY=3", "FLOWGATE_CONSUMER_BATCH=2")
		_, js := r.client()
		began := time.Now()
		admitted, refused := 0, 0
		for range 200 {
			switch _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); {
			case err == nil:
				admitted++
			default:
				if code, _ := refusal(err); code != 60503 {
					t.Fatal(err)
				}
				refused++
			}
		}
		time.Sleep(20 * time.Second)
		h := read[History](t, r, "/api/v1/history")
		if h.EverySeconds != 1 || len(h.Samples) < 19 {
			t.Fatalf("every %v s, %d samples", h.EverySeconds, len(h.Samples))
		}
		var sum history.Sample
		var counts uint64
		var changes []history.Transition
		for i, s := range h.Samples {
			if i > 0 {
				if d := s.At - h.Samples[i-1].At; d < 990 || d > 1010 {
					t.Errorf("sample %d comes %d ms after the one before", i, d)
				}
			}
			sum.Admitted += s.Admitted
			sum.Refused += s.Refused
			sum.Delivered += s.Delivered
			by := 0.0
			for reason, n := range s.RefusedBy {
				by += n
				if reason != "backlog" {
					t.Errorf("refused by %s", reason)
				}
			}
			if math.Abs(by-s.Refused) > 1e-6 {
				t.Errorf("refused %v, by reason %v", s.Refused, s.RefusedBy)
			}
			if s.Latency != nil {
				if len(s.Latency.Counts) != len(h.LatencyBounds)+1 {
					t.Fatalf("%d counts for %d bounds", len(s.Latency.Counts), len(h.LatencyBounds))
				}
				for _, n := range s.Latency.Counts {
					counts += n
				}
				if *s.LatencyP50 < .02/1.42 || *s.LatencyP50 > .04*1.42 || *s.LatencyP99 < *s.LatencyP50 {
					t.Errorf("latency p50 %v, p99 %v; a call takes 20 or 40 ms", *s.LatencyP50, *s.LatencyP99)
				}
			}
			if s.Low != 50 || s.High != 100 || s.Max != 200 || s.Cap != 6 || *s.RateConfigured != 40 || s.TargetLatency != nil || s.Breaker != "closed" || s.Depth != s.Waiting+s.InFlight+s.Delayed {
				t.Errorf("%+v", s)
			}
			changes = append(changes, s.Transitions...)
		}
		near := func(got float64, want int) bool { return math.Abs(got-float64(want)) < 0.5 }
		if !near(sum.Admitted, admitted) || !near(sum.Refused, refused) || !near(sum.Delivered, admitted) || counts != uint64(admitted) || refused == 0 {
			t.Errorf("admitted %v, refused %v, delivered %v, latencies %d; there were %d and %d", sum.Admitted, sum.Refused, sum.Delivered, counts, admitted, refused)
		}
		if len(changes) != 2 || changes[0].To != "pressured" || changes[0].Signal != "depth" || changes[0].Value != 100 || changes[0].Bound != 100 ||
			changes[1].To != "normal" || changes[1].Value != 50 || changes[1].Bound != 50 || changes[0].At < began.UnixMilli() || changes[1].At <= changes[0].At {
			t.Errorf("%+v", changes)
		}
		if h := read[History](t, r, "/api/v1/history?last=3"); len(h.Samples) != 3 {
			t.Errorf("the last three: %d", len(h.Samples))
		}
		if code, _ := get(r, "/api/v1/history?last=901"); code != http.StatusBadRequest {
			t.Errorf("?last=901: %d", code)
		}
		first, last := h.Samples[0], h.Samples[len(h.Samples)-1]
		if first.Level != "pressured" || first.Drain == nil || first.OldestAge == 0 || last.Level != "normal" || last.Depth != 0 || last.OldestAge != 0 || last.Latency != nil || last.LatencyP50 != nil {
			t.Errorf("first %+v\nlast %+v", first, last)
		}
		time.Sleep(15*time.Minute + 1500*time.Millisecond)
		if h := read[History](t, r, "/api/v1/history"); len(h.Samples) != 900 || h.Samples[0].At <= last.At {
			t.Errorf("%d samples after a quarter of an hour, the first is of %d", len(h.Samples), h.Samples[0].At)
		}
	})
}

// While the backlog is under pressure the status says since when, by what, and what who
// comes now is told.
func TestStatusUnderPressure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=50", "FLOWGATE_SHAPER_RATE=1/s", "FLOWGATE_SHAPER_ADAPTIVE=on", "FLOWGATE_CONSUMER_CONCURRENCY=3")
		_, js := r.client()
		if s := r.settled(); s.PressuredSince != nil || len(s.Signals) != 0 || s.Signals == nil || s.HintSeconds != 0 || s.Slots != 0 || s.Stale || s.Cap != 3 || *s.TargetLatency != 0.1 {
			t.Errorf("%+v", s)
		}
		r.admitted(js, "acme", 50)
		up := time.Now()
		time.Sleep(3 * time.Second)
		if _, err := js.Publish(t.Context(), "ingress.acme.orders", nil); err == nil {
			t.Error("let in")
		}
		s := r.settled()
		if s.PressuredSince == nil || s.PressuredSince.Sub(up).Abs() > 100*time.Millisecond || len(s.Signals) != 1 || s.Signals[0] != "depth" || s.HintSeconds <= 0 || s.Slots != 1 {
			t.Errorf("%+v, pressured since %v, it is since %v", s, s.PressuredSince, up)
		}
	})
}

// Why a message was refused is told, with what it was told; each tenant its own.
func TestRefusals(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=10", "FLOWGATE_SHAPER_RATE=1/s", "FLOWGATE_LIMIT_TENANT_OVERRIDES=globex=token-bucket:1/m")
		_, js := r.client()
		refused := func(subject string, opts ...jetstream.PublishOpt) time.Duration {
			t.Helper()
			_, err := js.Publish(t.Context(), subject, nil, opts...)
			if _, ok := errors.AsType[*jetstream.APIError](err); !ok {
				t.Fatalf("%s: %v", subject, err)
			}
			_, wait := refusal(err)
			return wait
		}
		r.admitted(js, "globex", 1)
		hint := refused("ingress.globex.orders", jetstream.WithMsgID("g-2"))
		r.admitted(js, "acme", 9)
		backlog := refused("ingress.acme.orders", jetstream.WithMsgID("a-10"))
		refused("ingress.no$tenant.orders")
		type row struct {
			tenant, reason, scope, rule, id, transport string
			depth                                      uint64
			wait                                       time.Duration
		}
		check := func(path string, want ...row) {
			t.Helper()
			list := read[RefusalList](t, r, "/api/v1/refusals"+path)
			if len(list.Refusals) != len(want) {
				t.Fatalf("%s: %+v", path, list)
			}
			for i, f := range list.Refusals {
				wait := time.Duration(-1)
				if f.RetryAfterMS != nil {
					wait = time.Duration(*f.RetryAfterMS) * time.Millisecond
				}
				if got := (row{f.Tenant, f.Reason, f.Scope, f.Rule, f.ID, f.Transport, f.Depth, wait}); got != want[i] || !f.Enforced || time.Since(f.At) > time.Second || f.Detail == "" {
					t.Errorf("%s: %+v, want %+v (%+v)", path, got, want[i], f)
				}
			}
		}
		g := row{"globex", "rate_limited", "tenant", "token-bucket:1/m", "g-2", "nats", 1, hint}
		a := row{"acme", "backlog", "", "backpressure high 10", "a-10", "nats", 10, backlog}
		check("?tenant=globex", g)
		check("?tenant=acme", a)
		check("?tenant=nobody")
		list := read[RefusalList](t, r, "/api/v1/refusals?limit=3")
		if len(list.Refusals) != 3 || list.Refusals[0].Reason != "invalid" || list.Refusals[0].RetryAfterMS != nil || list.Refusals[1].ID != "a-10" || list.Refusals[2].ID != "g-2" {
			t.Errorf("%+v", list)
		}
		for _, wrong := range []string{"?limit=0", "?limit=x", "?limit=101", "?tenant=a.b"} {
			if code, body := get(r, "/api/v1/refusals"+wrong); code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", wrong, code, body)
			}
		}
	})
}

// In shadow it is told what would have been refused.
func TestRefusalsInShadow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_MODE=shadow", "FLOWGATE_LIMIT_TENANT=token-bucket:1/m")
		_, js := r.client()
		r.admitted(js, "acme", 2)
		list := read[RefusalList](t, r, "/api/v1/refusals?tenant=acme")
		if len(list.Refusals) != 1 || list.Refusals[0].Enforced || list.Refusals[0].Reason != "rate_limited" {
			t.Errorf("%+v", list)
		}
	})
}

func TestTenants(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_SHAPER_RATE=1/m", "FLOWGATE_SHAPER_WEIGHTS=globex=5", "FLOWGATE_LIMIT_TENANT_OVERRIDES=initech=token-bucket:1/m")
		_, js := r.client()
		r.admitted(js, "acme", 30)
		time.Sleep(20 * time.Second)
		r.admitted(js, "globex", 20)
		r.admitted(js, "initech", 1)
		for range 4 {
			if _, err := js.Publish(t.Context(), "ingress.initech.orders", nil); err == nil {
				t.Fatal("let in")
			}
		}
		time.Sleep(time.Second)
		names := func(query string) (names string, total int) {
			t.Helper()
			list := read[TenantList](t, r, "/api/v1/tenants"+query)
			for _, s := range list.Tenants {
				names += s.Tenant + " "
			}
			return names, list.Total
		}
		for _, c := range []struct {
			query, want string
			total       int
		}{
			{"", "acme globex initech ", 3},
			{"?order=asc", "initech globex acme ", 3},
			{"?sort=tenant", "acme globex initech ", 3},
			{"?sort=tenant&order=desc", "initech globex acme ", 3},
			{"?sort=weight", "globex acme initech ", 3},
			{"?sort=refused", "initech acme globex ", 3},
			{"?sort=oldest", "acme globex initech ", 3},
			{"?sort=admitted&limit=1", "globex ", 3},
			{"?limit=1&offset=1", "globex ", 3},
			{"?offset=7", "", 3},
			{"?search=E", "acme globex initech ", 3},
			{"?search=ECH", "initech ", 1},
			{"?search=nobody", "", 0},
		} {
			if got, total := names(c.query); got != c.want || total != c.total {
				t.Errorf("%q: %q of %d, want %q of %d", c.query, got, total, c.want, c.total)
			}
		}
		list := read[TenantList](t, r, "/api/v1/tenants?sort=tenant").Tenants
		acme, globex, initech := list[0], list[1], list[2]
		if acme.Depth != 30 || acme.Weight != 1 || acme.Admitted != 0 || acme.OldestAge == nil || math.Abs(*acme.OldestAge-21) > 0.5 {
			t.Errorf("acme %+v", acme)
		}
		if globex.Depth != 20 || globex.Weight != 5 || globex.Admitted < 15 || globex.Admitted > 20 || globex.Refused != 0 {
			t.Errorf("globex %+v", globex)
		}
		if initech.Depth != 1 || initech.RefusedTotal != 4 || initech.Refused < 3 || initech.LastReason != "rate_limited" {
			t.Errorf("initech %+v", initech)
		}
		for _, wrong := range []string{"?sort=name", "?order=up", "?limit=0", "?limit=1001", "?offset=-1", "?limit=1e3"} {
			if code, body := get(r, "/api/v1/tenants"+wrong); code != http.StatusBadRequest || !contains(body, wrong[1:4]) {
				t.Errorf("%s: %d %s", wrong, code, body)
			}
		}
	})
}

// Depth and age that are shown are those of the broker, within a hundredth and a second,
// while messages come and go.
func TestDepthAndAgeAreTheBrokers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, "FLOWGATE_BACKPRESSURE_HIGH=100000", "FLOWGATE_SHAPER_RATE=500/s", "FLOWGATE_LIMIT_TENANT=unlimited")
		nc, _ := r.client()
		stream, err := r.control().Stream(t.Context(), "FLOWGATE")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		defer load.Wait()
		defer cancel()
		load.Go(func() { // 1000/s come, 500/s leave
			for i := 0; ctx.Err() == nil; i++ {
				if err := nc.Publish(fmt.Sprintf("ingress.tenant-%d.orders", i%50), nil); err != nil {
					t.Error(err)
					return
				}
				if i%10 == 9 {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
		time.Sleep(5 * time.Second)
		worst, oldest, seen := 0.0, 0.0, uint64(0)
		for second := range 30 {
			// The newest sample is compared with what the broker has at the same instant.
			shown := r.newest(t)
			time.Sleep(sampleEvery - time.Duration(time.Now().UnixMilli()-shown.At)*time.Millisecond + time.Millisecond)
			shown = r.newest(t)
			info, err := stream.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Now().UnixMilli() - shown.At; age > 1000 {
				t.Errorf("second %d: the sample is %d ms old", second, age)
			}
			depth := float64(info.State.Msgs)
			worst = max(worst, math.Abs(float64(shown.Depth)-depth)/depth)
			oldest = max(oldest, math.Abs(shown.OldestAge-time.Since(info.State.FirstTime).Seconds()))
			seen = max(seen, info.State.Msgs)
			time.Sleep(300 * time.Millisecond)
		}
		if seen < 10_000 {
			t.Errorf("the backlog grew to %d alone", seen)
		}
		t.Logf("depth is off by %.3f %% at most, age by %.3f s", 100*worst, oldest)
		if worst > 0.01 || oldest > 1 {
			t.Errorf("depth is off by %.3f %%, age by %.3f s", 100*worst, oldest)
		}
	})
}

// newest is the newest sample.
func (r *running) newest(t *testing.T) history.Sample {
	t.Helper()
	s, ok := r.running().history.Newest()
	if !ok {
		t.Fatal("no sample")
	}
	return s
}

// Over HTTP it is the same, for what never becomes a message too.
func TestRefusalsOverHTTP(t *testing.T) {
	r := start(t, "FLOWGATE_INGRESS_HTTP_LISTEN=127.0.0.1:0", "FLOWGATE_LIMIT_TENANT=token-bucket:1/h")
	post := func(id string) int {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.HTTPAddr()+"/v1/messages/acme/orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Idempotency-Key", id)
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if a, b, c := post("first"), post("second"), post(strings.Repeat("i", 256)); a != 202 || b != 429 || c != 400 {
		t.Fatal(a, b, c)
	}
	list := read[RefusalList](t, r, "/api/v1/refusals?tenant=acme").Refusals
	if len(list) != 2 || list[0].Reason != "invalid" || list[0].Transport != "http" || list[1].Reason != "rate_limited" || list[1].ID != "second" || list[1].Transport != "http" {
		t.Errorf("%+v", list)
	}
}
