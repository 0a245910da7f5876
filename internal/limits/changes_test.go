package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowgate/flowgate/internal/bubble"
)

// A change is in force when the call returns, not a moment later.
func TestAChangeIsInForceWhenItReturns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.holds("")
		e := f.set(Tenant, "acme", "token-bucket:10/s")
		f.holds("tenant/acme=token-bucket:10/s")
		if !e.At.Equal(time.Now().Truncate(time.Millisecond)) || e.Revision == 0 {
			t.Errorf("stored as %+v", e)
		}
		f.set(Gateway, "*", "token-bucket:1000/s")
		f.set(Tenant, "acme", "token-bucket:20/s")
		f.holds("gateway/*=token-bucket:1000/s tenant/acme=token-bucket:20/s")
		f.set(Tenant, "acme", "unlimited")
		f.holds("gateway/*=token-bucket:1000/s tenant/acme=unlimited")
		if err := f.Delete(t.Context(), Gateway, "*"); err != nil {
			t.Error(err)
		}
		f.holds("tenant/acme=unlimited")
		if err := f.Delete(t.Context(), Gateway, "*"); err == nil || !strings.Contains(err.Error(), "no such live limit for gateway *") {
			t.Errorf("deleted twice: %v", err)
		}
	})
}

func TestReplaceMakesTheSetExactlyThis(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.set(Tenant, "stays", "token-bucket:1/s")
		f.set(Tenant, "changes", "token-bucket:1/s")
		f.set(Tenant, "goes", "token-bucket:1/s")
		f.foreign("tenant.broken", "{")
		f.foreign("x", "{")
		before := f.List()
		c, err := f.Replace(t.Context(), []Entry{
			entry(t, Tenant, "stays", "token-bucket:1/s"), entry(t, Tenant, "changes", "token-bucket:2/s"), entry(t, IP, "192.0.2.7", "token-bucket:3/s"),
		})
		if err != nil {
			t.Fatal(err)
		}
		f.holds("tenant/changes=token-bucket:2/s tenant/stays=token-bucket:1/s ip/192.0.2.7=token-bucket:3/s")
		if text(c.Added) != "ip/192.0.2.7=token-bucket:3/s" || text(c.Changed) != "tenant/changes=token-bucket:2/s" ||
			text(c.Removed) != "tenant/goes=token-bucket:1/s" || strings.Join(c.Cleared, " ") != "tenant.broken x" || text(c.Unchanged) != "tenant/stays=token-bucket:1/s" {
			t.Errorf("%+v", c)
		}
		if b := f.Broken(); len(b) != 0 {
			t.Errorf("still broken: %+v", b)
		}
		if now := f.List(); now[1].Revision != before[2].Revision {
			t.Error("what did not change was written again")
		}
		// One wrong entry, and nothing happens; all that is wrong is said.
		_, err = f.Replace(t.Context(), []Entry{
			entry(t, Tenant, "new", "token-bucket:1/s"), entry(t, Tenant, "a.b", "token-bucket:1/s"), entry(t, Gateway, "x", "token-bucket:1/s"), entry(t, Tenant, "new", "token-bucket:1/s"),
		})
		for _, part := range []string{"entry 2:", `"a.b" is not a tenant`, "entry 3:", "has only the key *", "entry 4 (tenant new): stands twice"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		f.holds("tenant/changes=token-bucket:2/s tenant/stays=token-bucket:1/s ip/192.0.2.7=token-bucket:3/s")
		if _, err := f.Replace(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f.holds("")
	})
}

