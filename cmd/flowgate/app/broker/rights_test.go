package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

// What a gateway's user must be allowed, as an operator would write it.
var (
	mustPublish = []string{
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST",
		"$JS.API.STREAM.INFO.FLOWGATE", "$JS.API.STREAM.CREATE.FLOWGATE", "$JS.API.STREAM.UPDATE.FLOWGATE",
		"$JS.API.STREAM.MSG.GET.FLOWGATE", "$JS.API.DIRECT.GET.FLOWGATE",
		"$JS.API.STREAM.INFO.FLOWGATE_DLQ", "$JS.API.STREAM.CREATE.FLOWGATE_DLQ", "$JS.API.STREAM.UPDATE.FLOWGATE_DLQ",
		"$JS.API.STREAM.MSG.GET.FLOWGATE_DLQ", "$JS.API.STREAM.MSG.DELETE.FLOWGATE_DLQ", "$JS.API.DIRECT.GET.FLOWGATE_DLQ",
		"$JS.API.STREAM.INFO.KV_FLOWGATE_STATE", "$JS.API.STREAM.CREATE.KV_FLOWGATE_STATE", "$JS.API.STREAM.UPDATE.KV_FLOWGATE_STATE",
		"$JS.API.STREAM.MSG.GET.KV_FLOWGATE_STATE", "$JS.API.DIRECT.GET.KV_FLOWGATE_STATE", "$JS.API.DIRECT.GET.KV_FLOWGATE_STATE.>",
		"$JS.API.CONSUMER.CREATE.KV_FLOWGATE_STATE.>", "$KV.FLOWGATE_STATE.>",
		"$JS.API.CONSUMER.DELETE.KV_FLOWGATE_STATE.>", "$JS.FC.KV_FLOWGATE_STATE.>",
		"$JS.API.STREAM.INFO.KV_FLOWGATE_LIMITS", "$JS.API.STREAM.CREATE.KV_FLOWGATE_LIMITS", "$JS.API.STREAM.UPDATE.KV_FLOWGATE_LIMITS",
		"$JS.API.STREAM.MSG.GET.KV_FLOWGATE_LIMITS", "$JS.API.DIRECT.GET.KV_FLOWGATE_LIMITS", "$JS.API.DIRECT.GET.KV_FLOWGATE_LIMITS.>",
		"$JS.API.CONSUMER.CREATE.KV_FLOWGATE_LIMITS.>", "$KV.FLOWGATE_LIMITS.>",
		"$JS.API.CONSUMER.DELETE.KV_FLOWGATE_LIMITS.>", "$JS.FC.KV_FLOWGATE_LIMITS.>",
		"$JS.API.CONSUMER.LIST.FLOWGATE", "$JS.API.CONSUMER.INFO.FLOWGATE.shaper", "$JS.API.CONSUMER.CREATE.FLOWGATE.shaper",
		"$JS.API.CONSUMER.RESET.FLOWGATE.shaper", "$JS.API.CONSUMER.MSG.NEXT.FLOWGATE.shaper", "$JS.ACK.FLOWGATE.shaper.>",
		"flowgate.backlog.>", "flowgate.dlq.>", "flowgate.pressure", "$SRV.INFO", "_INBOX.>",
	}
	mustSubscribe = []string{"ingress.>", "flowgate.inbox.>", "$SRV.PING", "$SRV.INFO", "$SRV.STATS", "flowgate.admin.status", "flowgate.admin.pause", "flowgate.admin.resume"}
)

// user is a line of a server's configuration. Its password is its name.
func user(name, permissions string) string {
	return fmt.Sprintf("{ user: %q, password: %q, permissions: { %s } }\n", name, name, permissions)
}

func quoted(subjects []string) string { return `["` + strings.Join(subjects, `", "`) + `"]` }

func as(name string) func(*Config) { return func(c *Config) { c.User, c.Password = name, name } }

