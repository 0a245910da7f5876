package app

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/flowgate/flowgate/internal/bubble"
	"github.com/flowgate/flowgate/internal/ingress"
)

// Each scope refuses by its own rule and says so; a rule whose key the message lacks
// does not apply; who is refused by one has taken nothing from the others.
func TestEveryScope(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t,
			"FLOWGATE_LIMIT_GATEWAY=token-bucket:1000/h", "FLOWGATE_LIMIT_SERVICE=leaky-bucket:20/h;fixed-window:15/d",
			"FLOWGATE_LIMIT_TENANT=sliding-window:8/h", "FLOWGATE_LIMIT_TENANT_OVERRIDES=big=unlimited|test-*=sliding-window-log:1/h",
			"FLOWGATE_LIMIT_USER=sliding-window-counter:3/h", "FLOWGATE_LIMIT_API_KEY=gcra:2/h",
		)
		nc, _ := r.client()
		type nak struct {
			Reason, Scope, Key, Limit string
			Retry                     int64 `json:"retry_after_ms"`
		}
		publish := func(subject string, headers ...string) (refused nak) {
			t.Helper()
			m := nats.NewMsg("ingress." + subject)
			for i := 0; i < len(headers); i += 2 {
				m.Header.Set(headers[i], headers[i+1])
			}
			reply, err := nc.RequestMsgWithContext(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(reply.Data, &refused); err != nil {
				t.Fatalf("%v: %s", err, reply.Data)
			}
			if strings.Contains(string(reply.Data), "secret") {
				t.Errorf("the key stands in the answer: %s", reply.Data)
			}
			return refused
		}
		admitted := func(n int, subject string, headers ...string) {
			t.Helper()
			for i := range n {
				if got := publish(subject, headers...); got != (nak{}) {
					t.Fatalf("%s, message %d: %+v", subject, i, got)
				}
			}
		}
		refused := func(scope, key, limit string, wait time.Duration, subject string, headers ...string) {
			t.Helper()
			want := nak{"rate_limited", scope, key, limit, wait.Milliseconds()}
			if got := publish(subject, headers...); got != want {
				t.Fatalf("%s: %+v, want %+v", subject, got, want)
			}
		}
		const hour = time.Hour

		admitted(2, "acme.orders.new", "Flowgate-Api-Key", "secret")
		refused("api_key", ingress.Fingerprint("secret"), "gcra:2/h", hour/2, "acme.orders.new", "Flowgate-Api-Key", "secret")
		admitted(2, "acme.orders.new", "Flowgate-Api-Key", "another secret")

		admitted(3, "acme.orders.new", "Flowgate-User", "ann")
		if got := publish("acme.orders.new", "Flowgate-User", "ann"); got.Scope != "user" || got.Key != "ann" || got.Limit != "sliding-window-counter:3/h" {
			t.Errorf("%+v", got)
		}
		// Seven of eight: whoever was refused took nothing.
		admitted(1, "acme.mail.new")
		refused("tenant", "acme", "sliding-window:8/h", hour, "acme.mail.new")

		admitted(1, "test-1.mail")
		refused("tenant", "test-1", "sliding-window-log:1/h", hour, "test-1.mail")
		admitted(1, "test-2.mail")

		// Seven of orders so far. Windows of days lie on days, UTC.
		admitted(8, "big.orders.new")
		midnight := time.Until(time.Now().Truncate(24 * hour).Add(24 * hour))
		refused("service", "orders", "fixed-window:15/d", (midnight + time.Millisecond - 1).Truncate(time.Millisecond), "big.orders.new")
		admitted(4, "big.mail.new", "Flowgate-Cost", "3") // 3 of 15 were taken
		refused("service", "mail", "fixed-window:15/d", (time.Until(time.Now().Truncate(24*hour).Add(24*hour)) + time.Millisecond - 1).Truncate(time.Millisecond), "big.mail.new")
	})
}