// A thousand changes from many sides at once: each is in force when its call
// returns, and the bucket and the gateway agree at the end.
func TestAThousandChanges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := bubble.Server(t)
		f := follow(t, s)
		var group sync.WaitGroup
		for side := range 10 {
			group.Go(func() {
				key := fmt.Sprintf("t%d", side)
				for i := range 100 {
					limit := fmt.Sprintf("token-bucket:%d/s", i+1)
					if _, err := f.Set(context.Background(), Entry{Scope: Tenant, Key: key, Rules: entry(t, Tenant, key, limit).Rules}); err != nil {
						t.Error(err)
						return
					}
					if !strings.Contains(f.table.text()+" ", fmt.Sprintf("tenant/%s=%s ", key, limit)) {
						t.Errorf("%s of %s is not in force", limit, key)
					}
				}
			})
		}
		group.Wait()
		var want []string
		for side := range 10 {
			want = append(want, fmt.Sprintf("tenant/t%d=token-bucket:100/s", side))
		}
		f.holds(strings.Join(want, " "))
		follow(t, s).holds(strings.Join(want, " "))

		many := make([]Entry, 1000)
		for i := range many {
			many[i] = entry(t, User, fmt.Sprintf("user %04d", i), "token-bucket:1/s")
		}
		calls := f.table.count()
		if c, err := f.Replace(t.Context(), many); err != nil || len(c.Added) != 1000 || len(c.Removed) != 10 {
			t.Errorf("%v, %d added, %d removed", err, len(c.Added), len(c.Removed))
		}
		if n := len(f.List()); n != 1000 {
			t.Errorf("%d in force", n)
		}
		if n := f.table.count() - calls; n != 1 {
			t.Errorf("a set took effect in %d steps", n)
		}
		if g := follow(t, s); len(g.List()) != 1000 {
			t.Errorf("%d are read at the start", len(g.List()))
		}
	})
}

// Who cannot hear of its change in time is told that it may come.
func TestAChangeThatIsNotHeardOf(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.set(Tenant, "acme", "token-bucket:1/s")
		f.hold(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := f.Set(ctx, entry(t, Tenant, "acme", "token-bucket:2/s"))
		if err == nil || !strings.Contains(err.Error(), "take effect later") {
			t.Errorf("%v", err)
		}
		f.hold(false)
		synctest.Wait()
		f.holds("tenant/acme=token-bucket:2/s")
	})
}

// What the gateway cannot put in force is not said to be so, and can be taken back.
func TestAChangeThatCannotBeInForce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.set(Tenant, "acme", "token-bucket:1/s")
		f.table.refuse(errors.New("too many"))
		const says = "not known to be in force: too many"
		if _, err := f.Set(t.Context(), entry(t, Tenant, "globex", "token-bucket:2/s")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("set: %v", err)
		}
		if err := f.Delete(t.Context(), Tenant, "acme"); err == nil || !strings.Contains(err.Error(), "may be in force still: too many") {
			t.Errorf("delete: %v", err)
		}
		if _, err := f.Replace(t.Context(), []Entry{entry(t, Tenant, "initech", "token-bucket:2/s")}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("replace: %v", err)
		}
		f.holds("tenant/acme=token-bucket:1/s")
		if err := f.Stale(); err == nil || err.Error() != "too many" {
			t.Errorf("stale: %v", err)
		}
		f.table.refuse(nil)
		f.set(Tenant, "globex", "token-bucket:3/s")
		f.holds("tenant/globex=token-bucket:3/s tenant/initech=token-bucket:2/s")
		if err := f.Stale(); err != nil {
			t.Errorf("stale: %v", err)
		}
	})
}

// More limits than can be numbered are refused before they are stored.
func TestTooManyLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		many := make([]Entry, maxEntries+1)
		for i := range many {
			many[i] = entry(t, User, fmt.Sprint(i), "token-bucket:1/s")
		}
		const says = "60001 limits of the scope user are too many"
		invalid := func(err error) bool {
			_, ok := errors.AsType[*InvalidError](err)
			return ok && strings.Contains(err.Error(), says)
		}
		if _, err := f.Replace(t.Context(), many); !invalid(err) {
			t.Errorf("replace: %v", err)
		}
		f.mu.Lock()
		for _, e := range many[1:] {
			f.slots[bucketKey(User, e.Key)] = slot[Entry]{entry: e, good: true}
		}
		f.mu.Unlock()
		if _, err := f.Set(t.Context(), many[0]); !invalid(err) {
			t.Errorf("set: %v", err)
		}
		f.set(User, "7", "token-bucket:2/s")
		f.set(Tenant, "acme", "token-bucket:2/s")
	})
}
