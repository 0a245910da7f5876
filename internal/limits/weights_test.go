package limits

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/flowgate/flowgate/internal/bubble"
)

// weighed is a Live that notes the weights it applies.
type weighed struct {
	*followed
	server *server.Server
	mu     sync.Mutex
	list   []Weight
	calls  int
}

func weigh(t *testing.T, s *server.Server) *weighed {
	t.Helper()
	w := &weighed{server: s}
	w.followed = followWith(t, s, func(d *LiveDeps) {
		d.ApplyWeights = func(list []Weight) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.list, w.calls = list, w.calls+1
		}
		d.CheckWeight = func(tenant string, weight uint64) error {
			if !tenantName.MatchString(tenant) || weight < 1 || weight > 1000 {
				return fmt.Errorf("%s=%d is no weight", tenant, weight)
			}
			return nil
		}
	})
	return w
}

func (w *weighed) weighs(want string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range [][]Weight{w.list, w.Weights()} {
		var words []string
		for _, e := range list {
			words = append(words, fmt.Sprintf("%s=%d", e.Tenant, e.Weight))
		}
		if got := strings.Join(words, " "); got != want {
			w.t.Errorf("in force is %q, want %q", got, want)
		}
	}
}

func (w *weighed) give(tenant string, weight uint64) {
	w.t.Helper()
	stored, err := w.SetWeight(w.t.Context(), Weight{Tenant: tenant, Weight: weight, Author: "ann", Reason: "because"})
	if err != nil || stored.Tenant != tenant || stored.Weight != weight || time.Since(stored.At) > 5*time.Second {
		w.t.Fatalf("%+v, %v", stored, err)
	}
}

// Weights and limits share the bucket and do not touch each other.
func TestWeightsBesideLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := bubble.Server(t)
		w := weigh(t, s)
		w.weighs("")
		w.give("acme", 5)
		w.weighs("acme=5")
		limited := w.table.count()
		w.give("globex", 2)
		if n := w.table.count(); n != limited {
			t.Errorf("a weight applied the limits %d times", n-limited)
		}
		w.set(Tenant, "acme", "token-bucket:1/s")
		weighted := w.calls
		w.set(Tenant, "acme", "token-bucket:2/s")
		if w.calls != weighted {
			t.Errorf("a limit applied the weights %d times", w.calls-weighted)
		}
		c, err := w.Replace(t.Context(), nil)
		if err != nil || len(c.Removed) != 1 || len(c.Cleared) != 0 {
			t.Errorf("%+v, %v", c, err)
		}
		w.weighs("acme=5 globex=2")
		// Another life, and another gateway.
		weigh(t, s).weighs("acme=5 globex=2")
		if err := w.DeleteWeight(t.Context(), "acme"); err != nil {
			t.Error(err)
		}
		w.weighs("globex=2")
		w.holds("")
		if err := w.DeleteWeight(t.Context(), "acme"); !errors.Is(err, ErrNoWeight) {
			t.Errorf("deleted twice: %v", err)
		}
		if n := len(w.Broken()) + len(w.BrokenWeights()); n != 0 {
			t.Errorf("%d broken entries", n)
		}
	})
}

// Limits that cannot be put in force hold no weight up.
func TestAWeightWhileTheLimitsAreRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := weigh(t, bubble.Server(t))
		w.table.refuse(errors.New("too many"))
		if _, err := w.Set(t.Context(), entry(t, Tenant, "acme", "token-bucket:1/s")); err == nil {
			t.Error("a refused limit was set")
		}
		w.give("acme", 5)
		w.weighs("acme=5")
		if w.Stale() == nil || w.WeightsStale() != nil {
			t.Errorf("stale: limits %v, weights %v", w.Stale(), w.WeightsStale())
		}
		w.table.refuse(nil)
		w.give("acme", 6) // and the limits are tried again
		w.holds("tenant/acme=token-bucket:1/s")
	})
}

