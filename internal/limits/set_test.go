package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
)

func mustSet(t testing.TB, c Config) *Set {
	t.Helper()
	if c.MaxKeys == 0 {
		c.MaxKeys = 1000
	}
	s, err := New(c, func() int64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sixScopes has a limit of its own for each scope: the gateway's is 60, the API key's 10.
func sixScopes(t testing.TB) Config {
	return Config{
		Gateway: rules(t, "gcra:1/h,burst=60"), Service: rules(t, "fixed-window:50/d"), Tenant: rules(t, "token-bucket:1/m,burst=40"),
		User: rules(t, "sliding-window:30/d"), IP: rules(t, "sliding-window-log:20/d"), APIKey: rules(t, "sliding-window-counter:10/d"),
	}
}

var everyone = Identity{Service: "orders", Tenant: "acme", User: "ann", IP: "192.0.2.1", APIKey: "k1"}

// admit is a look and, if it passes, the taking.
func admit(s *Set, now int64, id Identity, cost int64) (Excess, bool) {
	e, within := s.Look(now, &id, cost)
	if within {
		s.Take(now, cost)
	}
	return e, within
}

func left(s *Set, id Identity) map[Scope]uint64 {
	m := map[Scope]uint64{}
	for _, q := range s.Quotas(0, &id) {
		m[q.Scope] = q.Remaining
	}
	return m
}

func TestAllScopesOrNone(t *testing.T) {
	s := mustSet(t, sixScopes(t))
	if _, within := admit(s, 0, everyone, 4); !within {
		t.Fatal("refused while nothing is used")
	}
	want := map[Scope]uint64{Gateway: 56, Service: 46, Tenant: 36, User: 26, IP: 16, APIKey: 6}
	if diff := cmp.Diff(want, left(s, everyone)); diff != "" {
		t.Errorf("after 4 (-want +got):\n%s", diff)
	}
	if e, within := admit(s, 0, everyone, 7); within || e.Scope != APIKey || e.Key != "k1" {
		t.Errorf("7 more: %+v, %v; want the API key's limit of 10", e, within)
	}
	if diff := cmp.Diff(want, left(s, everyone)); diff != "" {
		t.Errorf("a refusal took something (-want +got):\n%s", diff)
	}
	// Without a key the scope does not apply, and nothing is counted for it.
	someone := Identity{Tenant: "acme", Service: "orders"}
	if _, within := admit(s, 0, someone, 30); !within {
		t.Error("refused by a scope for which the message has no key")
	}
	want = map[Scope]uint64{Gateway: 26, Service: 16, Tenant: 6, User: 26, IP: 16, APIKey: 6}
	if diff := cmp.Diff(want, left(s, everyone)); diff != "" {
		t.Errorf("after 30 without user, IP and key (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[Scope]uint64{Gateway: 26, Service: 16, Tenant: 6}, left(s, someone)); diff != "" {
		t.Errorf("the quotas of someone without a user (-want +got):\n%s", diff)
	}
	if e, within := s.Look(0, &everyone, -1); within || e.Wait != algorithms.Never {
		t.Errorf("fewer than nothing: %+v, %v", e, within)
	}
}

func TestTheLongestWaitIsNamed(t *testing.T) {
	spent := func(c Config) *Set {
		s := mustSet(t, c)
		if _, within := admit(s, 0, everyone, 1); !within {
			t.Fatal("refused while nothing is used")
		}
		return s
	}
	cases := []struct {
		name string
		c    Config
		cost int64
		want Excess
	}{
		{"the gateway's, without a key", Config{Gateway: rules(t, "gcra:1/h"), Tenant: rules(t, "gcra:1/m")}, 1, Excess{Gateway, "", rules(t, "gcra:1/h")[0], time.Hour}},
		{"a later scope's", Config{Gateway: rules(t, "gcra:1/m"), Tenant: rules(t, "gcra:1/h"), APIKey: rules(t, "gcra:1/s")}, 1, Excess{Tenant, "acme", rules(t, "gcra:1/h")[0], time.Hour}},
		{"the wider of two that wait as long", Config{Service: rules(t, "gcra:1/h"), User: rules(t, "gcra:1/h")}, 1, Excess{Service, "orders", rules(t, "gcra:1/h")[0], time.Hour}},
		{"never", Config{Tenant: rules(t, "gcra:1/h"), User: rules(t, "gcra:1/s"), IP: rules(t, "gcra:1/h,burst=9")}, 2, Excess{Tenant, "acme", rules(t, "gcra:1/h")[0], algorithms.Never}},
		{"never, later", Config{Tenant: rules(t, "gcra:1/d,burst=2"), User: rules(t, "gcra:1/s")}, 2, Excess{User, "ann", rules(t, "gcra:1/s")[0], algorithms.Never}},
		{"one rule of several", Config{Tenant: rules(t, "gcra:1/s;gcra:1/m;gcra:1/h,burst=9")}, 1, Excess{Tenant, "acme", rules(t, "gcra:1/m")[0], time.Minute}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := spent(c.c)
			e, within := s.Look(0, &everyone, c.cost)
			if diff := cmp.Diff(c.want, e); within || diff != "" {
				t.Errorf("within %v (-want +got):\n%s", within, diff)
			}
			if e.Wait == algorithms.Never {
				return
			}
			if _, within := s.Look(int64(e.Wait)-1, &everyone, c.cost); within {
				t.Error("it passes 1 ns early")
			}
			if e, within := s.Look(int64(e.Wait), &everyone, c.cost); !within {
				t.Errorf("after the wait: %+v", e)
			}
		})
	}
}

func TestQuotas(t *testing.T) {
	s := mustSet(t, Config{Gateway: rules(t, "gcra:1/s,burst=5"), Tenant: rules(t, "fixed-window:10/m;gcra:1/m,burst=3")})
	admit(s, 15e9, everyone, 2)
	got := s.Quotas(16e9, &everyone)
	want := []Quota{
		{Gateway, rules(t, "gcra:1/s,burst=5")[0], 4, time.Second},
		{Tenant, rules(t, "fixed-window:10/m")[0], 8, 44 * time.Second},
		{Tenant, rules(t, "gcra:1/m,burst=3")[0], 1, 119 * time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := mustSet(t, Config{}).Quotas(0, &everyone); got != nil {
		t.Errorf("without limits: %v", got)
	}
}

func TestApplyIsInForceAndKeepsWhatWasUsed(t *testing.T) {
	s := mustSet(t, sixScopes(t))
	admit(s, 0, everyone, 5)
	user := s.scope(User).keyed.Load()
	if err := s.Apply(0, live(t, "tenant acme=token-bucket:1/m,burst=6|ip *=unlimited")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[Scope]uint64{Gateway: 55, Service: 45, Tenant: 1, User: 25, APIKey: 5}, left(s, everyone)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e, within := s.Look(0, &everyone, 2); within || e.Scope != Tenant || e.Rule.Burst != 6 {
		t.Errorf("%+v, %v; want the new rule to refuse", e, within)
	}
	if s.scope(User).keyed.Load() != user {
		t.Error("the store of a scope that did not change is another one")
	}
	// Nobody looks through the keys of a scope that did not change: those that are idle
	// are there still.
	if err := s.Apply(int64(48*time.Hour), live(t, "tenant acme=unlimited")); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Counts() {
		if want := map[Scope]int{User: 1, Service: 1, Gateway: 1, APIKey: 1}[c.Scope]; c.Keys != want {
			t.Errorf("%d keys of scope %s, want %d", c.Keys, c.Scope, want)
		}
	}
	s = mustSet(t, sixScopes(t))
	admit(s, 0, everyone, 5)
	if err := s.Apply(0, live(t, "tenant acme=token-bucket:1/m,burst=6|ip *=unlimited")); err != nil {
		t.Fatal(err)
	}
	// Gone, they leave the environment's.
	if err := s.Apply(0, nil); err != nil {
		t.Fatal(err)
	}
	if got := left(s, everyone); got[Tenant] != 35 || got[IP] != 20 {
		t.Errorf("%v; want 35 of the tenant's and all of the IP's, which counted nothing meanwhile", got)
	}
	// A scope without limits gets one, live.
	s = mustSet(t, Config{})
	if len(s.Quotas(0, &everyone)) != 0 || rulesOf(s, User, "ann") != nil {
		t.Error("limits without a limit")
	}
	if err := s.Apply(0, live(t, "user ann=gcra:1/h|gateway *=gcra:9/h")); err != nil {
		t.Fatal(err)
	}
	admit(s, 0, everyone, 1)
	if e, within := s.Look(0, &everyone, 1); within || e.Scope != User || rulesOf(s, User, "ben") != nil {
		t.Errorf("%+v, %v", e, within)
	}
}

func (s *Set) scope(name Scope) *scope {
	for _, sc := range s.scopes {
		if sc.name == name {
			return sc
		}
	}
	return nil
}

// One wrong entry, and none of them is in force.
func TestApplyAllOrNone(t *testing.T) {
	s := mustSet(t, sixScopes(t))
	wrong := append(live(t, "gateway *=gcra:1/s|service *=unlimited"), Entry{Scope: APIKey, Key: "k1", Rules: algorithms.Rules{{Algorithm: "magic"}}})
	if err := s.Apply(0, wrong); err == nil {
		t.Fatal("a wrong entry was accepted")
	}
	if got := rulesOf(s, Gateway, gatewayKey).String(); got != "gcra:1/h,burst=60" {
		t.Errorf("the gateway is under %s", got)
	}
	if _, err := New(Config{User: algorithms.Rules{{Algorithm: "magic"}}, MaxKeys: 1}, func() int64 { return 0 }); err == nil {
		t.Error("a set with a wrong rule was made")
	}
}

func TestMaxKeys(t *testing.T) {
	s := mustSet(t, Config{Tenant: rules(t, "gcra:1/h,burst=2"), TenantOverrides: Overrides{{"named", rules(t, "gcra:1/h,burst=2")}}, MaxKeys: 2})
	admitted := 0
	for i := range 10 {
		for range 3 {
			if _, within := admit(s, 0, Identity{Tenant: fmt.Sprint(i)}, 1); within {
				admitted++
			}
		}
	}
	if admitted != 6 {
		t.Errorf("%d admitted of two keys and an overflow, each with a burst of 2", admitted)
	}
	if _, within := admit(s, 0, Identity{Tenant: "named"}, 2); !within {
		t.Error("a tenant with an override shares the overflow")
	}
	want := Count{Tenant, 3, 24} // eight keys without room, each three times: 2 admitted, 22 refused
	for _, c := range s.Counts() {
		if c.Scope == Tenant && c != want || c.Scope != Tenant && c != (Count{Scope: c.Scope}) {
			t.Errorf("%+v, want %+v and nothing of the others", c, want)
		}
	}
}

// Over changes under load: what is admitted is counted, and never more than the largest
// rule allows but for one message that is between its look and its taking.
func TestApplyUnderLoad(t *testing.T) {
	s := mustSet(t, Config{Tenant: rules(t, "token-bucket:1/d,burst=100")})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	var door sync.Mutex
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				door.Lock()
				if _, within := admit(s, 0, everyone, 1); within {
					admitted.Add(1)
				}
				door.Unlock()
			}
		})
	}
	for burst := 101; burst <= 300; burst++ {
		e := Entry{Scope: Tenant, Key: "acme", Rules: rules(t, fmt.Sprintf("token-bucket:1/d,burst=%d", burst))}
		if err := s.Apply(0, []Entry{e}); err != nil {
			t.Fatal(err)
		}
		if got := rulesOf(s, Tenant, "acme")[0].Burst; got != uint64(burst) {
			t.Fatalf("a burst of %d in force, want %d", got, burst)
		}
	}
	close(stop)
	wg.Wait()
	for {
		if _, within := admit(s, 0, everyone, 1); !within {
			break
		}
		admitted.Add(1)
	}
	if admitted.Load() != 300 {
		t.Errorf("%d admitted, want 300", admitted.Load())
	}
}

// In about a minute the keys that are idle are gone.
func TestRunSweeps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		base := time.Now()
		s, err := New(Config{Tenant: rules(t, "gcra:1/s;fixed-window:9/m"), User: rules(t, "sliding-window:5/s"), MaxKeys: 10_000}, func() int64 { return int64(time.Since(base)) })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		for i := range 1000 {
			admit(s, int64(time.Since(base)), Identity{Tenant: fmt.Sprint(i), User: fmt.Sprint(i)}, 1)
		}
		counts := func() (tenants, users int) {
			for _, c := range s.Counts() {
				switch c.Scope {
				case Tenant:
					tenants = c.Keys
				case User:
					users = c.Keys
				}
			}
			return tenants, users
		}
		time.Sleep(50 * time.Second)
		if tenants, users := counts(); tenants != 1000 || users > 500 {
			t.Errorf("after 50 s %d tenants and %d users are held; the tenants' windows are open", tenants, users)
		}
		time.Sleep(130 * time.Second)
		if tenants, users := counts(); tenants != 0 || users != 0 {
			t.Errorf("after 3 minutes %d tenants and %d users are held", tenants, users)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkAdmission is one message's look and taking: 6 scopes, 8 rules, one instant.
func BenchmarkAdmission(b *testing.B) {
	for _, tenants := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(tenants, " tenants"), func(b *testing.B) { benchmarkAdmission(b, tenants) })
	}
}

