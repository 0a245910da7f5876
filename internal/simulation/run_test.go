package simulation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowgate/flowgate/internal/arrivals"
	"github.com/flowgate/flowgate/internal/ingress"
)

func run(t testing.TB, cfg Config, sc Scenario) *Result {
	t.Helper()
	r, err := Run(t.Context(), cfg, sc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A pattern's tenants are those that a gateway's door takes.
func TestTenantsAreTheDoors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_-]{1,70}`), rapid.StringMatching(`[a-b.*> ]{1,3}`), rapid.StringN(1, 3, -1), rapid.Just("a\n")).Draw(t, "tenant")
		p := arrivals.Pattern{Groups: []arrivals.Group{{Tenant: name, Phases: []arrivals.Phase{{For: time.Second}}}}}
		if err := p.Validate(); (err == nil) != ingress.ValidTenant(name) {
			t.Fatalf("%q: %v; the door says %v", name, err, ingress.ValidTenant(name))
		}
	})
}

// Progress hears of each second, until all is delivered.
func TestProgress(t *testing.T) {
	sc := scenario(t, `{groups: [{tenant: a, rate: 10/s}]}`, 10*time.Second)
	var heard []time.Duration
	sc.Progress = func(at time.Duration) { heard = append(heard, at) }
	run(t, config(t), sc)
	for i, at := range heard {
		if at != time.Duration(i+1)*time.Second {
			t.Fatalf("%v, want each second", heard)
		}
	}
	if len(heard) < 10 {
		t.Errorf("%d seconds of 10", len(heard))
	}
}

// Whatever the values: each message is delivered, dead or given up, MAX is never passed, the
// rate never, and the same twice comes to the same.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		high := rapid.IntRange(5, 200).Draw(rt, "high")
		rate := rapid.IntRange(5, 200).Draw(rt, "rate")
		limit := rapid.SampledFrom([]string{"unlimited", "token-bucket:20/s", "fixed-window:10/s"}).Draw(rt, "limit")
		hold := rapid.SampledFrom([]string{"off", "500ms"}).Draw(rt, "hold")
		batch := rapid.SampledFrom([]int{1, 1, 7}).Draw(rt, "batch")
		order := rapid.SampledFrom([]string{"none", "tenant"}).Draw(rt, "order")
		cfg := config(t, fmt.Sprint("FLOWGATE_BACKPRESSURE_HIGH=", high), fmt.Sprint("FLOWGATE_SHAPER_RATE=", rate, "/s"), "FLOWGATE_LIMIT_TENANT="+limit,
			"FLOWGATE_INGRESS_HOLD="+hold, fmt.Sprint("FLOWGATE_CONSUMER_BATCH=", batch), "FLOWGATE_CONSUMER_ORDER="+order, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=2")
		sc := scenario(t, fmt.Sprintf(`{seed: %d, groups: [{tenant: t, tenants: 3, rate: %d/s}, {tenant: b, phases: [{for: 5s, rate: 1/s, burst: 50}]}]}`,
			rapid.Uint32().Draw(rt, "seed"), rapid.IntRange(1, 100).Draw(rt, "offered")), 10*time.Second)
		var err error
		model := rapid.SampledFrom([]string{"2ms", "latency=100ms,jitter=50%,fail=10%", "latency=5ms,down=3s@2s", "latency=30ms,knee=2,thrash=1,crash_at=4,recovery=1s", "latency=20s"}).Draw(rt, "consumer")
		if sc.Consumer, err = ParseConsumer(model, 1); err != nil {
			t.Fatal(err)
		}
		behaviour := rapid.SampledFrom([]string{"obey", "forget", "backoff", "insist", "obey,b=insist", "obey-each", "250ms,b=obey"}).Draw(rt, "producers")
		if sc.Producers, err = ParseProducers(behaviour); err != nil {
			t.Fatal(err)
		}
		sc.Producers.Patience = 30 * time.Second
		if rapid.Bool().Draw(rt, "poison") {
			sc.Poison = func(_ string, number int) bool { return number%10 == 0 }
		}
		r := run(t, cfg, sc)
		left := r.Admitted - r.Delivered - r.DeadLettered
		if r.Drain != nil && left != 0 || r.Drain == nil && left == 0 {
			rt.Fatalf("%d are left of %+v", left, r)
		}
		if r.Drain != nil && r.Offered != r.Admitted+r.Lost {
			rt.Fatalf("%d offered, %d admitted, %d given up", r.Offered, r.Admitted, r.Lost)
		}
		refused := uint64(0)
		for _, n := range r.Refused {
			refused += n
		}
		if r.Tries != r.Admitted+refused {
			rt.Fatalf("%d tries, %d admitted, %d refused", r.Tries, r.Admitted, refused)
		}
		if r.Depth.Peak > uint64(2*high) {
			rt.Fatalf("the depth was %d, MAX is %d", r.Depth.Peak, 2*high)
		}
		if most := r.Until*float64(rate) + float64(batch) + 1; float64(r.Deliveries) > most {
			rt.Fatalf("%d deliveries in %.1f s at %d/s", r.Deliveries, r.Until, rate)
		}
		one, _ := json.Marshal(r)
		two, _ := json.Marshal(run(t, cfg, sc))
		if string(one) != string(two) {
			rt.Fatalf("the same again is something else:\n%.600s\n%.600s", one, two)
		}
	})
}

// What fails whenever it is tried becomes a dead letter, and nothing else does.
func TestPoison(t *testing.T) {
	sc := scenario(t, `groups: [{tenant: a, spacing: even, phases: [{for: 10s, rate: 20/s}]}]`, 10*time.Second)
	sc.Poison = func(tenant string, number int) bool { return tenant == "a" && number%10 == 0 }
	r := run(t, config(t, "FLOWGATE_CONSUMER_MAX_ATTEMPTS=3"), sc)
	if dead := (r.Offered + 9) / 10; r.DeadLettered != dead || r.Delivered != r.Offered-dead || r.Retried != 2*dead {
		t.Errorf("%d offered, %d delivered, %d dead letters, %d tried again", r.Offered, r.Delivered, r.DeadLettered, r.Retried)
	}
}

// A duration is the pace of those who do not listen, and obey-each has no line.
func TestBehaviours(t *testing.T) {
	for _, c := range []struct {
		name      Behaviour
		told, and time.Duration
	}{{"obey-each", 1500 * time.Microsecond, 2 * time.Millisecond}, {"obey", time.Second, time.Second}, {"insist", time.Second, 100 * time.Millisecond}, {"250ms", time.Second, 250 * time.Millisecond}} {
		if wait, ok := c.name.Again(c.told, 1, 0.5); !ok || wait != c.and {
			t.Errorf("%s, told to wait %s, waits %s, %t", c.name, c.told, wait, ok)
		}
	}
	for _, wrong := range []string{"0s", "-1s", "250", "obey,a=soon"} {
		if _, err := ParseProducers(wrong); err == nil {
			t.Errorf("%q is taken for a behaviour", wrong)
		}
	}
	sc := scenario(t, `groups: [{tenant: a, phases: [{for: 1s, rate: 0, burst: 20}]}]`, time.Second)
	sc.Producers.Default = ObeyEach
	if r := run(t, config(t, "FLOWGATE_LIMIT_TENANT=token-bucket:5/s,burst=1", "FLOWGATE_SHAPER_RATE=unlimited"), sc); r.Lost != 0 || r.Tries < 100 {
		t.Errorf("%d tries, %d given up: all come back at once", r.Tries, r.Lost)
	}
}

// Those whom a limit refuses do not all come back at once.
func TestObedientStandInLine(t *testing.T) {
	sc := scenario(t, `groups: [{tenant: a, phases: [{for: 1s, rate: 0, burst: 500}]}]`, time.Second)
	r := run(t, config(t, "FLOWGATE_LIMIT_TENANT=token-bucket:50/s,burst=1", "FLOWGATE_SHAPER_RATE=unlimited"), sc)
	if r.Lost != 0 || r.Delivered != 500 || r.Tries > 1500 || r.Until < 9.9 || r.Until > 10.2 {
		t.Errorf("%d tries, %d given up, over after %.1f s", r.Tries, r.Lost, r.Until)
	}
}

func TestParseGoals(t *testing.T) {
	goals, err := ParseGoals("p99 lag under 5s, no refusals for tenants under 50/s and depth under 5000 ,drain under 2m, refusals under 1%,max latency under 1m")
	if err != nil || len(goals) != 6 {
		t.Fatalf("%+v, %v", goals, err)
	}
	drain := 60.0
	r := &Result{
		Length: 60, Until: 120, Drain: &drain, Depth: Depth{Peak: 4999}, Lag: Spread{P99: 4.9}, Latency: Spread{Max: 61},
		Tenants: []TenantResult{{Offered: 900, Busiest: 49}, {Offered: 100, Busiest: 50, RefusedMessages: 11}},
	}
	findings, miss := goals.Judge(r)
	for i, want := range []bool{true, true, true, true, false, false} {
		if findings[i].Reached != want {
			t.Errorf("%+v", findings[i])
		}
	}
	if miss <= 0 {
		t.Error("nothing is missing")
	}
	nobody, err := ParseGoals("no refusals for tenants under 1/s")
	if err != nil {
		t.Fatal(err)
	}
	if findings, _ := nobody.Judge(r); !strings.Contains(findings[0].Says, "no tenant is") {
		t.Errorf("a goal of nobody: %+v", findings[0])
	}
	for _, text := range []string{"", "p98 lag under 5s", "p99 lag under 5", "p99 lag over 5s", "p99 lag under 0s", "no refusals for tenants under unlimited", "refusals under 1", "depth under 0", "no refusals,", "drain under soon"} {
		if _, err := ParseGoals(text); err == nil {
			t.Errorf("%q is taken for a goal", text)
		}
	}
}

func TestSuggest(t *testing.T) {
	sc := scenario(t, `{seed: 3, groups: [{tenant: quiet, tenants: 5, rate: 20/s}, {tenant: noisy, phases: [{for: 10s, rate: 0}, {for: 20s, rate: 100/s}]}]}`, time.Minute)
	var err error
	if sc.Consumer, err = ParseConsumer("latency=40ms", 1); err != nil { // 100/s with 4 in flight
		t.Fatal(err)
	}
	suggest := func(goal string) *Suggestion {
		goals, err := ParseGoals(goal)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Suggest(t.Context(), config(t, "FLOWGATE_SHAPER_RATE=10/s", "FLOWGATE_BACKPRESSURE_HIGH=5000"), sc, goals, nil)
		if err != nil {
			t.Fatal(err)
		}
		again := run(t, s.Config(), sc)
		if _, miss := goals.Judge(again); (miss == 0) != s.Reached {
			t.Errorf("%s: reached is %v, and simulated again it lacks %g", goal, s.Reached, miss)
		}
		return s
	}
	if s := suggest("p99 lag under 3s, no refusals for tenants under 10/s"); !s.Reached || s.Config().Shaper.Rate.PerSecond() > 90 {
		t.Errorf("%+v", s.Values)
	}
	s := suggest("no refusals, max lag under 100ms")
	if s.Reached || !strings.Contains(strings.Join(s.Why, " "), "the consumer bears 100/s") || len(s.Findings) != 2 {
		t.Errorf("%+v", s)
	}
}