func TestAWrongWeightIsNotStored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := weigh(t, bubble.Server(t))
		for _, wrong := range []Weight{
			{Tenant: "acme", Weight: 0}, {Tenant: "acme", Weight: 1001}, {Tenant: "a.b", Weight: 1}, {Weight: 1},
			{Tenant: "acme", Weight: 1, Reason: "a\nb"}, {Tenant: "acme", Weight: 1, Author: strings.Repeat("x", 101)},
		} {
			_, err := w.SetWeight(t.Context(), wrong)
			if _, ok := errors.AsType[*InvalidError](err); !ok {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
		if err := w.DeleteWeight(t.Context(), "a.b"); err == nil || errors.Is(err, ErrNoWeight) {
			t.Errorf("%v", err)
		}
		if keys, err := w.bucket.ListKeys(t.Context()); err != nil {
			t.Error(err)
		} else {
			for k := range keys.Keys() {
				t.Errorf("%s is stored", k)
			}
		}
	})
}

// Something unreadable leaves the last good weight; it is said once, and listed until
// it is gone.
func TestBrokenWeightsKeepTheLastGoodOne(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":         "{",
		"nothing":         "",
		"a bare number":   "5",
		"no weight":       `{"author":"ann"}`,
		"nought":          `{"weight":0}`,
		"too much":        `{"weight":1001}`,
		"a text":          `{"weight":"5"}`,
		"a part":          `{"weight":1.5}`,
		"another's":       `{"tenant":"globex","weight":1}`,
		"several lines":   `{"weight":1,"reason":"a\nb"}`,
		"no UTF-8":        "{\"weight\":1,\"author\":\"\xff\"}",
		"a negative one":  `{"weight":-1}`,
		"more than it is": `{"weight":99999999999999999999}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := bubble.Server(t)
				w := weigh(t, s)
				w.give("acme", 5)
				w.foreign("weight.YWNtZQ", value)
				synctest.Wait()
				w.weighs("acme=5")
				b := w.BrokenWeights()
				if len(b) != 1 || b[0].Name != "weight.YWNtZQ" || b[0].Error == "" || !b[0].Kept || b[0].Revision != 2 || len(w.Broken()) != 0 {
					t.Errorf("broken: %+v, and of the limits %+v", b, w.Broken())
				}
				time.Sleep(time.Minute)
				if n := strings.Count(w.log.String(), "an entry of the live weights is not used"); n != 1 {
					t.Errorf("logged %d times:\n%s", n, w.log)
				}
				g := weigh(t, s)
				g.weighs("")
				if b := g.BrokenWeights(); len(b) != 1 || b[0].Kept {
					t.Errorf("broken at the start: %+v", b)
				}
				// It can be deleted, and set anew.
				if err := g.DeleteWeight(t.Context(), "acme"); err != nil {
					t.Error(err)
				}
				g.give("acme", 7)
				synctest.Wait()
				for _, l := range []*weighed{w, g} {
					l.weighs("acme=7")
					if len(l.BrokenWeights()) != 0 {
						t.Error("still broken")
					}
				}
			})
		})
	}
}

// Who has no use for weights passes them over.
func TestWeightsWithoutUse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.foreign("weight.YWNtZQ", `{"weight":0}`)
		f.set(Tenant, "acme", "token-bucket:1/s")
		f.holds("tenant/acme=token-bucket:1/s")
		if n := len(f.Broken()) + len(f.BrokenWeights()) + len(f.Weights()); n != 0 {
			t.Errorf("%d entries", n)
		}
	})
}

// A bucket that is made anew brings its own.
func TestWeightsOfABucketMadeAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := weigh(t, bubble.Server(t))
		for i := range uint64(5) {
			w.give("acme", i+1)
		}
		w.foreign("weight.YWNtZQ", "{")
		if err := w.js.DeleteKeyValue(t.Context(), "LIMITS"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.weighs("acme=5")
		if err := w.WeightsStale(); err == nil || !strings.Contains(err.Error(), "is gone") {
			t.Errorf("stale: %v", err)
		}
		follow(t, w.server) // makes it
		w.give("globex", 3)
		w.weighs("globex=3")
	})
}
