package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flowgate/flowgate/internal/algorithms"
)

// Whom a message over NATS counts for, header by header.
func TestNATSIdentity(t *testing.T) {
	info := `{"start":"2026-01-01T00:00:00Z","host":"198.51.100.7","id":9,"acc":"P"}`
	for _, c := range []struct {
		name, subject, reply string
		header               nats.Header
		want                 Identity
	}{
		{"bare", "ingress.acme.t", "", nil, Identity{Tenant: "acme", Service: "t"}},
		{"deep topic", "ingress.acme.orders.eu.new", "", nil, Identity{Tenant: "acme", Service: "orders"}},
		{"user", "ingress.acme.t", "", nats.Header{"Flowgate-User": {" ann "}}, Identity{Tenant: "acme", Service: "t", User: "ann"}},
		{"empty user", "ingress.acme.t", "", nats.Header{"Flowgate-User": {""}}, Identity{Tenant: "acme", Service: "t"}},
		{"key", "ingress.acme.t", "", nats.Header{"Flowgate-Api-Key": {" secret "}}, Identity{Tenant: "acme", Service: "t", APIKey: "ak-2bb80d537b1da3e3"}},
		{"empty key", "ingress.acme.t", "", nats.Header{"Flowgate-Api-Key": {""}}, Identity{Tenant: "acme", Service: "t"}},
		{"import", "ingress.acme.t", "_R_.x", nats.Header{"Nats-Request-Info": {info}}, Identity{Tenant: "acme", Service: "t", IP: "198.51.100.7"}},
		{"import, IPv4 in IPv6", "ingress.acme.t", "_R_.x", nats.Header{"Nats-Request-Info": {`{"host":"::ffff:198.51.100.7"}`}}, Identity{Tenant: "acme", Service: "t", IP: "198.51.100.7"}},
		{"import that is not told", "ingress.acme.t", "_R_.x", nats.Header{"Nats-Request-Info": {`{"acc":"P"}`}}, Identity{Tenant: "acme", Service: "t"}},
		{"import with a name", "ingress.acme.t", "_R_.x", nats.Header{"Nats-Request-Info": {`{"host":"localhost"}`}}, Identity{Tenant: "acme", Service: "t"}},
		{"import with no JSON", "ingress.acme.t", "_R_.x", nats.Header{"Nats-Request-Info": {`198.51.100.7`}}, Identity{Tenant: "acme", Service: "t"}},
	} {
		d, limits, _ := testDoor()
		v := d.decide(incoming{msg: &nats.Msg{Subject: c.subject, Reply: c.reply, Header: c.header, Data: []byte("x")}}, 0, time.Now)
		if got := limits.seen(); v.refused != nil || got != c.want {
			t.Errorf("%s: %+v, want %+v; %v", c.name, got, c.want, v.refused)
		}
		for key := range c.header {
			if key != userHeader {
				t.Errorf("%s: %s is kept", c.name, key)
			}
		}
	}
	for name, h := range map[string]nats.Header{
		"two users": {"Flowgate-User": {"a", "b"}}, "long user": {"Flowgate-User": {strings.Repeat("u", 256)}},
		"user that is no UTF-8": {"Flowgate-User": {"\xff"}}, "user with NUL": {"Flowgate-User": {"a\x00"}},
		"two keys": {"Flowgate-Api-Key": {"a", "a"}}, "two infos": {"Nats-Request-Info": {info, info}},
	} {
		d, limits, _ := testDoor()
		v := d.decide(incoming{msg: &nats.Msg{Subject: "ingress.acme.t", Reply: "_R_.x", Header: h, Data: []byte("x")}}, 0, time.Now)
		if v.refused == nil || v.refused.Reason != Invalid || limits.seen() != (Identity{}) {
			t.Errorf("%s: %+v", name, v.refused)
		}
	}
}

// A real server with accounts: the producers' account imports the ingress, and only
// there does the broker tell the address. What a producer claims does not count.
func TestImportIdentity(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `
listen: 127.0.0.1:-1
jetstream { store_dir: %q }
accounts {
  GATE { jetstream: enabled, users: [{user: gate, password: x}], exports: [{service: "ingress.>"}] }
  TOLD { users: [{user: told, password: x}], imports: [{service: {account: GATE, subject: "ingress.>"}, share: true}] }
  QUIET { users: [{user: quiet, password: x}], imports: [{service: {account: GATE, subject: "ingress.>"}}] }
}`, t.TempDir()), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	connect := func(user, inbox string) *nats.Conn {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "x"), nats.CustomInboxPrefix(inbox))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	js, err := jetstream.New(connect("gate", "_INBOX"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FLOWGATE", Subjects: []string{"flowgate.backlog.>"}}); err != nil {
		t.Fatal(err)
	}
	limits := &allowance{}
	door, err := New(Config{Prefix: "ingress", MaxPayload: 64 << 10}, Deps{
		Receive: connect("gate", "flowgate.inbox.a"), Forward: connect("gate", "flowgate.inbox.b"), Limits: limits, Backpressure: &space{},
		Name: "flowgate", Stream: "FLOWGATE", Backlog: "flowgate.backlog",
		Clock: func() int64 { return time.Now().UnixNano() }, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- door.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-door.Opened()
	claim := nats.Header{"Nats-Request-Info": {`{"host":"198.51.100.7"}`}}
	for _, c := range []struct {
		user    string
		header  nats.Header
		ip      string
		refused bool
	}{
		{"told", nil, "127.0.0.1", false}, {"told", claim, "127.0.0.1", false},
		{"quiet", nil, "", false}, {"quiet", claim, "", false},
		{"gate", nil, "", false}, {"gate", claim, "", true},
	} {
		m, err := connect(c.user, "_INBOX").RequestMsg(&nats.Msg{Subject: "ingress.acme.t", Header: c.header, Data: []byte("x")}, 5*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", c.user, err)
		}
		if refused := m.Header.Get("Flowgate-Reason") == "invalid"; refused != c.refused || limits.seen().IP != c.ip {
			t.Errorf("%s claiming %v: %s, counted for %+v", c.user, c.header, m.Data, limits.seen())
		}
	}
}

// HTTP and NATS together get no more out of a limit than it has.
func TestOneLimitForAll(t *testing.T) {
	const burst = 100
	rules, err := algorithms.ParseRules(fmt.Sprintf("token-bucket:1/h,burst=%d", burst))
	if err != nil {
		t.Fatal(err)
	}
	k, err := algorithms.NewKeyed(algorithms.Policy{Default: rules}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	w := newWeb(t, func(_ *Config, d *Deps, _ *jetstream.StreamConfig) { d.Limits = keyed{k} }).run()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		js := w.producer()
		wg.Go(func() {
			for range 50 {
				if _, err := js.Publish(t.Context(), "ingress.acme.t", nil); err == nil {
					admitted.Add(1)
				}
			}
		})
		client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext}}
		t.Cleanup(client.CloseIdleConnections)
		wg.Go(func() {
			for range 50 {
				r, err := w.try(client, "POST", "http://"+w.http.Addr()+"/v1/messages/acme/t", nil)
				if err != nil {
					t.Error(err)
				} else if r.status == 202 {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != burst || w.state().Msgs != burst {
		t.Errorf("%d admitted and %d stored out of %d", n, w.state().Msgs, burst)
	}
}
