package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/internal/algorithms"
	"github.com/flowgate/flowgate/internal/bubble"
)

// table is what Apply was called with.
type table struct {
	mu    sync.Mutex
	list  []Entry
	calls int
	fails error
}

func (a *table) apply(list []Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.fails == nil {
		a.list = list
	}
	return a.fails
}

// refuse lets apply fail, or no longer.
func (a *table) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = err
}

// count is how often something was applied.
func (a *table) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

// text is what is in force, a word an entry.
func (a *table) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return text(a.list)
}

func text(list []Entry) string {
	var words []string
	for _, e := range list {
		words = append(words, fmt.Sprintf("%s/%s=%s", e.Scope, e.Key, e.Rules))
	}
	return strings.Join(words, " ")
}

// followed is a Live at work on a bucket.
type followed struct {
	*Live
	t      *testing.T
	table  *table
	bucket jetstream.KeyValue
	js     jetstream.JetStream
	log    *bubble.Log
}

func connect(t *testing.T, s *server.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// follow loads and follows the bucket LIMITS of a server.
func follow(t *testing.T, s *server.Server) *followed {
	t.Helper()
	return followWith(t, s, nil)
}

func followWith(t *testing.T, s *server.Server, change func(*LiveDeps)) *followed {
	t.Helper()
	nc, js := connect(t, s)
	return followOver(t, nc, js, change)
}

// followOver uses a connection that is there; change may be nil.
func followOver(t *testing.T, nc *nats.Conn, js jetstream.JetStream, change func(*LiveDeps)) *followed {
	t.Helper()
	bucket, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LIMITS"})
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{t: t, table: &table{}, bucket: bucket, js: js, log: &bubble.Log{}}
	deps := LiveDeps{
		Bucket: bucket, Connection: nc, Apply: f.table.apply, Now: time.Now,
		Logger: f.log.Logger(slog.LevelInfo),
	}
	if change != nil {
		change(&deps)
	}
	f.Live = NewLive(deps)
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return f
}

func entry(t *testing.T, scope Scope, key, limit string) Entry {
	t.Helper()
	rules, err := algorithms.ParseRules(limit)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Scope: scope, Key: key, Rules: rules, Author: "ann", Reason: "because"}
}

func (f *followed) set(scope Scope, key, limit string) Entry {
	f.t.Helper()
	e, err := f.Set(f.t.Context(), entry(f.t, scope, key, limit))
	if err != nil {
		f.t.Fatalf("set %s %s: %v", scope, key, err)
	}
	return e
}

// foreign writes past the gateway, as `nats kv put` does.
func (f *followed) foreign(name, value string) {
	f.t.Helper()
	if _, err := f.bucket.PutString(f.t.Context(), name, value); err != nil {
		f.t.Fatal(err)
	}
}

func (f *followed) holds(want string) {
	f.t.Helper()
	if got := f.table.text(); got != want {
		f.t.Errorf("in force is %q, want %q", got, want)
	}
	if got := text(f.List()); got != want {
		f.t.Errorf("listed is %q, want %q", got, want)
	}
}

func TestWhatOthersWriteIsFollowedAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.foreign("tenant.YWNtZQ", `{"scope":"tenant","key":"acme","limit":"token-bucket:7/s"}`)
		synctest.Wait()
		f.holds("tenant/acme=token-bucket:7/s")
		if at := f.List()[0].At; !at.Equal(time.Now()) {
			t.Errorf("set at %s, and it is %s", at, time.Now())
		}
		if err := f.bucket.Delete(t.Context(), "tenant.YWNtZQ"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.holds("")
		f.foreign("tenant.YWNtZQ", `{"scope":"tenant","key":"acme","limit":"token-bucket:8/s"}`)
		if err := f.bucket.Purge(t.Context(), "tenant.YWNtZQ"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.holds("")
	})
}

