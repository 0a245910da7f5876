package admission

import (
	"testing"
	"time"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/ingress"
	"github.com/flowgate/flowgate/internal/limits"
)

// The door is told which limit is exceeded, whose it is, after what time a retry passes, and
// when none ever will.
func TestLimits(t *testing.T) {
	rules, err := algorithms.ParseRules("token-bucket:1/s,burst=2")
	if err != nil {
		t.Fatal(err)
	}
	now := int64(time.Hour)
	set, err := limits.New(limits.Config{Tenant: rules, MaxKeys: 10}, func() int64 { return now })
	if err != nil {
		t.Fatal(err)
	}
	l, acme := Limits{set}, ingress.Identity{Tenant: "acme"}
	if _, ok := l.Look(now, acme, 2); !ok {
		t.Fatal("two of a burst of two are refused")
	}
	l.Take(now, acme, 2)
	e, ok := l.Look(now, acme, 1)
	if want := (ingress.Excess{Scope: "tenant", Key: "acme", Limit: rules[0].String(), Wait: time.Second}); ok || e != want {
		t.Errorf("%+v, want %+v", e, want)
	}
	if e, ok := l.Look(now, acme, 3); ok || e.Wait != ingress.NoRetry {
		t.Errorf("more than the burst: %+v", e)
	}
	if q := l.Quotas(now, acme); len(q) != 1 || q[0].Scope != "tenant" || q[0].Remaining != 0 || q[0].Capacity != 2 {
		t.Errorf("quotas %+v", q)
	}
}