// Each right is taken away in turn: the check names it and no other.
func TestCheckOnlineNamesEachMissingRight(t *testing.T) {
	type denied struct{ verb, subject string }
	var rights []denied
	var users strings.Builder
	users.WriteString(user("all", ""))
	add := func(verb, subject, permissions string) {
		rights = append(rights, denied{verb, subject})
		users.WriteString(user(fmt.Sprint(len(rights)), permissions))
	}
	for _, s := range mustPublish {
		add("publish", s, fmt.Sprintf("publish: { allow: %q, deny: %q }", ">", s))
	}
	for _, s := range mustSubscribe {
		add("subscribe to", s, fmt.Sprintf("subscribe: { allow: %q, deny: %q }", ">", s))
	}
	s := external(t, "accounts { APP { jetstream: enabled, users: [ "+users.String()+" ] } }")
	owner := toExternal(t, s, as("all"))
	_, js := gateway(t, owner)
	ensured(t, js, limitsToo())
	before := configs(t, js)
	for i, r := range rights {
		t.Run(r.verb+" "+r.subject, func(t *testing.T) {
			began := time.Now()
			all := checked(t, toExternal(t, s, as(fmt.Sprint(i+1))), limitsToo())
			f := all["rights to "+r.verb]
			if f.OK() {
				t.Error("not found")
				return
			}
			named := strings.TrimPrefix(f.Err.Error(), "flowgate's user may not "+r.verb+" ")
			if strings.ContainsAny(named, " ,\n") || !overlap(named, r.subject) {
				t.Errorf("%v", f.Err)
			}
			if f.Fix == "" {
				t.Error("it does not say what to do")
			}
			for _, verb := range []string{"publish", "subscribe to"} {
				if verb != r.verb && !all["rights to "+verb].OK() {
					t.Errorf("%v", all["rights to "+verb].Err)
				}
			}
			// The start finds it too, but for what only makes and changes streams.
			err := toExternal(t, s, as(fmt.Sprint(i+1))).Rights(t.Context(), limitsToo())
			denied, _ := errors.AsType[*DeniedError](err)
			if making := strings.Contains(r.subject, ".STREAM.CREATE.") || strings.Contains(r.subject, ".STREAM.UPDATE."); making != (err == nil) {
				t.Errorf("at the start: %v", err)
			} else if err != nil && (denied == nil || !slices.Equal(slices.Concat(denied.Publish, denied.Subscribe), []string{named}) || !strings.Contains(err.Error(), r.verb+" "+named)) {
				t.Errorf("at the start: %v", err)
			}
			// A request that is not allowed has no answer to wait for.
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	if diff := cmp.Diff(before, configs(t, js)); diff != "" {
		t.Errorf("the checks left something or changed it:\n%s", diff)
	}
}

// A consumer over NATS is published to.
func TestCheckOnlineNamesTheRightToDeliver(t *testing.T) {
	s := external(t, "accounts { APP { jetstream: enabled, users: [ "+user("all", "")+
		user("none", `publish: { allow: ">", deny: "out.orders.>" }`)+" ] } }")
	top := limitsToo()
	top.Deliveries = "out.orders"
	for name, want := range map[string]string{"all": "", "none": "flowgate's user may not publish out.orders.>"} {
		b := toExternal(t, s, as(name))
		heard := client(t, strings.Replace(s.ClientURL(), "nats://", "nats://all:all@", 1))
		sub, err := heard.SubscribeSync("out.>")
		if err != nil {
			t.Fatal(err)
		}
		if err := heard.Flush(); err != nil {
			t.Fatal(err)
		}
		f := checked(t, b, top)["rights to publish"]
		if want == "" && !f.OK() || want != "" && (f.OK() || f.Err.Error() != want) {
			t.Errorf("%s: %+v", name, f)
		}
		if err := heard.Flush(); err != nil {
			t.Fatal(err)
		}
		if n, _, _ := sub.Pending(); n != 0 {
			t.Errorf("%s: consumers heard the check", name)
		}
	}
}

// A user with these rights and no other passes the check, and then a gateway can do
// its work.
func TestTheRightsThatAreNeededAreEnough(t *testing.T) {
	s := external(t, "accounts { APP { jetstream: enabled, users: [ "+
		user("gate", "publish: "+quoted(mustPublish)+", subscribe: "+quoted(mustSubscribe))+user("all", "")+" ] } }")
	b := toExternal(t, s, as("gate"))
	all := checked(t, b, limitsToo())
	if !all["trial"].Skipped || !strings.Contains(all["trial"].Detail, "$JS.API.STREAM.DELETE.FLOWGATE_CHECK_") {
		t.Errorf("the trial, without the right to remove what it makes: %+v", all["trial"])
	}
	delete(all, "trial")
	if failed := all.failed(); failed != "" {
		t.Error(failed)
	}
	_, theirs := gateway(t, toExternal(t, s, as("all")))
	if left := configs(t, theirs); len(left) != 0 {
		t.Errorf("the check left %v", left)
	}

	nc, js := gateway(t, b)
	a := ensured(t, js, limitsToo())
	if _, err := theirs.UpdateStream(t.Context(), func() jetstream.StreamConfig {
		c := a.Backlog.CachedInfo().Config
		c.MaxMsgs = 5
		return c
	}()); err != nil {
		t.Fatal(err)
	}
	ensured(t, js, limitsToo())
	lease, err := Acquire(t.Context(), a.State, "gateway", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.renew(t.Context()); err != nil {
		t.Errorf("renew the lease: %v", err)
	}
	watcher, err := a.Limits.WatchAll(t.Context())
	if err != nil {
		t.Fatalf("watch the limits: %v", err)
	}
	if _, err := a.Limits.PutString(t.Context(), "tenant.YQ", "{}"); err != nil {
		t.Errorf("write a limit: %v", err)
	}
	soon(t, "the watcher sees the limit", func() bool { e := <-watcher.Updates(); return e != nil && e.Key() == "tenant.YQ" })
	if err := watcher.Stop(); err != nil {
		t.Errorf("stop watching: %v", err)
	}
	// More than the server sends before it asks whether it may go on.
	for i := range 6000 {
		if _, err := a.Limits.PutString(t.Context(), fmt.Sprintf("user.%d", i), strings.Repeat("x", 600)); err != nil {
			t.Fatal(err)
		}
	}
	if watcher, err = a.Limits.WatchAll(t.Context()); err != nil {
		t.Fatalf("watch the limits: %v", err)
	}
	soon(t, "all limits are read", func() bool {
		for {
			select {
			case e := <-watcher.Updates():
				if e == nil {
					return true
				}
			case <-time.After(time.Second):
				return false
			}
		}
	})
	publish(t, js, 2)
	for range 2 {
		m, err := a.Consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
		if err != nil {
			t.Fatalf("pull: %v", err)
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatalf("acknowledge: %v", err)
		}
	}
	publish(t, js, 1)
	if _, err := a.Backlog.ResetConsumer(t.Context(), "shaper"); err != nil {
		t.Errorf("reset: %v", err)
	}
	if _, err := a.Backlog.GetMsg(t.Context(), 3); err != nil {
		t.Errorf("read by sequence: %v", err)
	}
	dead, err := js.Publish(t.Context(), "flowgate.dlq.acme.orders", nil)
	if err != nil {
		t.Fatalf("dead letter: %v", err)
	}
	if err := a.DLQ.DeleteMsg(t.Context(), dead.Sequence); err != nil {
		t.Errorf("delete a dead letter: %v", err)
	}
	if _, err := Capturing(t.Context(), js, "ingress"); err != nil {
		t.Errorf("look for captures: %v", err)
	}
	if err := nc.Publish("flowgate.pressure", nil); err != nil {
		t.Error(err)
	}
	lease.release(t.Context())
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := nc.LastError(); err != nil {
		t.Errorf("the server refused something: %v", err)
	}
}