// Something unreadable in the bucket changes nothing: the last good entry of its
// key stays, it is said once, and it is listed until it is gone.
func TestBrokenEntriesKeepTheLastGoodOne(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":           "{",
		"nothing":           "",
		"another type":      `["tenant"]`,
		"no limit":          `{"scope":"tenant","key":"acme"}`,
		"a misspelt field":  `{"scope":"tenant","key":"acme","limt":"token-bucket:1/s"}`,
		"a bad rule":        `{"scope":"tenant","key":"acme","limit":"fast"}`,
		"for another key":   `{"scope":"tenant","key":"globex","limit":"token-bucket:1/s"}`,
		"for another scope": `{"scope":"user","key":"acme","limit":"token-bucket:1/s"}`,
		"a long reason":     `{"scope":"tenant","key":"acme","limit":"token-bucket:1/s","reason":"` + strings.Repeat("x", 501) + `"}`,
		"no UTF-8":          "{\"scope\":\"tenant\",\"key\":\"acme\",\"limit\":\"token-bucket:1/s\",\"author\":\"\xff\"}",
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := bubble.Server(t)
				f := follow(t, s)
				f.set(Tenant, "acme", "token-bucket:10/s")
				f.foreign("tenant.YWNtZQ", value)
				synctest.Wait()
				f.holds("tenant/acme=token-bucket:10/s")
				broken := f.Broken()
				if len(broken) != 1 || broken[0].Name != "tenant.YWNtZQ" || broken[0].Error == "" || !broken[0].Kept || broken[0].Revision != 2 {
					t.Errorf("broken: %+v", broken)
				}
				// Others go on, and the log does not repeat itself.
				f.set(Tenant, "globex", "token-bucket:1/s")
				f.holds("tenant/acme=token-bucket:10/s tenant/globex=token-bucket:1/s")
				time.Sleep(time.Hour)
				if n := strings.Count(f.log.String(), "is not used"); n != 1 {
					t.Errorf("logged %d times:\n%s", n, f.log)
				}
				// Who starts now has no good one to keep.
				g := follow(t, s)
				g.holds("tenant/globex=token-bucket:1/s")
				if b := g.Broken(); len(b) != 1 || b[0].Kept {
					t.Errorf("broken at the start: %+v", b)
				}
				f.set(Tenant, "acme", "token-bucket:11/s")
				f.holds("tenant/acme=token-bucket:11/s tenant/globex=token-bucket:1/s")
				synctest.Wait()
				g.holds("tenant/acme=token-bucket:11/s tenant/globex=token-bucket:1/s")
				if len(f.Broken())+len(g.Broken()) != 0 {
					t.Error("still broken after it was set")
				}
			})
		})
	}
}

// A key in the bucket may be a secret that was taken for a fingerprint.
func TestAnAPIKeyIsNeverShown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := follow(t, bubble.Server(t))
		f.foreign(bucketKey(APIKey, "geheim"), `{"scope":"api_key","key":"geheim","limit":"token-bucket:1/s"}`)
		_, err := f.Set(t.Context(), entry(t, APIKey, "geheim", "token-bucket:1/s"))
		if err == nil || !strings.Contains(err.Error(), "flowgate limits fingerprint") {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		broken := f.Broken()
		if len(broken) != 1 || broken[0].Name != "api_key.******" {
			t.Errorf("broken: %+v", broken)
		}
		shown := fmt.Sprint(err, broken, f.log)
		for _, secret := range []string{"geheim", strings.TrimPrefix(bucketKey(APIKey, "geheim"), "api_key.")} {
			if strings.Contains(shown, secret) {
				t.Errorf("shown: %s", shown)
			}
		}
	})
}

// More limits than there is room for: a gateway that starts takes what fits and says so;
// one that runs keeps what it has.
func TestMoreLimitsThanThereIsRoomFor(t *testing.T) {
	var inForce []Entry
	l := NewLive(LiveDeps{Logger: slog.New(slog.DiscardHandler), Apply: func(entries []Entry) error {
		if len(entries) > maxEntries+1 {
			return errors.New("too many")
		}
		inForce = entries
		return nil
	}})
	add := func(n int) {
		for i := range n {
			e := entry(t, User, fmt.Sprintf("user-%06d", i), "token-bucket:1/s")
			l.slots[bucketKey(e.Scope, e.Key)] = slot[Entry]{entry: e, good: true}
		}
	}
	l.changed = true
	l.slots[bucketKey(Tenant, "acme")] = slot[Entry]{entry: entry(t, Tenant, "acme", "token-bucket:1/s"), good: true}
	add(maxEntries + 1)
	l.publish()
	if len(inForce) != maxEntries+1 || inForce[0].Key != "acme" || len(l.List()) != maxEntries+1 || l.Stale() == nil {
		t.Fatalf("%d in force, %d listed, stale: %v", len(inForce), len(l.List()), l.Stale())
	}
	l.slots, l.changed = map[string]slot[Entry]{}, true
	add(10)
	l.publish()
	if len(inForce) != 10 || l.Stale() != nil {
		t.Fatalf("%d in force, stale: %v", len(inForce), l.Stale())
	}
	l.changed = true
	add(maxEntries + 2)
	l.publish()
	if len(inForce) != 10 || len(l.List()) != 10 || l.Stale() == nil {
		t.Errorf("%d in force, %d listed, stale: %v", len(inForce), len(l.List()), l.Stale())
	}
}
