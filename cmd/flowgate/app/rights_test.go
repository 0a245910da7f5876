package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/flowgate/flowgate/cmd/flowgate/app/broker"
)

// A gateway whose user lacks a right does not start, and says which it is: before there
// are streams, and when one has to be changed.
func TestStartWithoutARight(t *testing.T) {
	all := server.SubjectPermission{Allow: []string{">"}}
	without := func(subject string) *server.SubjectPermission {
		return &server.SubjectPermission{Allow: []string{">"}, Deny: []string{subject}}
	}
	cases := []struct {
		publish, subscribe string
		// there: the streams are there already, with another MAX.
		there bool
	}{
		{publish: "$JS.API.STREAM.CREATE.KV_FLOWGATE_STATE"},
		{publish: "$JS.API.STREAM.CREATE.FLOWGATE"},
		{publish: "$JS.API.STREAM.INFO.FLOWGATE", there: true},
		{publish: "$JS.API.STREAM.UPDATE.FLOWGATE", there: true},
		{publish: "$KV.FLOWGATE_STATE.>", there: true},
		{publish: "$SRV.INFO", there: true},
		{publish: "flowgate.backlog.>", there: true},
		{subscribe: "ingress.>", there: true},
		{subscribe: "flowgate.inbox.>", there: true},
		{subscribe: "$SRV.PING", there: true},
	}
	opts := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	opts.Users = []*server.User{{Username: "all", Password: "all"}}
	for i, c := range cases {
		p := &server.Permissions{Publish: &all, Subscribe: &all}
		if c.publish != "" {
			p.Publish = without(c.publish)
		} else {
			p.Subscribe = without(c.subscribe)
		}
		opts.Users = append(opts.Users, &server.User{Username: fmt.Sprint(i), Password: "p", Permissions: p})
	}
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server is not ready")
	}
	as := func(user, password string, environ ...string) (*running, error) {
		return tryStart(t, t.TempDir(), &sink{}, append([]string{"FLOWGATE_NATS_LISTEN=", "FLOWGATE_NATS_URL=" + s.ClientURL(), "FLOWGATE_NATS_USER=" + user, "FLOWGATE_NATS_PASSWORD=" + password}, environ...)...)
	}
	made := false
	for i, c := range cases {
		if c.there && !made {
			r, err := as("all", "all")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			made = true
		}
		want := "publish " + c.publish
		if c.publish == "" {
			want = "subscribe to " + c.subscribe
		}
		_, err := as(fmt.Sprint(i), "p", "FLOWGATE_BACKPRESSURE_MAX=12345")
		if _, ok := errors.AsType[*broker.DeniedError](err); !ok || !strings.Contains(err.Error(), "may not "+want+"; allow ") {
			t.Errorf("without the right to %s: %v", want, err)
		}
	}
}