func benchmarkAdmission(b *testing.B, tenants int) {
	s := mustSet(b, Config{
		Gateway: rules(b, "token-bucket:1000000000/s"), Service: rules(b, "gcra:1000000000/s"),
		Tenant: rules(b, "token-bucket:1000000/s;fixed-window:1000000000/m"),
		User:   rules(b, "token-bucket:1000000/s;sliding-window-counter:1000000000/m"),
		IP:     rules(b, "leaky-bucket:1000000/s"), APIKey: rules(b, "token-bucket:1000000/s"), MaxKeys: 1_000_000,
	})
	ids := make([]Identity, tenants)
	for at, i := range rand.New(rand.NewPCG(1, 2)).Perm(tenants) {
		// A message that has just come in is in one piece, and in the processor's cache:
		// those that are asked for one after the other lie one after the other.
		m := fmt.Sprintf("service-%02dtenant-%08duser-%08d10.%03d.%03d.%03d%016x", i%20, i, i, i>>16, i>>8&255, i&255, i*7919)
		ids[at] = Identity{Service: m[:10], Tenant: m[10:25], User: m[25:38], IP: m[38:52], APIKey: m[52:]}
		if _, within := admit(s, 0, ids[at], 1); !within {
			b.Fatal("refused")
		}
	}
	now, i := int64(time.Second), 0
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		i = (i + 1) % tenants
		if _, within := s.Look(now, &ids[i], 1); within {
			s.Take(now, 1)
		}
	}
}

// rulesOf are the rules that a key is under.
func rulesOf(s *Set, scope Scope, key string) (rules algorithms.Rules) {
	var id Identity
	switch scope {
	case Service:
		id.Service = key
	case Tenant:
		id.Tenant = key
	case User:
		id.User = key
	case IP:
		id.IP = key
	case APIKey:
		id.APIKey = key
	}
	for _, q := range s.Quotas(0, &id) {
		if q.Scope == scope {
			rules = append(rules, q.Rule)
		}
	}
	return rules
}
